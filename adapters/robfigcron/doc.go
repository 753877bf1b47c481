// Package robfigcron lets programs with github.com/robfig/cron/v3 on several hosts share their jobs through a store of Understudy:
// one of them runs a job, and knows the term, the fencing token under which it does.
//
// Change one line, that of all jobs or that of one:
//
//	c := cron.New(cron.WithChain(robfigcron.IfPrimary(candidate, log))) // the instance that holds a role runs all jobs
//	c.AddJob("0 6 * * *", robfigcron.Once(ctx, cfg, report))            // any instance runs this one, once each time
//
// # What is promised
//
// [IfPrimary]: a job starts only while this instance holds the role, which no two instances do at once, and the role is not handed over
// while it runs, up to the stop grace.
//
// [Once]: two starts of a job are at least cfg.Every apart, by the store's clock, on whichever instances. So with Every longer than
// the hosts' clocks differ, and shorter than the shortest time between two of the schedule, each time is started at most once,
// however short the job is. If the instance that runs a job dies, another runs it at its next time, at most two timeouts late.
//
// The context ends before another instance can run the job; the term is greater than all before.
//
// # What is not promised
//
// cron decides by its own host's clock what is due, and does not tell a job the time that it is due. A process that is paused at the due
// time for longer than Every starts the job again. A time at which no instance is up, or holds the role, or at which the instance dies
// that has just acquired the job, is not run. Package job has none of these limits.
//
// A store whose clock is stepped back holds jobs up for as long; in package job, too, a job waits until its latest time comes again.
package robfigcron
