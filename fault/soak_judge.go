//go:build linux

package fault

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/fault/worker/ledger"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/job/jobtest"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

// Judge waits until what users stored has been delivered, stops the servers, and judges: the role by its program's effects, the queue by the order and the
// end of each key, the job by its runs and the starts its program tells of, the cache by the calls of its source and by whether what users were given
// came from one, the monitor by what its sink was told (see awaitAlarms). It logs what was done.
//
// It does not judge what was written to the shard, which a failover may lose, nor who took it: [JudgeShard] does, in faults of shards. Nor
// does it judge how old a value was, or what pages and events say.
func (u *SoakUsers) Judge() {
	s := u.Soak
	tb := s.tb
	tb.Helper()
	realserver.Eventually(tb, 3*patience, "all that users stored is delivered", u.delivered)
	s.Stop()
	tb.Logf("answered %v", u.did)
	tb.Logf("not answered by any server %v", u.failed)
	for _, kind := range []string{"enqueue", "heartbeat", "cache", "page", "events", "write to the shard"} {
		if u.did[kind] == 0 {
			tb.Errorf("nothing was done: %s", kind)
		}
	}
	violations := slices.Clone(s.Messages.wrong)

	effects, err := ledger.Read(s.ledgerOf("role"), 0)
	if err != nil {
		tb.Fatal(err)
	}
	roles := Judge(Evidence{Effects: effects})
	violations = append(violations, roles.Violations...)

	cached := CacheEvidence{Calls: s.Origin.Calls()}
	for given := range u.values {
		cached.Answers = append(cached.Answers, SoakAnswer(given[0], given[1]))
	}
	calls := JudgeCache(cached)
	violations = append(violations, calls.Violations...)
	violations = append(violations, u.alarms.Violations...)

	onsets := map[string]int{} // messages that said for the first time that a source is down, or is no more
	seen := map[string]bool{}
	for _, t := range s.Sink.Told() {
		if !seen[t.ID] {
			onsets[t.Source+" "+string(t.Status)]++
		}
		seen[t.ID] = true
	}
	tb.Logf("%d effects of the role under %d terms; %d messages came again; %d calls of the source, %d values given; %d outages from end to end, the sink was told of %v",
		len(effects), roles.Findings["r"].Terms, s.Messages.again, calls.Calls, calls.Answered, u.quiet, onsets)
	for _, v := range violations {
		tb.Errorf("VIOLATION %s", v)
	}
	u.judgeJob()
	if u.quiet == 0 || roles.Findings["r"].Terms < 2 {
		tb.Error("nothing was tried")
	}
}

// awaitAlarms has the users go on, now that all is well, until the sink was told of one more outage from end to end, no source that beats stands in alarm,
// and [SoakAlarms] finds nothing wrong; or until that has taken longer than it may on a busy machine. What is wrong then is remembered.
func (u *SoakUsers) awaitAlarms() {
	s := u.Soak
	s.tb.Helper()
	before := u.outages()
	for end := since() + 4*patience; ; <-time.After(time.Second) {
		kept, err := u.keptAlarms() // first: what it has must have been told, and not the other way round
		u.alarms = SoakAlarms(s.Sink.Told(), kept, u.beats.all())
		if u.outages() == before {
			u.alarms.Violations = append(u.alarms.Violations, Violation{Lost, "sick", "all is well, and it has no outage more from end to end"})
		}
		if err == nil && len(u.alarms.Violations) == 0 {
			return
		}
		if since() > end {
			if err != nil {
				s.tb.Errorf("the alarms cannot be read: %v", err)
			}
			return
		}
	}
}

// keptAlarms are those of the check that the store still has.
func (u *SoakUsers) keptAlarms() ([]monitor.Alarm, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := open.Open(ctx, u.Soak.Database.URL, open.Options{})
	if err != nil {
		return nil, err
	}
	defer st.Close()
	return st.(store.Monitors).Monitor().Alarms(ctx, monitor.AlarmQuery{Check: "hb"})
}

// SoakAlarms judges what the sink of a soak was told, by the heartbeats of its sources. kept are alarms of the check that the store still has, those of
// the last minutes: each of them was told. Of others only the messages say anything, so that it is not seen if a sink was told nothing of one.
// Alarms of the job are judged by their order alone.
func SoakAlarms(told []Told, kept []monitor.Alarm, beats []Beaten) MonitorVerdict {
	all := map[string]monitor.Alarm{}
	for _, t := range told {
		a, known := all[t.RequestID]
		if !known {
			a = monitor.Alarm{ID: t.RequestID, Source: t.Source, Started: t.Started, Raised: t.Raised}
		}
		if t.Status == monitor.Abated && t.Ended != nil {
			a.Ended, a.End = *t.Ended, cmp.Or(t.End, monitor.Abated)
		}
		if t.Event == job.Space {
			a.End = monitor.Resume // no heartbeat ends it
		}
		all[a.ID] = a
	}
	for _, a := range kept {
		all[a.ID] = a
	}
	// A server that is stopped, or cut off, may store a heartbeat when it goes on.
	e := MonitorEvidence{Alarms: slices.Collect(maps.Values(all)), Sinks: [][]Told{told}, Beats: beats, Limit: soakMissed * soakCheck, Linger: 2 * patience}
	for i := range soakSteady {
		e.Well = append(e.Well, steadyName(i))
	}
	return JudgeMonitor(e)
}

// SoakAnswer is what a user was given for a key, with the term that the value names: see [Origin].
func SoakAnswer(key, value string) Answer {
	a := Answer{Key: key, Value: value}
	_, _ = fmt.Sscan(value, new(string), &a.Term) // one that cannot be read is of no call
	return a
}

func (u *SoakUsers) delivered() error {
	r := u.Soak.Messages
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, stored := range u.stored {
		// A user who had no answer may have stored one more.
		if last := r.last[key]; last < stored || last > stored+1 {
			return fmt.Errorf("of %s %d are stored, and %d came", key, stored, last)
		}
	}
	return nil
}

func (u *SoakUsers) judgeJob() {
	s := u.Soak
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := open.Open(ctx, s.Database.URL, open.Options{})
	if err != nil {
		s.tb.Fatal(err)
	}
	defer st.Close()
	effects, err := ledger.Read(s.ledgerOf("job"), 0)
	if err != nil {
		s.tb.Fatal(err)
	}
	var e jobtest.Evidence
	jobs := st.(store.Jobs).Jobs()
	if e.Job, _, err = jobs.Get(ctx, "j"); err == nil {
		e.Runs, err = runsOf(ctx, jobs, "j")
	}
	if err == nil {
		e.Starts, err = JobStarts(effects, time.Now().Add(-since()))
	}
	if err != nil {
		s.tb.Fatal(err)
	}
	v := jobtest.Judge(e)
	s.tb.Logf("%d starts of the job, the latest %v after its time; %d runs lost, %d missed", v.Starts, v.Latest.Round(time.Millisecond), v.Lost, v.Missed)
	for _, violation := range v.Violations {
		s.tb.Errorf("VIOLATION %s", violation)
	}
}

// Level reports how what a process takes has grown from the second quarter of its life to the last one, if it has: more than a tenth and 4 MiB of
// memory, or more than 10 descriptors or threads, by the medians. In the first quarter it fills what it keeps.
func Level(uses []Uses) error {
	if len(uses) < 8 {
		return fmt.Errorf("%d samples are too few", len(uses))
	}
	quarter := len(uses) / 4
	before, after := uses[quarter:2*quarter], uses[len(uses)-quarter:]
	for _, c := range []struct {
		what  string
		of    func(Uses) int
		grows int // percent
		and   int
	}{
		{"KiB of memory", func(u Uses) int { return u.KiB }, 10, 4 << 10},
		{"descriptors", func(u Uses) int { return u.Descriptors }, 0, 10},
		{"threads", func(u Uses) int { return u.Tasks }, 0, 10},
	} {
		was, is := medianOf(before, c.of), medianOf(after, c.of)
		if is > was+was*c.grows/100+c.and {
			return fmt.Errorf("it took %d %s, and takes %d", was, c.what, is)
		}
	}
	return nil
}

func medianOf(uses []Uses, of func(Uses) int) int {
	var all []int
	for _, u := range uses {
		all = append(all, of(u))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
