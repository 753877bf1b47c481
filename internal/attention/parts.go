package attention

import (
	"cmp"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/monitor"
)

// oldMessage is how long the oldest message of a queue may wait before that is worth a line.
const oldMessage = 5 * time.Minute

// Role judges a role.
func Role(r elect.Role) []Need {
	if len(r.Primary) > 0 {
		return nil
	}
	const see = "docs/runbook.md#understudyrolevacant"
	vacant := "vacant for " + inWords(r.VacantFor)
	waits := fmt.Sprintf("%s, %d wait", vacant, len(r.Standbys))
	switch {
	case len(r.Standbys) == 0:
		vacant += ", no standby"
		return []Need{need(Warn, "role", r.Name, "%s: start an instance that campaigns for it", vacant).unheld(vacant).
			withAdvice(see, "run: understudy role run %s -- COMMAND, or roles: in the server's file", r.Name)}
	case min(r.VacantFor, r.StandbyFor) > r.Takeover:
		return []Need{need(Bad, "role", r.Name, "%s, though %d wait for it", vacant, len(r.Standbys)).unheld(waits).
			withAdvice(see, "read the log of %s: does it reach the store, and is the role that it is held with held there?", r.Standbys[0].Name)}
	default:
		return []Need{need(Warn, "role", r.Name, "changes hands: %s", vacant).unheld(waits).minor().
			withAdvice(see, "ask again in %v", r.Takeover)}
	}
}

// Queue judges a queue with the first of its blocked and refused keys, as far as they were read.
func Queue(q apitype.Queue) (out []Need) {
	add := func(n Need) { out = append(out, n) }
	oldest := time.Duration(q.OldestMS) * time.Millisecond
	undelivered := ""
	switch {
	case len(q.Holders) > 0:
	case q.Depth > 0:
		undelivered = fmt.Sprintf("%d waiting, no instance delivers", q.Depth)
	case q.Scheduled > 0 && oldest > time.Second: // instances need a moment, too
		undelivered = fmt.Sprintf("a scheduled message is overdue for %s, no instance delivers", inWords(oldest))
	}
	if undelivered != "" {
		add(need(Bad, "queue", q.Queue, "%s: start an instance that has this queue", undelivered).unheld(undelivered).
			withAdvice("docs/runbook.md#understudyqueueundelivered", "run: understudy queue run %s …, or queues: in the server's file", q.Queue))
	}
	const blocked, decide = "docs/runbook.md#understudyqueueblocked", "run: understudy queue keys %s --blocked; then queue retry or queue skip"
	for _, k := range q.BlockedKeys {
		add(need(Bad, "queue", q.Queue, "Blocked: %s", cmp.Or(k.Reason, "no reason was given")).of(k.Key, k.Head).withAdvice(blocked, decide, q.Queue))
	}
	if q.Blocked > 0 && len(q.BlockedKeys) == 0 {
		add(need(Bad, "queue", q.Queue, "%s blocked", termtext.Count(q.Blocked, "key")).withAdvice(blocked, decide, q.Queue))
	}
	if q.DeadLetters > 0 {
		add(need(Warn, "queue", q.Queue, "%s dead-lettered (invalid or failed): list them by their state, and retry them, until they are pruned", termtext.Count(q.DeadLetters, "message")).
			withAdvice("docs/dispatch.md#operating", "run: understudy queue list %[1]s --state failed, or --state invalid; then queue retry --state failed %[1]s", q.Queue))
	}
	for _, k := range q.RefusedKeys {
		add(need(Bad, "queue", q.Queue, "Its target refuses it: %s", k.Reason).of(k.Key, k.Head).
			withAdvice(blocked, "fix the target; or give the message up: understudy queue skip %s --queue %s", k.Head, q.Queue))
	}
	if undelivered == "" && q.Blocked == 0 && oldest > oldMessage {
		add(need(Warn, "queue", q.Queue, "the oldest message waits for %s", inWords(oldest)).minor().
			withAdvice("docs/runbook.md#understudyqueueslow", "run: understudy queue keys %s; it tells what each waits for", q.Queue))
	}
	return out
}

// Job judges a job. Until its next good run it needs attention. hasSinks: the store's monitor has some, which get its alarm.
func Job(j job.Job, now time.Time, hasSinks bool) (out []Need) {
	a := j.Alarm
	if since, overdue := j.OverdueSince(now); overdue {
		what := "overdue for " + inWords(now.Sub(since)) + ": no instance that offers it runs"
		out = append(out, need(Bad, job.Space, j.Name, "%s", what).unheld(what).withAdvice("docs/runbook.md#understudyjoboverdue",
			"start an instance that offers it: understudy job run %[1]s …, or jobs: in the server's file; or give it up: understudy job forget %[1]s", j.Name))
	} else if a.Stands() {
		run := a.Again
		if run.State == "" {
			run = job.Run{Scheduled: a.Scheduled, State: a.Reason, Why: a.Why}
		}
		out = append(out, need(Warn, job.Space, j.Name, "the run of %s is %s: %s", run.Scheduled.UTC().Format(time.RFC3339), run.State, run.Why).
			withAdvice("docs/runbook.md#understudyjobfailed", "run: understudy job runs %[1]s, and job logs %[1]s; a good run ends this: understudy job trigger %[1]s", j.Name))
	}
	if isSetBack(j, now) {
		out = append(out, need(Warn, job.Space, j.Name, "the store's clock was set back: it does not run before %s", j.Next.UTC().Format(time.RFC3339)).
			withAdvice("docs/job.md#runs", "run it once: understudy job trigger %[1]s; or, while no alarm of it is open, understudy job forget %[1]s: the instances that offer it add it again", j.Name))
	}
	if a.Stands() && !a.Sent && j.Definition.AlarmURL == "" && !hasSinks {
		out = append(out, need(Warn, job.Space, j.Name, "its alarm is sent to no one: no sink is set").minor().
			withAdvice("docs/sinks.md", "start the job with --alarm URL, or give the monitor a sink"))
	}
	return out
}

// isSetBack reports whether the store's clock was set back so far that it shows times of the job again. They do not run a second time.
func isSetBack(j job.Job, now time.Time) bool {
	if j.Decided.Sub(now) <= job.OverdueAfter || j.Next.IsZero() || j.PausedBy != "" {
		return false
	}
	again := j.Upcoming(now, 1)
	return len(again) > 0 && again[0].Before(j.Decided) // the latest alone has run, and is not due again
}

// Monitor judges what keeps the monitor from noticing silence, or from telling anyone; not what it has noticed.
func Monitor(m apitype.Monitor) (out []Need) {
	if len(m.Checks)+len(m.Members) == 0 {
		return nil
	}
	add := func(n Need) { out = append(out, n) }
	owned, delivered := 0, map[string]bool{}
	for _, member := range m.Members {
		owned += member.Partitions
		for _, s := range member.Sinks {
			delivered[s] = true
		}
	}
	if owned < monitor.Partitions && len(m.Checks) > 0 { // without a check there is no silence to notice
		what := fmt.Sprintf("no instance watches %d of the %d partitions of sources", monitor.Partitions-owned, monitor.Partitions)
		add(need(Bad, "monitor", "", "%s: silence in them is not noticed", what).unheld(what).
			withAdvice("docs/runbook.md#understudymonitorunwatched", "start an instance with the monitor; after a start or a crash ask again in a few seconds"))
	}
	if m.ConfigError != "" {
		add(need(Bad, "monitor", "", "The configuration was refused: %s", m.ConfigError).
			withAdvice("docs/runbook.md#understudymonitorconfigrefused", "fix it, and check it with: understudy monitor config check FILE"))
	}
	for _, p := range m.Paths {
		if p.Working {
			continue
		}
		blind := "blind"
		if p.QuietMS != nil {
			blind += " for " + inWords(time.Duration(*p.QuietMS)*time.Millisecond)
		}
		add(need(Bad, "monitor", p.Path, "%s: sources that beat by this path cannot be alarmed", blind).
			withAdvice("docs/runbook.md#understudymonitorblind", "see to it, or give it up: understudy monitor path remove %s", p.Path))
	}
	for _, s := range m.Sinks {
		if !delivered[s] {
			add(need(Bad, "monitor", s, "no instance delivers to this sink: its alarms wait").
				withAdvice("docs/runbook.md#understudyalarmsundelivered", "configure it on an instance, or give it up: understudy monitor sink remove %s", s))
		}
	}
	if len(m.Sinks) == 0 {
		add(need(Warn, "monitor", "", "there is no sink: alarms are shown, but sent to no one").minor().
			withAdvice("docs/sinks.md", "add sinks: to the server's file, or --webhook and the like to monitor run"))
	}
	return out
}

// Cache judges a peer of a cache, and how it sees the others.
func Cache(c apitype.CacheCluster) (out []Need) {
	add := func(n Need) { out = append(out, n) }
	switch {
	case c.Partitioned:
		what := fmt.Sprintf("alone: it reaches %d of the %d members that are a majority", c.Connected, c.Majority)
		add(need(Bad, "cache", c.Self, "%s, and may fetch nothing", what).unheld(what).
			withAdvice("docs/runbook.md#understudycachepartitioned", "start the others, or see to the network between them"))
	case !c.Member:
		what := "this peer is not a member: it gives what it has, and does not fetch"
		add(need(Warn, "cache", c.Self, "%s", what).unheld(what).
			withAdvice("docs/cache.md#members", "add this peer to the list of every other peer, one at a time, and reload"))
	}
	if c.Trouble != "" {
		add(need(Warn, "cache", c.Self, "%s", c.Trouble).withAdvice("docs/cache.md#when-things-go-wrong", "see there"))
	}
	for _, p := range c.Peers {
		if !p.Self && p.Link != "up" {
			add(need(Warn, "cache", c.Self, "the link to %s is %s", p.URL, p.Link).minor().
				withAdvice("docs/runbook.md#understudycachelinkdown", "is that peer running?"))
		}
	}
	return out
}
