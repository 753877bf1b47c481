// Package job runs work on a schedule, on one of the instances that offer it: cron that survives its host.
//
// # What it promises
//
// Each scheduled time has one run, and a run is started at most once, whatever dies, unless the job declares with Retries
// that repeating it is safe. What is due is decided by the store's clock. A time that passes while no instance is there is
// missed: it has a row that says so, and the definition says whether it runs late. Each run carries a term, the fencing
// token of the job's lease.
//
// # How
//
// The instance that runs a job holds its lease. It writes the run down as running, under the lease's term, before it starts
// the work, and the result after the work has ended. So a holder that dies before the first of them has started nothing, and
// the next holder claims the same time, as it does what was claimed and given back; one that dies after it leaves a run that may or may not have ended: the next holder
// records it as lost. The next holder has the lease only after the trust of the one before has ended, and with it the work.
//
//	queued ──► running ──► succeeded, failed, timed_out, cancelled, lost
//	   ▲          │
//	   └──────────┘ only with Retries
//	missed, skipped: not started
//
// A job that does not run as it should has one alarm, until the next good run. It is kept with the job until its sinks know of its start and of
// its end, each at least once: [WatchAlarms].
//
// All decisions are pure functions of the job and the store's clock (decide.go), which stores apply one at a time.
//
// # What it does not promise
//
// That a lost run has ended, has not, or has even been started: its instance died with the answer, and a write more before each start would be
// needed to tell. That a store which is put back from a backup
// remembers the runs since: with [MissedOne] the job runs again for the latest of their times, with [MissedAll] for all of the last 24
// hours. That work which outlives its context for longer than the stop grace
// has ended before the next run starts: see [Config.Overrun].
package job
