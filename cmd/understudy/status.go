package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/shard"
)

func (a *app) statusCommand() *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show everything at a glance, what needs attention first",
		Long: `Show everything at a glance on one screen: what needs attention, the store, roles, shards, queues, the
monitor, the cache of the server that is asked, instances, and the latest events. Each part shows the rows that need
attention first, then as many others as fit; "role list" and the like list all. With -o json everything is printed, on
one line.`,
		Example: `  understudy status --watch
  understudy status --server https://ha.example:7600 --token-file token
  understudy status -o json | jq -r '.needs[] | .part + " " + .subject + ": " + .what'`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if watch {
				return a.withRunningAPI(c.Context(), a.watchStatus)
			}
			return a.withRunningAPI(c.Context(), withTimeout(statusTimeout, a.status))
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "refresh every second, until interrupted")
	return c
}

func (a *app) status(ctx context.Context, c *client.Client) error {
	s, err := readStatus(ctx, c)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(s)
	}
	_, err = fmt.Fprint(a.stdout, s.text())
	return err
}

// watchStatus redraws until ctx ends.
func (a *app) watchStatus(ctx context.Context, c *client.Client) error {
	return a.poll(ctx, pollOptions{timeout: statusTimeout}, func(ctx context.Context) (time.Duration, error) {
		// Cleared only when the next picture is there, so that nothing flickers and
		// the last one stays while nobody answers.
		var picture bytes.Buffer
		if !a.json() {
			picture.WriteString("\x1b[H\x1b[2J")
		}
		painter := *a
		painter.stdout = &picture
		err := painter.status(ctx, c)
		if err == nil {
			_, err = picture.WriteTo(a.stdout)
		}
		return time.Second, err
	})
}

// How many rows of each part are shown: with their headers, and the empty lines between, 40.
const (
	rowsOfNeeds     = 6
	rowsOfRoles     = 4
	rowsOfShards    = 3
	rowsOfQueues    = 3
	rowsOfInstances = 3
	rowsOfEvents    = 5
	lineOfStatus    = 120 // characters of what is longer
)

// text is what people read.
func (s status) text() string {
	var b strings.Builder
	s.writeNeeds(&b)
	fmt.Fprintf(&b, "store  %s (%s), answers in %s\n", termtext.Text(s.Store.Location), termtext.Text(s.Store.Server), termtext.Brief(time.Duration(s.Store.LatencyMS*float64(time.Millisecond))))
	for _, t := range []statusTable{s.roleTable(), s.shardTable(), s.queueTable()} {
		t.write(&b)
	}
	s.writeMonitor(&b)
	s.writeCache(&b)
	s.instanceTable().write(&b)
	s.writeEvents(&b)
	return b.String()
}

// writeNeeds puts the bad ones first, as the server has sorted them.
func (s status) writeNeeds(b *strings.Builder) {
	total := int64(len(s.Needs)) + s.MoreNeeds
	if len(s.Errors) > 0 {
		fmt.Fprintf(b, "!      not known: %s\n", termtext.Text(cutTo(strings.Join(s.Errors, "; "), lineOfStatus)))
	}
	if total == 0 {
		fmt.Fprintln(b, "needs attention: nothing")
		return
	}
	fmt.Fprintf(b, "needs attention: %d\n", total)
	shown := s.Needs[:min(len(s.Needs), rowsOfNeeds)]
	for _, n := range shown {
		mark := "!"
		if n.Severity == "warn" {
			mark = "·"
		}
		about := strings.TrimSpace(n.Part + " " + n.Subject)
		if n.Item != "" {
			about += " " + n.Item
		}
		fmt.Fprintf(b, "  %s %s\n", mark, termtext.Text(cutTo(about+": "+n.What, lineOfStatus)))
	}
	if left := total - int64(len(shown)); left > 0 {
		fmt.Fprintf(b, "  … and %d more; see -o json\n", left)
	}
}

// statusTable is a part with the first of its rows.
type statusTable struct {
	header string
	rows   []string
	most   int
	see    string // where all of them are
}

func (t statusTable) write(b *strings.Builder) {
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintln(b)
	shown := t.rows
	if len(shown) > t.most {
		shown = shown[:t.most-1]
	}
	_ = writeTable(b, t.header, shown) // into memory
	if left := len(t.rows) - len(shown); left > 0 {
		fmt.Fprintf(b, "… and %d more: %s\n", left, t.see)
	}
}

// count is how many of a part are held, for its header.
func (s status) count(part string) string {
	for _, h := range s.Held {
		if h.Part == part {
			return fmt.Sprintf(" (%d of %d held)", h.Held, h.Total)
		}
	}
	return ""
}

func (s status) roleTable() statusTable {
	t := statusTable{header: "ROLE" + s.count("role") + "\tPRIMARY\tADDRESS\tTERM\tSINCE\tSTANDBYS", most: rowsOfRoles, see: "role list"}
	roles := slices.Clone(s.Roles)
	slices.SortStableFunc(roles, func(x, y apitype.Role) int { return cmp.Compare(min(len(x.Primaries), 1), min(len(y.Primaries), 1)) })
	for _, r := range roles {
		var waiting []string
		for _, one := range r.Standbys {
			waiting = append(waiting, one.Name)
		}
		if len(r.Primaries) == 0 {
			t.rows = append(t.rows, row(r.Role, "(vacant for "+termtext.Brief(millis(r.VacantForMS))+")", "", r.Term, "", termtext.Line(strings.Join(waiting, ", "))))
			continue
		}
		p := r.Primaries[0]
		name := p.Name
		if n := len(r.Primaries) - 1; n > 0 {
			name += fmt.Sprintf(" and %d more", n)
		}
		t.rows = append(t.rows, row(r.Role, name, p.Address, p.Term, when(p.Since), termtext.Line(strings.Join(waiting, ", "))))
	}
	return t
}

func (s status) shardTable() statusTable {
	t := statusTable{header: "SHARD" + s.count("shard") + "\tHEALTH\tPRIMARY\tEPOCH\tNODES\tNOTE", most: rowsOfShards, see: "shard list"}
	shards := slices.Clone(s.Shards)
	isFine := func(s apitype.Shard) int {
		if s.Health == string(shard.Fine) && s.Plan == nil && s.Paused == nil {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(shards, func(x, y apitype.Shard) int {
		return cmp.Or(cmp.Compare(y.Alarm, x.Alarm), cmp.Compare(isFine(x), isFine(y))) // a server of the version before sends no Alarm
	})
	for _, one := range shards {
		primary := "none"
		if one.Primary != nil {
			primary = one.Primary.Address
		}
		t.rows = append(t.rows, row(one.Name, one.Health, primary, one.Epoch, len(one.Nodes), cutTo(shardNote(one), 50)))
	}
	return t
}

func (s status) queueTable() statusTable {
	t := statusTable{header: "QUEUE" + s.count("queue") + "\tDEPTH\tOLDEST\tBLOCKED\tDELAYED\tSCHEDULED\tDEAD\tDONE\tINSTANCES", most: rowsOfQueues, see: "queue list"}
	queues := slices.Clone(s.Queues)
	slices.SortStableFunc(queues, func(x, y apitype.Queue) int {
		return cmp.Or(cmp.Compare(y.Blocked, x.Blocked), cmp.Compare(y.Depth, x.Depth))
	})
	for _, q := range queues {
		t.rows = append(t.rows, row(q.Queue, q.Depth, briefOrBlank(millis(q.OldestMS)), q.Blocked, q.Delayed, q.Scheduled, q.DeadLetters, q.Done, len(q.Holders)))
	}
	return t
}

func (s status) writeMonitor(b *strings.Builder) {
	if s.Monitor == nil {
		return
	}
	var up, down, paused int64
	for _, e := range s.Monitor.Checks {
		up, down, paused = up+e.Up, down+e.Down, paused+e.PausedSources
	}
	blind := 0
	for _, p := range s.Monitor.Paths {
		if !p.Working {
			blind++
		}
	}
	fmt.Fprintf(b, "\nmonitor   %s: %d sources up, %d down, %d paused; %d alarms open; %d of %d paths blind; %d instances%s\n",
		termtext.Count(int64(len(s.Monitor.Checks)), "check"), up, down, paused, openAlarms(*s.Monitor), blind, len(s.Monitor.Paths), len(s.Monitor.Members), s.count("monitor"))
}

func (s status) writeCache(b *strings.Builder) {
	if s.Cache == nil {
		return
	}
	state := "may fetch"
	switch {
	case !s.Cache.Member:
		state = "is not a member"
	case s.Cache.Partitioned:
		state = "is partitioned"
	}
	fmt.Fprintf(b, "cache     %s %s; %d of %d peers connected, %d are a majority%s\n",
		termtext.Text(s.Cache.Self), state, s.Cache.Connected, len(s.Cache.Peers), s.Cache.Majority,
		termtext.Text(after("; ", termtext.Line(s.Cache.Trouble))))
}

func (s status) instanceTable() statusTable {
	t := statusTable{header: fmt.Sprintf("INSTANCE (%d)\tADDRESS\tID\tSTARTED\tI/T\tLEFT", len(s.Instances)), most: rowsOfInstances, see: "status -o json"}
	for _, n := range s.Instances {
		t.rows = append(t.rows, row(n.Instance.Name, n.Instance.Address, n.Instance.ID, when(n.Started),
			millis(n.IntervalMS).String()+"/"+millis(n.TimeoutMS).String(), termtext.Brief(millis(n.ExpiresInMS))))
	}
	return t
}

func (s status) writeEvents(b *strings.Builder) {
	events := s.History[max(0, len(s.History)-rowsOfEvents):]
	if len(events) == 0 {
		return
	}
	fmt.Fprintln(b)
	for _, e := range events {
		fmt.Fprintf(b, "%s  %s\n", e.At.Local().Format("2006-01-02 15:04:05.000"), termtext.Text(cutTo(historyEvent(e).String(), lineOfStatus)))
	}
}
