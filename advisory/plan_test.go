package advisory

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/grant"
	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

var anIssue = grant.Issue{Func: "f", Arg: "x"}

func waiterFor(change ...func(*waiter)) *waiter {
	w := newWaiter(ID(7), false, false)
	w.ctx, w.result = context.Background(), make(chan result, 1)
	for _, f := range change {
		f(w)
	}
	return w
}

func trying(w *waiter)  { w.try = true }
func asked(w *waiter)   { w.asked = true }
func shared(w *waiter)  { w.shared = true }
func issued(w *waiter)  { w.Issue = anIssue }
func slotted(w *waiter) { w.semaphore, w.Slots = &Semaphore{limit: 3}, new(lockproto.Slots) }

// What comes next, in every state and for every kind of waiter.
func TestPlan_saysTheNextStep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state  state
		waiter *waiter
		want   step
	}{
		{unconnected, nil, stepFinish},
		{unconnected, waiterFor(), stepConnect},
		{connected, nil, stepFinish},
		{connected, waiterFor(), stepProbe},
		{abandoned, nil, stepResume}, // its answer has to be read whoever waits
		{abandoned, waiterFor(), stepResume},
		{refused, nil, stepFinish},
		{refused, waiterFor(), stepWait},
		{refused, waiterFor(trying, asked), stepRefuse},
		{refused, waiterFor(slotted), stepWait},
		{waiting, nil, stepFinish},
		{waiting, waiterFor(), stepWait},
		{waiting, waiterFor(trying), stepScript}, // the session has its settings already
		{waiting, waiterFor(trying, asked), stepRefuse},
		{parked, nil, stepFinish},
		{parked, waiterFor(), stepPoll},
		{parked, waiterFor(shared), stepWait}, // a writer that left was parked
		{parked, waiterFor(trying), stepScript},
		{parked, waiterFor(trying, asked), stepRefuse},
		{differing, waiterFor(slotted), stepRefuse},
		{granted, nil, stepFinish},
		{granted, waiterFor(), stepGrant},
		{granted, waiterFor(trying, asked), stepGrant},
		{granted, waiterFor(shared), stepRelease},
		{granted, waiterFor(issued), stepScript}, // the grant was for a waiter that left
		{blocked, waiterFor(), stepGrant},        // which needs no receipt
	} {
		a := &attempt{state: c.state}
		got, err := a.plan(c.waiter)
		require.Equal(t, c.want, got, "state %d, %+v", c.state, c.waiter)
		require.Equal(t, c.want == stepRefuse, err != nil)
	}
}

func TestPlan_withAnIssueGrantsOnceItsReceiptIsMade(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state  state
		waiter *waiter
		want   step
	}{
		{granted, waiterFor(issued), stepGrant},
		{blocked, waiterFor(issued), stepScript},
		{blocked, waiterFor(issued, trying, asked), stepRefuse},
		{blocked, nil, stepFinish},
	} {
		a := &attempt{state: c.state, issue: anIssue}
		got, _ := a.plan(c.waiter)
		require.Equal(t, c.want, got, "state %d, %+v", c.state, c.waiter)
	}
}

// A step that its end could not interrupt must not keep a caller.
func TestAcquirer_keepsItsCallerForWhatCanBeInterrupted(t *testing.T) {
	t.Parallel()
	for next, want := range map[step]bool{
		stepConnect: false, stepTry: false, stepGrant: false, stepRefuse: false, stepFinish: false,
		stepProbe: true, stepResume: true, stepScript: true, stepWait: true, stepPoll: true, stepRelease: true,
	} {
		a := &acquirer{caller: waiterFor()}
		require.Equal(t, want, a.mustDetach(next), "step %d", next)
	}
	a := &acquirer{attempt: attempt{state: waiting}, caller: waiterFor()}
	require.True(t, a.mustDetach(stepFinish), "which has to give the settings back")
	a = &acquirer{caller: waiterFor()}
	a.caller.result <- result{}
	require.True(t, a.mustDetach(stepTry), "the caller has its answer")
}

func TestAttempt_replacesADeadConnectionOnlyBeforeAnAnswer(t *testing.T) {
	t.Parallel()
	for s := unconnected; s <= granted; s++ {
		require.Equal(t, s >= refused, s.isAnswered(), "state %d", s)
	}
	require.False(t, isDead(errSettingsChange))
	require.False(t, isDead(ErrStandby))
	require.True(t, isDead(context.Canceled), "of a connection that says no more")
}
