package advisory

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

// startDelay is how long a session may idle before its watch begins to read. Most
// locks of a busy program are gone by then.
const startDelay = 5 * time.Millisecond

// heldConn is a connection whose session holds locks. It is watched while it idles. Its
// mutex lets one goroutine at a time use it. A goroutine that locks it finds the session
// watched, and leaves it watched or ends it.
type heldConn struct {
	locker  *Locker
	owner   owner
	hold    *connhold.Hold
	session lockproto.Session
	pid     uint32
	addr    net.Addr // of the server
	limits  connhold.Limits
	mutex   chan struct{} // holds a token while it is locked
	wanted  atomic.Int32  // how many wait for that

	// mu guards the field below. Whether that is nil orders the end of a transaction
	// against what ends the session under it. Nothing blocks under mu.
	mu sync.Mutex
	tx *txRun // nil unless a transaction has it locked
}

// txRun is one transaction of a heldConn.
type txRun struct{ broken *connhold.Loss } // why the session was ended under it

// owner is the Lock or the Session whose connection it is.
type owner interface {
	// lose is called if the session dies, on a connection that is not locked.
	lose(loss *connhold.Loss)
	// breakOff is called if the session was ended under a transaction, which still has the
	// connection locked.
	breakOff(loss *connhold.Loss)
}

// init makes a heldConn of what an attempt has got. It is not watched yet.
func (c *heldConn) init(a *attempt, owner owner) {
	config, hold := &a.locker.config, a.session.Hold()
	c.locker, c.owner, c.hold, c.session = a.locker, owner, hold, a.session
	c.pid, c.addr, c.mutex = a.session.PID(), hold.RemoteAddr(), make(chan struct{}, 1)
	c.limits = connhold.Limits{Heartbeat: config.Heartbeat, Timeout: config.HeartbeatTimeout, StartDelay: startDelay}
	if c.pid != hold.PID() { // a pooler is in between
		c.limits.Backend = c.pid
	}
}

// watch has the session watched from now on.
func (c *heldConn) watch() { c.hold.Watch(c.limits, c.lost) }

// lost tells the owner of a loss. A pooler that did not keep a session is not trusted any
// more.
func (c *heldConn) lost(loss *connhold.Loss) {
	if loss.Reason == connhold.OtherBackend {
		c.locker.pooler.wrong.Store(true)
	}
	c.owner.lose(loss)
}

// lock waits until nobody else has the connection locked.
func (c *heldConn) lock(ctx context.Context) error {
	select {
	case c.mutex <- struct{}{}: // nearly always
		return nil
	default:
	}
	c.wanted.Add(1)
	defer c.wanted.Add(-1)
	select {
	case c.mutex <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

// lockWithin is lock, and reports false if that takes longer than limit.
func (c *heldConn) lockWithin(limit time.Duration) bool {
	select {
	case c.mutex <- struct{}{}:
		return true
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return c.lock(ctx) == nil
}

func (c *heldConn) isWanted() bool { return c.wanted.Load() > 0 }

func (c *heldConn) unlock() { <-c.mutex }

// beginTx notes that a transaction has the connection locked from now on.
func (c *heldConn) beginTx() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tx = new(txRun)
}

// endTx notes the end of that, and returns why the session was ended under it, or nil.
func (c *heldConn) endTx() *connhold.Loss {
	c.mu.Lock()
	defer c.mu.Unlock()
	run := c.tx
	c.tx = nil
	return run.broken
}

// running returns the transaction that has the connection locked; nil when none has.
func (c *heldConn) running() *txRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tx
}

// breakOff ends the session under a transaction, unless that is over. It reports
// whether this is what ended it.
func (c *heldConn) breakOff(run *txRun, loss *connhold.Loss) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if run == nil || run != c.tx || run.broken != nil {
		return false
	}
	run.broken = loss
	c.hold.Kill() // the hold can't end before the transaction has left
	return true
}
