package advisory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	osexec "os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// commandLimit bounds a command that changes a network, and each connection that
// is made in one.
const commandLimit = time.Minute

// network is one of the kernel's, with nothing in it but an end of a cable whose
// other end is on this machine. What is connected from there can lose packets as
// on a real network, which a proxy can't do: it goes on to confirm what it gets.
type network struct {
	host netip.Addr // this machine's, as seen from there

	calls chan func()   // to run in it
	ended chan struct{} // closed when nothing runs in it any more
	lost  atomic.Bool   // every packet is
}

// startNetwork makes a network that lives until the test ends. It is a thread's,
// so that no trace is left of it when the process ends, however that ends.
func startNetwork(t *testing.T) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a network of its own needs root")
	}
	for _, program := range []string{"ip", "iptables"} {
		if _, err := osexec.LookPath(program); err != nil {
			t.Skipf("a network of its own: %v; install iproute2 and iptables", err)
		}
	}
	n := &network{calls: make(chan func()), ended: make(chan struct{})}
	end := make(chan struct{})
	began := make(chan error)
	var thread int
	// Ends at cleanup, which waits for it, and the thread with it: it stays locked.
	go func() {
		defer close(n.ended)
		runtime.LockOSThread()
		err := syscall.Unshare(syscall.CLONE_NEWNET)
		thread = syscall.Gettid()
		began <- err
		if err != nil {
			return
		}
		for {
			select {
			case call := <-n.calls:
				call()
			case <-end:
				return
			}
		}
	}()
	if err := <-began; err != nil {
		t.Skipf("a network of its own needs the capability CAP_SYS_ADMIN: %v", err)
	}
	t.Cleanup(func() {
		close(end)
		<-n.ended
	})

	n.host = freeAddress(t)
	name := fmt.Sprintf("pgadv%08x", rand.Uint32())
	run(t, "ip", "link", "add", name+"h", "type", "veth", "peer", "name", name+"n", "netns", strconv.Itoa(thread))
	t.Cleanup(func() { run(t, "ip", "link", "delete", name+"h") })
	run(t, "ip", "address", "add", n.host.String()+"/30", "dev", name+"h")
	run(t, "ip", "link", "set", name+"h", "up")
	n.inside(func() {
		run(t, "ip", "address", "add", n.host.Next().String()+"/30", "dev", name+"n")
		run(t, "ip", "link", "set", name+"n", "up")
	})
	return n
}

// freeAddress returns an address that, like the next one, is of nobody: it is for
// tests of networks (RFC 2544), and this machine has no route to it but the
// default, so that nothing that it talks to is hidden from it.
func freeAddress(t *testing.T) netip.Addr {
	t.Helper()
	for range 100 {
		host := netip.AddrFrom4([4]byte{198, byte(18 + rand.N(2)), byte(rand.N(256)), byte(4*rand.N(64) + 1)})
		routes := strings.TrimSpace(run(t, "ip", "-4", "route", "show", "to", "match", host.String()))
		if !slices.ContainsFunc(strings.Split(routes, "\n"), func(r string) bool {
			return r != "" && !strings.HasPrefix(r, "default ")
		}) {
			return host
		}
	}
	require.FailNow(t, "this machine uses every address that is for tests")
	return netip.Addr{}
}

func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	out, err := osexec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		t.Errorf("%s %v: %v: %s", program, args, err, out)
	}
	return string(out)
}

// inside runs call in the network, unless that has ended. Processes that it starts run
// there, too, and sockets that it makes stay there.
func (n *network) inside(call func()) {
	returned := make(chan struct{})
	select {
	case n.calls <- func() {
		defer close(returned)
		call()
	}:
		<-returned
	case <-n.ended: // pgx may cancel statements in the background until after the test
	}
}

// drop has the network lose every packet, in both directions.
func (n *network) drop(t *testing.T) {
	t.Helper()
	n.lost.Store(true)
	n.inside(func() {
		run(t, "iptables", "-w", "-A", "INPUT", "-j", "DROP")
		run(t, "iptables", "-w", "-A", "OUTPUT", "-j", "DROP")
	})
}

// heal undoes drop.
func (n *network) heal(t *testing.T) {
	t.Helper()
	n.inside(func() { run(t, "iptables", "-w", "-F") })
	n.lost.Store(false)
}

// dial connects from within the network. It holds up what else is to run there, so it
// does not try in vain for long.
func (n *network) dial(ctx context.Context, _, address string) (conn net.Conn, err error) {
	if n.lost.Load() {
		return nil, os.ErrDeadlineExceeded
	}
	err = net.ErrClosed // if the network has ended
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	n.inside(func() { conn, err = (&net.Dialer{}).DialContext(ctx, "tcp4", address) })
	return conn, err
}

// inNetwork starts a server, and a network from which the returned settings make
// a pool connect to it.
func inNetwork(t *testing.T) (*bundle, *network, func(*pgxpool.Config)) {
	t.Helper()
	direct(t, "the network is lost between the server and its client")
	n := startNetwork(t)
	b := setupOn(t, pgtest.StartWith(t, "listen_addresses=127.0.0.1,"+n.host.String()), nil)
	execute := func(sql string) {
		_, err := b.raw.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	execute(fmt.Sprintf("COPY (SELECT 'host all all all md5') TO '%s'", scan[string](t, b, "SHOW hba_file")))
	execute("SELECT pg_reload_conf()")
	from := func(c *pgxpool.Config) {
		c.ConnConfig.Host, c.ConnConfig.DialFunc = n.host.String(), n.dial
	}
	pool := b.db.Pool(t, from)
	b.eventually(t, "the server lets in who comes from the network", func() bool {
		err := pool.Ping(t.Context())
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
	pool.Close()
	return b, n, from
}

// Cases 34 and 40: packets are lost in both directions, as when a cable is
// unplugged. The holder and the server both notice in their time, and the next
// in line gets the lock.
func TestLoss_packetsAreLost(t *testing.T) {
	t.Parallel()
	const (
		heartbeat, timeout = 500 * time.Millisecond, 2 * time.Second
		vanish             = 6 * time.Second
	)
	b, n, from := inNetwork(t)
	client, server := time.Hour, time.Hour
	bounds := func() bool { // the server counts in seconds
		return client <= (heartbeat+timeout)*11/10 && server < vanish+advisory.Slice+time.Second
	}
	for attempt := 0; attempt < 3 && !bounds(); attempt++ {
		pool, locker := b.another(t, &advisory.Config{Heartbeat: heartbeat, HeartbeatTimeout: timeout, VanishTimeout: vanish}, from)
		lock, err := locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		next := b.lockInBackground(t, b.locker, advisory.ID(7))
		elapsed := timed(t)
		n.drop(t)
		client = min(client, noticed(t, lock))
		var lost *advisory.LostError
		require.ErrorAs(t, lock.Err(), &lost)
		require.Equal(t, advisory.LostUnresponsive, lost.Reason)
		b.eventually(t, "the pool is rid of it", func() bool { return pool.Stat().AcquiredConns() == 0 })
		require.True(t, b.isHeldBy(t, 7, lock.BackendPID()), "for the server it is held still")

		b.nextHolder(t, lock, next)
		server = min(server, elapsed())
		n.heal(t)
	}
	t.Logf("the holder noticed after %s, the next had the lock after %s", client, server)
	require.True(t, bounds())
}

// All holders whose packets are lost know it before the server gives their locks to
// others, whatever kind of lock it is and wherever between two heartbeats they are.
func TestLoss_theHolderKnowsBeforeTheServerGivesItsLockAway(t *testing.T) {
	t.Parallel()
	const (
		heartbeat, timeout = 2 * time.Second, time.Second
		vanish             = 6 * time.Second // a machine of two busy processors needs the difference
	)
	b, n, from := inNetwork(t)
	_, locker := b.another(t, &advisory.Config{Heartbeat: heartbeat, HeartbeatTimeout: timeout, VanishTimeout: vanish}, from, maxConns(10))
	session, err := locker.Session(t.Context())
	require.NoError(t, err)
	var locks []*advisory.Lock
	hold := func(lock *advisory.Lock, err error) {
		require.NoError(t, err)
		locks = append(locks, lock)
		<-time.After(heartbeat / 4) // not for an order: so that they differ in when they ask the server
	}
	hold(locker.TryLock(t.Context(), advisory.ID(0)))
	hold(locker.TryRLock(t.Context(), advisory.ID(1)))
	hold(locker.Lock(t.Context(), advisory.ID(2)))
	hold(locker.LockAll(t.Context(), ids(3, 103)...))
	hold(session.TryLock(t.Context(), advisory.ID(4)))
	hold(session.TryLock(t.Context(), advisory.ID(5)))
	_, others := b.another(t, nil, maxConns(int32(len(locks)+1)))
	n.drop(t)
	known := make(chan string, len(locks))
	for i, lock := range locks {
		go func() {
			next, err := others.Lock(context.Background(), advisory.ID(int64(i)))
			answer := ""
			switch {
			case err != nil:
				answer = err.Error()
			case !isClosed(lock.Done()):
				answer = fmt.Sprintf("lock %d is another's, and its holder does not know", i)
			}
			known <- answer
			_ = next.Unlock(context.Background()) // it is nil after an error
		}()
	}
	for range locks {
		require.Empty(t, <-known)
	}
	n.heal(t)
}

// Case 44: the same in the middle of a statement, during which the server looks
// for the client from version 14 on.
func TestLoss_packetsAreLostInTheMiddleOfAStatement(t *testing.T) {
	t.Parallel()
	const vanish, statement = 3 * time.Second, 10 * time.Second
	b, n, from := inNetwork(t)
	limit := vanish + vanish/3 + advisory.Slice + time.Second
	if b.db.Server.Version() < 140000 {
		limit += statement
	}
	_, locker := b.another(t, &advisory.Config{Heartbeat: 500 * time.Millisecond, HeartbeatTimeout: 2 * time.Second, VanishTimeout: vanish}, from)
	fastest(t, limit, func() time.Duration {
		lock, err := locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := b.sleepOn(ctx, t, lock, statement)
		next := b.lockInBackground(t, b.locker, advisory.ID(7))
		elapsed := timed(t)
		n.drop(t)
		b.nextHolder(t, lock, next)
		took := elapsed()
		n.heal(t)
		cancel()
		<-ended
		noticed(t, lock)
		require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost) // returns when the Locker is done with it
		return took
	})
}

// nextHolder waits for the next in line to get the lock of one who vanished, and
// unlocks it.
func (b *bundle) nextHolder(t *testing.T, vanished *advisory.Lock, next <-chan *advisory.Lock) {
	t.Helper()
	select {
	case lock := <-next:
		require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
		require.NoError(t, lock.Unlock(t.Context()))
	case <-time.After(patience):
		b.terminate(t, vanished.BackendPID())
		require.FailNow(t, "the server keeps the lock of a holder that vanished")
	}
}
