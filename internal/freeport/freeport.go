// Package freeport finds ports on the loopback interface for the servers of
// tests.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Below what systems give to outgoing connections and to listeners that take any
// port, which is from 32768 on with Linux and from 49152 on elsewhere.
const first, last = 10240, 32767

// tries bounds the search.
const tries = 1000

var (
	mu    sync.Mutex
	given = make(map[int]bool)
)

// Next returns a port that nobody listens on, and that it has not returned in
// this process before. A server that can't have its port never finds another one
// of the same tests there, with the same password. Another process may still take
// the port first. Next is safe for concurrent use.
func Next() (int, error) {
	mu.Lock()
	defer mu.Unlock()
	for range tries {
		port := first + rand.IntN(last-first+1)
		if !given[port] && isFree(port) {
			given[port] = true
			return port, nil
		}
	}
	return 0, errors.New("no free port on 127.0.0.1")
}

func isFree(port int) bool {
	listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return err == nil && listener.Close() == nil
}
