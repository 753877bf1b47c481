package attention

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
)

// text is a need in one line: what only the doctor shows is in brackets, and why its subject is not held is behind a bar.
func text(n Need) string {
	out := n.Severity + " " + strings.TrimSpace(n.Subject+" "+n.Item) + ": " + n.What
	if n.Minor {
		out = "(" + out + ")"
	}
	if n.Unheld != "" {
		out += " | " + n.Unheld
	}
	return out
}

// judgement is what a judge says, and what it must say.
type judgement struct {
	name string
	got  []Need
	want []string
}

func TestJudges(t *testing.T) {
	all := map[string][]judgement{"role": roles(), "queue": queues(), "job": jobs(), "monitor": monitors(), "cache": peers(), "shard": nil}
	for _, c := range shards() {
		alarm, got := Shard(c.shard)
		if alarm != c.alarm {
			t.Errorf("shard, %s: alarm %d, want %d", c.name, alarm, c.alarm)
		}
		all["shard"] = append(all["shard"], judgement{c.name, got, c.want})
	}
	for part, judgements := range all {
		for _, c := range judgements {
			var got []string
			for _, n := range c.got {
				got = append(got, text(n))
				if n.Part != part || n.Do == "" || n.See == "" || strings.Contains(n.Do, "%!") {
					t.Errorf("%s, %s: of another part, or without advice: %+v", part, c.name, n)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", part, c.name, diff)
			}
		}
	}
}

func roles() []judgement {
	standbys := []elect.Standby{{Name: "web-2"}}
	role := func(r elect.Role) []Need {
		r.Name, r.Takeover = "billing", 6*time.Second
		return Role(r)
	}
	return []judgement{
		{"held", role(elect.Role{Primary: []elect.Primary{{}}}), nil},
		{"no standby", role(elect.Role{VacantFor: 90 * time.Second}),
			[]string{"warn billing: vacant for 1 min, no standby: start an instance that campaigns for it | vacant for 1 min, no standby"}},
		{"changes hands", role(elect.Role{VacantFor: 6 * time.Second, StandbyFor: time.Hour, Standbys: standbys}),
			[]string{"(warn billing: changes hands: vacant for 6 s) | vacant for 6 s, 1 wait"}},
		{"a standby has just started", role(elect.Role{VacantFor: 3 * time.Hour, StandbyFor: 6 * time.Second, Standbys: standbys}),
			[]string{"(warn billing: changes hands: vacant for 3 h 0 min) | vacant for 3 h 0 min, 1 wait"}},
		{"a standby does not take over", role(elect.Role{VacantFor: 7 * time.Second, StandbyFor: 7 * time.Second, Standbys: standbys}),
			[]string{"bad billing: vacant for 7 s, though 1 wait for it | vacant for 7 s, 1 wait"}},
	}
}

func queues() []judgement {
	held := []apitype.Holder{{}}
	queue := func(q apitype.Queue) []Need {
		q.Queue = "orders"
		return Queue(q)
	}
	key := []apitype.Key{{Key: "a", Head: "a0", Reason: "no such account"}}
	return []judgement{
		{"nothing to do", queue(apitype.Queue{}), nil},
		{"at work", queue(apitype.Queue{Depth: 3, OldestMS: 1000, Holders: held}), nil},
		{"no instance", queue(apitype.Queue{Depth: 3, OldestMS: 3_600_000}),
			[]string{"bad orders: 3 waiting, no instance delivers: start an instance that has this queue | 3 waiting, no instance delivers"}},
		{"scheduled, not yet due", queue(apitype.Queue{Scheduled: 1}), nil},
		{"scheduled, just due", queue(apitype.Queue{Scheduled: 1, OldestMS: 1000}), nil},
		{"scheduled, overdue", queue(apitype.Queue{Scheduled: 1, OldestMS: 5000}),
			[]string{"bad orders: a scheduled message is overdue for 5 s, no instance delivers: start an instance that has this queue | a scheduled message is overdue for 5 s, no instance delivers"}},
		{"scheduled, overdue, delivered", queue(apitype.Queue{Scheduled: 1, OldestMS: 5000, Holders: held}), nil},
		{"blocked", queue(apitype.Queue{Depth: 3, Blocked: 1, OldestMS: 3_600_000, BlockedKeys: key, Holders: held}), []string{"bad orders a: Blocked: no such account"}},
		{"blocked, keys not read", queue(apitype.Queue{Depth: 3, Blocked: 2, Holders: held}), []string{"bad orders: 2 keys blocked"}},
		{"refused", queue(apitype.Queue{Depth: 3, Delayed: 1, RefusedKeys: key, Holders: held}), []string{"bad orders a: Its target refuses it: no such account"}},
		{"dead letters", queue(apitype.Queue{DeadLetters: 2}),
			[]string{"warn orders: 2 messages dead-lettered (invalid or failed): list them by their state, and retry them, until they are pruned"}},
		{"slow", queue(apitype.Queue{Depth: 3, OldestMS: 3_600_000, Holders: held}), []string{"(warn orders: the oldest message waits for 1 h 0 min)"}},
	}
}

func jobs() []judgement {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	failed := job.Alarm{ID: "a", Reason: job.Failed, Why: "exit code 3", Scheduled: now, Raised: now}
	sent := failed
	sent.Sent = true
	judge := func(j job.Job, hasSinks bool) []Need {
		j.Name = "backup"
		return Job(j, now, hasSinks)
	}
	late := job.Job{Next: now.Add(-time.Hour)}
	setBack := func(hours time.Duration) job.Job {
		decided := now.Add(hours * time.Hour)
		return job.Job{Definition: job.Definition{Schedule: "@hourly"}, Decided: decided, Next: decided.Add(time.Hour)}
	}
	const (
		overdue = "overdue for 1 h 0 min: no instance that offers it runs"
		run     = "warn backup: the run of 2026-01-02T03:00:00Z is failed: exit code 3"
		noSink  = "(warn backup: its alarm is sent to no one: no sink is set)"
	)
	return []judgement{
		{"on time", judge(job.Job{Next: now.Add(time.Hour)}, false), nil},
		{"overdue", judge(late, false), []string{"bad backup: " + overdue + " | " + overdue}},
		{"overdue, paused", judge(job.Job{Next: late.Next, PausedBy: "ann"}, false), nil},
		{"the clock was set back", judge(setBack(2), false), []string{"warn backup: the store's clock was set back: it does not run before 2026-01-02T06:00:00Z"}},
		{"the clock was set back, and it has run", judge(setBack(1), false), nil},
		{"overdue, not sent", judge(job.Job{Next: late.Next, Alarm: failed}, false), []string{"bad backup: " + overdue + " | " + overdue, noSink}},
		{"failed, not sent", judge(job.Job{Alarm: failed}, false), []string{run, noSink}},
		{"failed, on its way", judge(job.Job{Alarm: failed}, true), []string{run}},
		{"failed, sent", judge(job.Job{Alarm: sent}, false), []string{run}},
		{"failed, a webhook", judge(job.Job{Alarm: failed, Definition: job.Definition{AlarmURL: "http://x"}}, false), []string{run}},
	}
}

func monitors() []judgement {
	judge := func(change func(*apitype.Monitor)) []Need {
		m := apitype.Monitor{
			Checks: []apitype.CheckCount{{}}, Paths: []apitype.Path{{Path: "http", Working: true}}, Sinks: []string{"ops"},
			Members: []apitype.MonitorMember{{Partitions: monitor.Partitions - 1, Sinks: []string{"ops"}}, {Partitions: 1}},
		}
		change(&m)
		return Monitor(m)
	}
	const unwatched = "no instance watches 1 of the 64 partitions of sources"
	return []judgement{
		{"well", judge(func(*apitype.Monitor) {}), nil},
		{"not in use", judge(func(m *apitype.Monitor) { *m = apitype.Monitor{} }), nil},
		{"not watched", judge(func(m *apitype.Monitor) { m.Members = m.Members[:1] }), []string{"bad : " + unwatched + ": silence in them is not noticed | " + unwatched}},
		{"not watched, without checks", judge(func(m *apitype.Monitor) { m.Checks, m.Members = nil, m.Members[:1] }), nil},
		{"blind", judge(func(m *apitype.Monitor) { m.Paths[0] = apitype.Path{Path: "http", QuietMS: new(int64(90_000))} }),
			[]string{"bad http: blind for 1 min: sources that beat by this path cannot be alarmed"}},
		{"never seen", judge(func(m *apitype.Monitor) { m.Paths[0] = apitype.Path{Path: "http"} }), []string{"bad http: blind: sources that beat by this path cannot be alarmed"}},
		{"refused", judge(func(m *apitype.Monitor) { m.ConfigError = "line 3" }), []string{"bad : The configuration was refused: line 3"}},
		{"a sink without an instance", judge(func(m *apitype.Monitor) { m.Sinks = []string{"ops", "mail"} }), []string{"bad mail: no instance delivers to this sink: its alarms wait"}},
		{"no sink", judge(func(m *apitype.Monitor) { m.Sinks = nil }), []string{"(warn : there is no sink: alarms are shown, but sent to no one)"}},
	}
}

func peers() []judgement {
	others := []apitype.CachePeer{{Self: true}, {URL: "tcp://b:1", Link: "up"}}
	const alone, outside = "alone: it reaches 1 of the 2 members that are a majority", "this peer is not a member: it gives what it has, and does not fetch"
	return []judgement{
		{"a member", Cache(apitype.CacheCluster{Self: "a", Member: true, Peers: others}), nil},
		{"alone", Cache(apitype.CacheCluster{Self: "a", Member: true, Partitioned: true, Majority: 2, Connected: 1, Peers: others}),
			[]string{"bad a: " + alone + ", and may fetch nothing | " + alone}},
		{"waits to be added", Cache(apitype.CacheCluster{Self: "a", Peers: others}), []string{"warn a: " + outside + " | " + outside}},
		{"a link is down", Cache(apitype.CacheCluster{Self: "a", Member: true, Peers: []apitype.CachePeer{{URL: "tcp://b:1", Link: "down"}}}), []string{"(warn a: the link to tcp://b:1 is down)"}},
		{"trouble", Cache(apitype.CacheCluster{Self: "a", Member: true, Trouble: "clocks differ", Peers: others}), []string{"warn a: clocks differ"}},
	}
}

// shardCase is a shard that differs from one that is well.
type shardCase struct {
	name  string
	shard apitype.Shard
	alarm int
	want  []string
}

func shards() (out []shardCase) {
	replica := func() apitype.ShardNode {
		return apitype.ShardNode{Address: "b:1", Role: string(shard.Replica), Condition: string(shard.Up), Member: true, AgentLives: true, InStep: true, LinkUp: new(true), Priority: 100, Version: "7.2"}
	}
	is := func(name string, alarm int, change func(*apitype.Shard), want ...string) {
		s := apitype.Shard{Name: "orders", Health: string(shard.Fine), Reason: "because", Primary: &apitype.ShardPrimary{}, Nodes: []apitype.ShardNode{
			{Address: "a:1", Role: string(shard.Primary), Primary: true, Condition: string(shard.Up), Member: true, AgentLives: true, InStep: true, Armed: true, Priority: 100, Version: "7.2"}, replica(),
		}}
		change(&s)
		out = append(out, shardCase{name, s, alarm, want})
	}
	health := func(h shard.Health) func(*apitype.Shard) { return func(s *apitype.Shard) { s.Health = string(h) } }
	node := func(change func(*apitype.ShardNode)) func(*apitype.Shard) {
		return func(s *apitype.Shard) { change(&s.Nodes[1]) }
	}
	pause, plan, asked := &apitype.ShardPause{By: "ann"}, &apitype.ShardPlan{}, &apitype.ShardRequestAsked{}

	is("well", calm, func(*apitype.Shard) {})
	is("a priority that is zero", calm, node(func(n *apitype.ShardNode) { n.Priority = 0 }))
	is("blocked", severe, func(s *apitype.Shard) { s.Health, s.Blocked = string(shard.Replaceable), "none is left" }, "bad orders: It is not replaced: none is left")
	is("blocked, paused, no primary", severe, func(s *apitype.Shard) {
		s.Health, s.Blocked, s.Primary, s.Why, s.Paused = string(shard.Replaceable), "it is paused", nil, "shard: no primary: a:1 is down", pause
	}, "bad orders: It is not replaced: it is paused | a:1 is down", "(warn orders: Paused by ann: it does not fail over by itself)")
	is("stuck", severe, health(shard.Stuck), "bad orders: Its primary is silent and may still take writes: because")
	is("none", severe, func(s *apitype.Shard) { s.Health, s.Primary = string(shard.None), nil }, "bad orders: No primary: because | because")
	is("no primary", severe, func(s *apitype.Shard) { s.Primary, s.Why, s.Request = nil, "shard: no primary: a:1 is down", asked }, "bad orders: No primary: a:1 is down | a:1 is down")
	is("unattended", major, health(shard.Unattended), "bad orders: Its primary is unattended: because")
	is("doubtful", major, health(shard.Doubtful), "warn orders: In doubt whether its primary has ended: because")
	is("over", major, health(shard.Replaceable), "(warn orders: Its primary has ended, and is being replaced: because)")
	is("fails over", moving, func(s *apitype.Shard) { s.Health, s.Plan, s.Primary = string(shard.Replaceable), plan, nil },
		"(warn orders: Its primary has ended, and is being replaced: because) | because")
	is("switches over", moving, func(s *apitype.Shard) { s.Plan = plan })
	is("switches over, no primary", moving, func(s *apitype.Shard) { s.Plan, s.Primary, s.Why = plan, nil, "shard: no primary: promoting" }, "(warn orders: No primary: promoting) | promoting")
	is("asked for", moving, func(s *apitype.Shard) { s.Request = asked })
	is("paused", minor, func(s *apitype.Shard) { s.Paused = pause }, "warn orders: Paused by ann: it does not fail over by itself")
	is("a silent agent", minor, node(func(n *apitype.ShardNode) { n.AgentLives = false }), "(warn orders: the agent of b:1 is silent)")
	is("a node that is down", minor, node(func(n *apitype.ShardNode) { n.Condition = string(shard.Down) }), "(warn orders: the node b:1 is down)")
	is("another lineage", minor, node(func(n *apitype.ShardNode) { n.InStep = false }), "(warn orders: the data of b:1 is of another lineage: it cannot be promoted)")
	is("a link that is down", minor, node(func(n *apitype.ShardNode) { n.LinkUp = new(false) }), "(warn orders: b:1 does not follow the primary: its link is down)")
	is("a node with trouble", minor, node(func(n *apitype.ShardNode) { n.Trouble = "its disk is full" }), "(warn orders: b:1: its disk is full)")
	is("not a member yet", minor, func(s *apitype.Shard) { s.Nodes = append(s.Nodes, replica()); s.Nodes[2].Member = false },
		"(warn orders: b:1 is not a member yet, and cannot be promoted)")
	is("one member", calm, func(s *apitype.Shard) { s.Nodes = s.Nodes[:1] }, "(warn orders: it has one member: nothing could take over)")
	is("fence not armed", calm, func(s *apitype.Shard) { s.Nodes[0].Armed = false },
		"(warn orders: the fence of its primary is not armed: if it fell silent, an operator would have to decide)")
	is("two versions", calm, node(func(n *apitype.ShardNode) { n.Version = "7.0" }), "(warn orders: its nodes run different versions: 7.0, 7.2)")
	return out
}

func TestInWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 3700 * time.Millisecond: "3 s", time.Minute: "1 min", time.Hour + 61*time.Second: "1 h 1 min", 49 * time.Hour: "2 days",
	} {
		if got := inWords(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
