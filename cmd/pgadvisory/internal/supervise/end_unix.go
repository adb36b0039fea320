//go:build unix

package supervise

import (
	"fmt"
	"syscall"
	"time"
)

// empty ends what the command has left in its group, so that nobody works
// without the lock once that is given back. For as long as one is left that it
// may not signal it waits.
func (r *run) empty() {
	r.dismiss()
	for pause := pollInterval; r.occupied(); r.reap() {
		if r.killed {
			r.sweep() // who was started meanwhile
		}
		if !r.ending {
			r.command.Log("the command has left processes behind: they get SIGTERM, and SIGKILL in " + r.command.Grace.String())
			r.endGroup()
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, slowPollInterval)
		case sig := <-r.signals:
			r.forward(sig)
		case sig := <-r.others:
			r.forward(sig)
		case <-r.due():
			switch {
			case !r.killed:
				r.killGroup()
			case r.awaitsRefused():
			default:
				r.command.Log("what the command has left does not end by SIGKILL; not waiting any longer")
				return
			}
		}
	}
}

// dismiss has the watchdog leave the group, so that it can be seen who else is in
// it, and so that it survives when all others are killed.
func (r *run) dismiss() {
	if r.asked || r.group.gone {
		return
	}
	r.asked = true
	_ = syscall.Kill(r.group.id, syscall.SIGCONT) // it may have been stopped with the group
	r.left = r.group.order(leave) == nil && r.group.expect(leave) == nil
}

// occupied reports whether anybody but the watchdog is in the group.
func (r *run) occupied() bool {
	if !r.left && !r.group.gone {
		if all, ok := members(r.group.id, r.group.id); ok {
			return len(all) > 0
		}
		r.dropWatchdog() // or it would look like one of those who are left
	}
	if syscall.Kill(-r.group.id, 0) == syscall.ESRCH {
		return false
	}
	all, ok := members(r.group.id, r.group.id)
	return !ok || len(all) > 0
}

// dropWatchdog ends a watchdog that can't leave the group.
func (r *run) dropWatchdog() {
	_ = syscall.Kill(r.group.id, syscall.SIGKILL)
	for !r.group.gone {
		_, err := syscall.Wait4(r.group.id, nil, 0, nil)
		r.group.gone = err != syscall.EINTR
	}
}

// endGroup tells all to end, also those that are stopped, and sets the deadline.
func (r *run) endGroup() {
	r.signalGroup(syscall.SIGTERM)
	r.signalGroup(syscall.SIGCONT)
	r.tellRefused()
	r.ending, r.deadline = true, time.NewTimer(r.command.Grace)
}

// killGroup kills all and sets the deadline for giving up.
func (r *run) killGroup() {
	r.dismiss()
	r.sweep()
	r.tellRefused()
	r.killed, r.deadline = true, time.NewTimer(killLimit)
}

// sweep sends SIGKILL to all but the watchdog, which is needed for as long as one
// is left.
func (r *run) sweep() {
	all, ok := members(r.group.id, r.group.id)
	if r.left || r.group.gone || !ok {
		r.signalGroup(syscall.SIGKILL)
		return
	}
	for _, m := range all {
		m.kill(r.group.id)
	}
}

// awaitsRefused reports whether one is left that this process may not signal, and
// sets no deadline for that one.
func (r *run) awaitsRefused() bool {
	r.deadline = nil
	for _, m := range r.members() {
		if refuses(m.pid) {
			r.command.Log(fmt.Sprintf("waiting for the end of %v, which can't be killed", m))
			return true
		}
	}
	return false
}

// members are those in the group, or the command if it can't be told who is.
func (r *run) members() []member {
	all, ok := members(r.group.id, r.group.id)
	if !ok && !r.ended {
		all = []member{{pid: r.child, name: r.command.Args[0]}}
	}
	return all
}

// tellRefused says, once of each, who can't be signalled, and what that means.
func (r *run) tellRefused() {
	for _, m := range r.members() {
		if r.refusing[m.pid] || !refuses(m.pid) {
			continue
		}
		if r.refusing == nil {
			r.refusing = make(map[int]bool)
		}
		r.refusing[m.pid] = true
		consequence := "the lock stays held until that process has ended by itself"
		if r.result.Lost {
			consequence = "it works on without the lock until it ends by itself"
		}
		r.command.Log(fmt.Sprintf("%v runs as another user, and pgadvisory may not signal it: %s", m, consequence))
	}
}

// due is told when the deadline has come.
func (r *run) due() <-chan time.Time {
	if r.deadline == nil {
		return nil
	}
	return r.deadline.C
}
