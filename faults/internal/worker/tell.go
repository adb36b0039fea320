//go:build unix

package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// teller writes events, each at once and whole.
type teller struct {
	out    io.Writer
	worker int
	life   int
	ops    atomic.Int64

	mu sync.Mutex // held while a line is written
}

// tell adds who tells it, and when.
func (t *teller) tell(e history.Event) {
	e.Worker, e.Life = t.worker, t.life
	t.mu.Lock()
	defer t.mu.Unlock()
	e.Time = history.Now()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = t.out.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("nobody listens: %v", err))
	}
}

// nextOp names an operation.
func (t *teller) nextOp() string {
	return fmt.Sprintf("%d.%d.%d", t.worker, t.life, t.ops.Add(1))
}

const (
	stallTick = 5 * time.Millisecond
	stallMin  = 8 * time.Millisecond
)

// watchStalls tells when this process was not run for a while: because it was
// stopped, or because the machine had other things to do. What it should have
// noticed meanwhile it can't have.
func (t *teller) watchStalls(ctx context.Context) {
	last := history.Now()
	for more := true; more; {
		more = pause(ctx, stallTick)
		now := history.Now() // no moment is between this and the next
		if now.Sub(last) > stallTick+stallMin {
			t.tell(history.Event{Kind: history.Stall, Since: last})
		}
		last = now
	}
}
