// Package gocron lets schedulers of github.com/go-co-op/gocron/v2 on several hosts share their jobs through a store of Understudy:
// one of them runs a job, and knows the term, the fencing token under which it does.
//
// Change one line, the scheduler's:
//
//	gocron.NewScheduler(gocron.WithDistributedElector(elector)) // the instance that holds a role runs all jobs
//	gocron.NewScheduler(gocron.WithDistributedLocker(locker))   // any instance runs a job, one at a time
//
// # What is promised
//
// [Elector]: a job starts only while this instance holds the role, which no two instances do at once. Work that goes through
// [elect.Candidate.RunIfPrimary] has a context that ends before another instance can hold the role, and a term greater than all before.
//
// [Locker]: two starts of a job are at least Every apart, by the store's clock, on whichever instances. So with Every longer than
// the hosts' clocks differ, and shorter than the job's period, each time is started at most once, however short the job is. The
// lock is not released early to hold for so long: the store keeps when it was taken. If the instance that runs a job dies, another
// runs it at its next time, at most two timeouts late.
//
// # What is not promised
//
// gocron decides by its own host's clock what is due, and tells a lock the name of the job, not the time that it is due. A process
// that is paused at the due time for longer than Every starts the job again. A time at which no instance is up, or
// holds the role, or at which the instance dies that has just taken the lock, is not run. Package job has none of these limits.
//
// A store whose clock is stepped back holds jobs up for as long; in package job, too, a job waits until its latest time comes again.
//
// gocron does not stop a job whose lock or role is lost: only work with a context of ours learns of it.
package gocron
