package advisory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// newIdleLocker is a Locker that never asks a server.
func newIdleLocker(limit int) *Locker {
	return &Locker{queues: make(map[lockid.ID]*queue), size: limit, limit: limit}
}

func TestQueue_servesInOrderAndReadersTogether(t *testing.T) {
	t.Parallel()
	l := newIdleLocker(1)
	id := lockid.OfNumber(7)
	turn := func(isShared bool) *waiter {
		return waiterFor(func(w *waiter) { w.turn, w.shared = true, isShared })
	}
	join := func(w *waiter) *queue {
		q, _, err := l.join(id, w)
		require.NoError(t, err)
		return q
	}
	writer, reader, another, last := turn(false), turn(true), turn(true), turn(false)
	q := join(writer)
	first := (<-writer.result).holder
	for _, w := range []*waiter{reader, another, last} {
		join(w)
		require.Empty(t, w.result)
	}
	require.False(t, q.isOpenTo(true), "readers don't overtake a writer")
	l.unhold(targetsOf([]Key{ID(7)}, false), []*holder{first}, nil)
	readers := []*holder{(<-reader.result).holder, (<-another.result).holder}
	require.Empty(t, last.result)
	l.unhold(targetsOf([]Key{ID(7)}, true), readers[:1], nil)
	require.Empty(t, last.result)
	l.unhold(targetsOf([]Key{ID(7)}, true), readers[1:], nil)
	l.unhold(targetsOf([]Key{ID(7)}, false), []*holder{(<-last.result).holder}, nil)
	require.Empty(t, l.queues)
}

func TestQueue_ofACallGivesItsKeysBack(t *testing.T) {
	t.Parallel()
	l := newIdleLocker(1)
	keys := []Key{ID(2), ID(1), ID(2)}
	w := waiterFor(trying)
	w.Targets = targetsOf(keys, false)
	require.Len(t, w.Targets, 2)
	require.NoError(t, l.takeTurns(w))
	require.ErrorIs(t, l.takeTurns(waiterFor(trying, func(w *waiter) { w.Targets = targetsOf(keys[:1], false) })), ErrNotAcquired)
	l.unholdCall(w)
	l.unholdCall(w) // again, which has no effect
	require.Empty(t, l.queues)
}
