// Package guard runs a program so that it is dead, with everything that it started,
// before a deadline that the guard keeps moving, even when the guard itself is
// stopped or killed.
//
// # How
//
//	guard ── outer watcher ── inner watcher ── program ── what it starts
//
// A watcher is this binary once more ([WatcherArg], [Watch]), in a session of
// its own, with nothing else to do. It reads each new deadline from a pipe.
// The inner watcher supervises the program. It sends SIGTERM to the program and
// all its descendants at deadline − StopGrace, and SIGKILL at deadline − margin,
// where the margin is a fifth of StopGrace, 40 to 500 ms, and half a millisecond
// more for each process that there is to kill. The outer watcher steps in if
// the inner one is stopped or dead: SIGKILL to all below it, at deadline minus
// half the margin. Both are subreapers: a process whose parent has died
// becomes the watcher's child, in whatever session and process group it is, so
// that nothing a program can do by forking gets it out from under them. A watcher
// has finished when the kernel says that it has no child left.
//
// Both watchers give themselves the highest priority where they are allowed to (as
// root), so that a busy host does not make them late; each of them and the program
// has a session of its own. Elsewhere a host on which a process waits for the
// processor for longer than half the margin can make them late.
//
// A program goes through three states: running; stopping (SIGTERM, and SIGCONT in case
// it is stopped); killed. It is stopped when the deadline nears, on [Process.Stop], when the guard is gone, and when the program has
// ended and left others behind. Then it has StopGrace, or until deadline − margin if
// that is sooner.
//
// When the guard is gone and the watchers have ended everything, the outer one does what the guard left it to do
// ([Afterwards]): a role is released then, and does not wait for its session to lapse.
//
// # Who decides what
//
//	plan.go     when to terminate and when to kill: the margins. Pure.
//	watcher.go  the watcher process: orders in, signals out, reports back
//	process.go  the guard's side: start, extend, stop, wait
//	collect.go  how the program ended, from what the watchers reported
//	tree_*.go   finding and killing descendants, per operating system
//
// # What it promises, on Linux
//
//   - After [Process.Wait] has returned without [ErrEscaped], nothing that was
//     started is alive.
//   - At the deadline nothing that was started is alive, if any one watcher
//     could run during the margin, whatever happened to the others and to the guard.
//   - A guard that was killed takes the program with it: at once, within
//     StopGrace, and never past the last deadline.
//   - Deadlines are readings of [lease.BootClock]: a suspended host comes back
//     and stops what is due at once.
//   - The guard's process is not a subreaper and waits for its watcher alone: it
//     does not touch other children of the process, and several guarded programs
//     do not interfere.
//
// # What it does not promise
//
//   - Anything when both watchers are stopped or killed at the same time. The
//     program itself has a parent-death signal for the latter.
//   - Anything about work that the program hands to processes that are not its
//     descendants (a container engine, systemd-run, cron, another host).
//   - That a descendant with another user's rights can be killed by a guard
//     without root's. The watcher continues trying, and Wait continues waiting.
//   - That a process inside an uninterruptible system call is reaped in time. It
//     runs no more instructions of its own once it has been killed.
//   - That a host that was suspended, or a virtual machine that was paused, past
//     the deadline comes back with the program dead: it runs on for the
//     milliseconds that the watcher needs. That is what the term is for.
//   - That it stops an endless fork bomb. A process group is killed in one call
//     and so cannot outrun it; groups that multiply faster than a watcher gets
//     processor time can, unless a limit on processes holds them.
//
// On macOS, FreeBSD and OpenBSD there is one watcher, which kills the program's process
// group only, and which does nothing while it is stopped. Elsewhere the package does
// not compile.
//
// # How it fails
//
// A program that cannot be started is a [StartError] with the code that a shell
// would exit with. A watcher that died or was stopped costs the program its life
// and is reported as [WatcherLost]. If both are lost, Wait returns [ErrEscaped].
// Sending an order to a watcher never blocks: a watcher that does not read keeps the
// deadline that it knows.
package guard
