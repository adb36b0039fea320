package advisory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/internal/lockid"
	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

// modelServer is a server in this process, as much of one as the conversation about locks
// needs: sessions on pipes, and one table of locks. Its clock is that of synctest, and a
// seeded source says how long each answer takes and which sessions die.
type modelServer struct {
	work sync.WaitGroup

	// mu guards the fields below.
	mu       sync.Mutex
	random   *rand.Rand
	locks    map[string]*modelLock
	sessions int
	deadly   float64 // the probability that a session dies at a statement
}

// modelLock is one lock. Waiters are granted in the order in which they came.
type modelLock struct {
	holders map[*modelSession]int // how often each holds it
	shared  bool
	waiters []*modelWaiter
}

type modelWaiter struct {
	session *modelSession
	shared  bool
	granted chan struct{}
}

type modelSession struct {
	server     *modelServer
	pid        int
	statements map[string]string // by name
	conn       net.Conn
}

// pool returns a pool whose connections lead to the server.
func (s *modelServer) pool(size int32) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig("postgres://model@127.0.0.1/model?sslmode=disable")
	if err != nil {
		panic(err)
	}
	config.MaxConns = size
	config.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		s.work.Go(func() { s.serve(server) }) // ends with the pipe
		return client, nil
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		panic(err)
	}
	return pool
}

func (s *modelServer) serve(conn net.Conn) {
	s.mu.Lock()
	s.sessions++
	session := &modelSession{server: s, pid: 1000 + s.sessions, statements: make(map[string]string), conn: conn}
	s.mu.Unlock()
	defer func() {
		_ = conn.Close()
		s.unlockAll(session)
	}()
	backend := pgproto3.NewBackend(conn, conn)
	if _, err := backend.ReceiveStartupMessage(); err != nil {
		return
	}
	backend.Send(&pgproto3.AuthenticationOk{})
	backend.Send(&pgproto3.ParameterStatus{Name: "server_version", Value: "15.0"})
	backend.Send(&pgproto3.BackendKeyData{ProcessID: uint32(session.pid), SecretKey: []byte{0, 0, 0, 1}})
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if backend.Flush() != nil {
		return
	}
	for session.converse(backend) {
	}
}

// converse answers until the client waits for nothing, and reports false at the end.
func (m *modelSession) converse(backend *pgproto3.Backend) bool {
	message, err := backend.Receive()
	if err != nil {
		return false
	}
	switch q := message.(type) {
	case *pgproto3.Query:
		if m.server.pause() {
			return false
		}
		m.simple(backend, q.String)
	case *pgproto3.Parse:
		m.statements[q.Name] = q.Query
		return true
	case *pgproto3.Bind:
		if m.server.pause() {
			return false
		}
		answer := m.prepared(q.PreparedStatement, q.Parameters)
		backend.Send(&pgproto3.BindComplete{})
		backend.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(answer)}})
		backend.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		return true
	case *pgproto3.Sync:
		backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	case *pgproto3.Terminate:
		return false
	default: // Close and Execute, which need no answer of their own here
		return true
	}
	return backend.Flush() == nil
}

// pause is how long an answer takes. It reports true if the session dies instead.
func (s *modelServer) pause() (dies bool) {
	s.mu.Lock()
	d := time.Duration(s.random.IntN(3)) * time.Duration(s.random.IntN(1000)) * time.Microsecond
	dies = s.random.Float64() < s.deadly
	s.mu.Unlock()
	<-time.After(d)
	return dies
}

func (m *modelSession) simple(backend *pgproto3.Backend, sql string) {
	row := func(values ...string) {
		var texts [][]byte
		fields := make([]pgproto3.FieldDescription, len(values))
		for i, v := range values {
			texts = append(texts, []byte(v))
			fields[i] = pgproto3.FieldDescription{Name: []byte("c"), DataTypeOID: 25}
		}
		backend.Send(&pgproto3.RowDescription{Fields: fields})
		backend.Send(&pgproto3.DataRow{Values: texts})
		backend.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
	}
	switch {
	case strings.Contains(sql, "pg_is_in_recovery"):
		row(strconv.Itoa(m.pid), "f", "PostgreSQL 15.0 on linux", "7200", "75", "9", "0", "0")
	case strings.Contains(sql, "$pgadvisory$"):
		backend.Send(&pgproto3.CommandComplete{CommandTag: []byte("BEGIN")})
		row(m.script(sql), "1")
		backend.Send(&pgproto3.CommandComplete{CommandTag: []byte("COMMIT")})
	case strings.Contains(sql, "pg_advisory_unlock_all"):
		m.server.unlockAll(m)
		row("t")
	case strings.Contains(sql, "concat_ws"): // the settings of a connection
		var values []string
		for _, match := range modelSetting.FindAllStringSubmatch(sql, -1) {
			values = append(values, match[1])
		}
		row(strings.Join(values, ","))
	case strings.HasPrefix(sql, "SELECT"):
		row("t")
	default:
		backend.Send(&pgproto3.EmptyQueryResponse{})
	}
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
}

// prepared answers the statements that take, free and poll locks.
func (m *modelSession) prepared(name string, params [][]byte) string {
	s, sql := m.server, m.statements[name]
	type target struct {
		id     string
		shared bool
	}
	var targets []target
	if strings.Contains(name, "_several") {
		kinds, ids := arrayOf(string(params[0])), arrayOf(string(params[1]))
		for i := range ids {
			kind, _ := strconv.Atoi(kinds[i])
			targets = append(targets, target{ids[i], kind&1 != 0})
		}
	} else {
		targets = append(targets, target{string(params[0]), strings.Contains(name, "_shared")})
	}
	if strings.Contains(sql, "pg_catalog.pg_advisory_unlock") && !strings.HasPrefix(sql, "SELECT CASE WHEN pg_catalog.pg_advisory_unlock_all") {
		ok := true
		for _, t := range targets {
			ok = ok && s.unlock(m, t.id)
		}
		s.unlockAll(m)
		return map[bool]string{true: "t", false: "f"}[ok]
	}
	s.unlockAll(m)
	for _, t := range targets {
		if !s.lock(m, t.id, t.shared, 0) {
			s.unlockAll(m)
			if strings.Contains(name, "_poll") && s.seat(m, string(params[1]), lockid.Seats) != "" {
				return "seat"
			}
			if strings.Contains(name, "_poll") && s.lock(m, "place "+string(params[2]), false, 0) {
				return "place"
			}
			return "f"
		}
	}
	return "t"
}

var modelSetting = regexp.MustCompile(`set_config\('\w+', '(\d+)', false\)`)

var scriptSetting = regexp.MustCompile(`set_config\('pgadvisory\.(\w+)', (?:CASE WHEN .*? THEN )?'([^']*)'`)

// script does what the block of a script does, and returns how many locks are held.
func (m *modelSession) script(sql string) string {
	s, settings := m.server, make(map[string]string)
	for _, match := range scriptSetting.FindAllStringSubmatch(sql, -1) {
		settings[match[1]] = match[2]
	}
	ids, shared := arrayOf(settings["ids"]), arrayOf(settings["shared"])
	if match := regexp.MustCompile(`'pgadvisory\.held', CASE .* THEN '(\d+)' END`).FindStringSubmatch(sql); match != nil {
		settings["held"] = match[1]
	}
	held, _ := strconv.Atoi(settings["held"])
	wait, _ := strconv.Atoi(settings["wait"])
	seats, _ := strconv.Atoi(settings["seats"])
	deadline := time.Now().Add(time.Duration(wait) * time.Millisecond)
	if held == 0 {
		s.unlockAll(m)
	}
	for held < len(ids) {
		if s.lock(m, ids[held], shared[held] == "true", 0) {
			held++
			continue
		}
		if wait == 0 {
			s.unlockAll(m)
			return "0"
		}
		seat := ""
		if seats > 0 {
			if seat = s.seat(m, settings["seat"], seats); seat == "" {
				return "-2"
			}
		}
		if !s.lock(m, ids[held], shared[held] == "true", time.Until(deadline)) {
			if held == 0 {
				s.unlockAll(m)
			}
			break
		}
		if seat != "" {
			s.unlock(m, seat)
		}
		held++
	}
	return strconv.Itoa(held)
}

// seat takes one of the first seats, and returns which.
func (s *modelServer) seat(m *modelSession, first string, seats int) string {
	for i := range seats {
		if seat := fmt.Sprint("seat ", first, " ", i); s.lock(m, seat, false, 0) {
			return seat
		}
	}
	return ""
}

func arrayOf(text string) []string { return strings.Split(strings.Trim(text, "{}"), ",") }

// lock takes a lock, and waits for it no longer than limit.
func (s *modelServer) lock(m *modelSession, id string, shared bool, limit time.Duration) bool {
	s.mu.Lock()
	l := s.locks[id]
	if l == nil {
		l = &modelLock{holders: make(map[*modelSession]int)}
		s.locks[id] = l
	}
	if l.admits(m, shared) && (len(l.waiters) == 0 || l.holders[m] > 0) {
		l.holders[m]++
		l.shared = shared
		s.mu.Unlock()
		return true
	}
	if limit <= 0 {
		s.mu.Unlock()
		return false
	}
	w := &modelWaiter{session: m, shared: shared, granted: make(chan struct{})}
	l.waiters = append(l.waiters, w)
	s.mu.Unlock()
	timer := time.NewTimer(min(limit, lockproto.Slice))
	defer timer.Stop()
	select {
	case <-w.granted:
		return true
	case <-timer.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(l.waiters, w); i >= 0 {
		l.waiters = slices.Delete(l.waiters, i, i+1)
		l.serve()
		return false
	}
	return true // granted in the same instant
}

func (l *modelLock) admits(m *modelSession, shared bool) bool {
	return len(l.holders) == 0 || shared && l.shared || len(l.holders) == 1 && l.holders[m] > 0
}

// serve grants the lock to those who can have it. The caller holds mu.
func (l *modelLock) serve() {
	for len(l.waiters) > 0 && l.admits(l.waiters[0].session, l.waiters[0].shared) {
		w := l.waiters[0]
		l.waiters = l.waiters[1:]
		l.holders[w.session]++
		l.shared = w.shared
		close(w.granted)
	}
}

func (s *modelServer) unlock(m *modelSession, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[id]
	if l == nil || l.holders[m] == 0 {
		return false
	}
	if l.holders[m]--; l.holders[m] == 0 {
		delete(l.holders, m)
	}
	l.serve()
	return true
}

func (s *modelServer) unlockAll(m *modelSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.locks {
		if l.holders[m] > 0 {
			delete(l.holders, m)
			l.serve()
		}
	}
}

// held counts the locks that somebody holds or waits for.
func (s *modelServer) held() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.locks {
		n += len(l.holders) + len(l.waiters)
	}
	return n
}
