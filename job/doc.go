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
// the next holder claims the same time. One that dies after it leaves a run that may or may not have ended: the next holder
// records it as lost. A run that was claimed and could not be started is queued again. The next holder has the lease only after the trust of
// the one before has ended, and with it the work.
//
//	queued ──► running ──► succeeded, failed, timed_out, cancelled, lost
//	   ▲          │
//	   └──────────┘ only with Retries
//	missed, skipped: not started
//
// A job that does not run as it should has one alarm, until the next good run. It is kept with the job until its sinks know of its start and of
// its end, each at least once: [WatchAlarms].
//
// All decisions are pure functions of the job and the store's clock, which stores apply one at a time.
//
// # Who decides what
//
//	decide.go  what becomes of a scheduled time and of its run. Claim decides what a holder does next: run it, queue it, skip
//	           it or pass over it (decideOverdue), after a run that its holder left behind (lose, retry). Pure
//	result.go  what becomes of a run that has ended, and of one that was claimed and not started. Pure
//	act.go     what an operator, or a definition, changes of a job. Pure
//	alarm.go   when a job has an alarm, and when that ends. Pure
//	run.go     Serve: which jobs this instance attends to, and when it contends for the lease of one
//	define.go  which of its jobs the store has, at the start and later
//	hold.go    one run under the lease: claim, work, result; what happens when the next time comes meanwhile
//	acquirer.go  the claim in one transaction with the lease, the result in one with its release
//	duelist.go   what is due, read once for many jobs
//	tail.go      the end of a run's output
//	watch.go   WatchAlarms: sends alarms, and records the runs of hosts that died
//	store.go   the port to the store
//
// # Where to add an option
//
// A rule of a job is a field of [Definition], with its bounds in Validate; stores keep it as JSON; decide.go follows it. Its key, flag and help
// are a field of Job in internal/settings/job.go, whose method Definition copies it; the API takes and shows it by api/apitype/job.go,
// api/jobrun.go and api/jobs.go (then: go test ./api -run TestOpenAPI -update), the page by web/runs.js. A line of
// internal/settings/example.yaml, then: go test ./internal/settings -run TestReference -update.
//
// # What it does not promise
//
// Whether a lost run has ended, or was started at all: its instance died with the answer. That a store which is put back from a backup
// remembers the runs since: with [MissedOne] the job runs again for the latest of their times, with [MissedAll] for all of the last 24
// hours. That a job runs at the times that the store's clock shows again after it was stepped back: they have their runs, or were missed, and
// [Job.Next] is the first time after them. That work which outlives its context for longer than the stop grace
// has ended before the next run starts: see [Config.Overrun].
package job
