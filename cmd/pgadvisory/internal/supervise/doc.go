// Package supervise runs a command that must not outlive a lock, nor the process
// that holds it.
//
// # On Unix
//
//	pgadvisory --- pipe ---> watchdog (leads the group)
//	    |                        command
//	    +----- starts ---------> what it starts
//
// A watchdog, which is this binary once more, is started first. It leads a
// process group, ignores all signals, and reads a pipe whose only write end
// pgadvisory has. The command is started into that group: there is no moment in
// which it runs without a watchdog. When pgadvisory ends, in whatever way, the
// kernel closes the pipe, and the watchdog kills the group with SIGKILL, itself
// included. That is also when the kernel closes the connection and the server
// frees the lock.
//
// On Linux the command is killed with pgadvisory by the kernel as well
// (PR_SET_PDEATHSIG), should the watchdog be killed first.
//
// When the lock is lost the group gets SIGTERM, and SIGKILL after the grace.
// When the command ends, what is left in its group ends in the same way, before
// [Group.Run] returns: the caller unlocks after that.
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
