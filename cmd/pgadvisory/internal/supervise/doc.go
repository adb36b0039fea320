// Package supervise runs a command that must not outlive a lock, nor the process
// that holds it.
//
// # On Unix
//
//	pgadvisory --- socket --> watchdog (leads the group)
//	    |                         command
//	    +----- starts ----------> what it starts
//
// A watchdog, which is this binary once more, is started first. It leads a
// process group, ignores all signals, and reads a socket whose other end only
// pgadvisory has. The command is started into that group: there is no moment in
// which it runs without a watchdog. When pgadvisory ends, in whatever way, the
// kernel closes that end, and the watchdog kills the group with SIGKILL.
//
// [Group.Hold] gives the watchdog the connection as well. The watchdog closes it
// only when nobody is left in the group, so that the server does not free the
// lock before.
//
// On Linux the command is killed with pgadvisory by the kernel as well
// (PR_SET_PDEATHSIG), should the watchdog be killed first.
//
// When the lock is lost the group gets SIGTERM, and SIGKILL after the grace.
// When the command ends, what is left in its group ends in the same way, before
// [Group.Run] returns: the caller unlocks after that.
//
// A process that has changed its user ids can't be signalled, unless pgadvisory
// is root's. [Group.Run] says so and waits until that process ends by itself, and
// so does a watchdog that was left alone. This needs Linux and its /proc.
//
// What leaves the group, by setsid or setpgid as daemons do, is out of reach.
//
// # On Windows
//
// This process puts itself into a job that ends with it; what it starts is in
// the job too. There is no SIGTERM: the command is terminated at once.
//
// # Not here
//
// Nothing here knows of locks. That one is lost is told by a channel.
package supervise
