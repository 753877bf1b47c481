package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

const (
	// overviewFresh is how old what the overview tells may be.
	overviewFresh = 2 * time.Second
	// overviewBack is how far back it looks for what changed.
	overviewBack = time.Hour
	// maxWrong, maxGroups and maxNeeds bound its lists.
	maxWrong  = 10
	maxGroups = 50
	maxNeeds  = 100
)

// OverviewView answers three questions at a glance: is everything held, what changed in
// the last hour, and what needs a person. It is made of what the other operations show,
// one look each, and its lists are bounded; what they leave out is counted.
type OverviewView struct {
	// At is the store's time.
	At      time.Time   `json:"at"`
	Held    []HeldView  `json:"held"`
	Changes ChangesView `json:"changes"`
	Needs   []NeedView  `json:"needs"`
	// MoreNeeds are those that are not listed.
	MoreNeeds int64 `json:"more_needs"`
	// Errors tell what could not be read: what is shown of it is old, or missing.
	Errors []string `json:"errors,omitempty"`
}

// HeldView is how many things of a part there are, and how many of them somebody holds.
type HeldView struct {
	Part  string      `json:"part"`
	Total int         `json:"total"`
	Held  int         `json:"held"`
	Wrong []WrongView `json:"wrong"`
	// More are those that nobody holds and that are not listed.
	More int `json:"more"`
}

// WrongView is one that nobody holds.
type WrongView struct {
	Subject string `json:"subject"`
	What    string `json:"what"`
}

// ChangesView is what happened since a time, by what it happened to, the latest first.
type ChangesView struct {
	Since  time.Time   `json:"since"`
	Total  int         `json:"total"`
	Groups []GroupView `json:"groups"`
	// More: more happened than was looked at, or there are more groups than are listed.
	More bool `json:"more"`
}

// GroupView is what happened to one subject.
type GroupView struct {
	Part    string        `json:"part"`
	Subject string        `json:"subject"`
	Count   int           `json:"count"`
	First   time.Time     `json:"first"`
	Latest  history.Event `json:"latest"`
}

// NeedView is something that a person has to look at.
type NeedView struct {
	Part    string `json:"part"`
	Subject string `json:"subject"`
	// Item of the subject: the key of a queue, the source of an event.
	Item string `json:"item,omitempty"`
	// ID of the batch or the alarm.
	ID string `json:"id,omitempty"`
	// Severity is "bad" for what stands still until somebody acts, otherwise "warn".
	Severity string `json:"severity"`
	What     string `json:"what"`
}

// overviewSeen is what the overview's own look found.
type overviewSeen struct {
	at       time.Time
	warnings []string
	roles    []elect.Role
	changes  ChangesView
}

// overview makes [OverviewView] of what the parts know.
type overview struct {
	cfg     Config
	queues  *queueLook
	monitor *monitorPart
	shards  *shardPart
	cache   *cachePart
	seen    *look[overviewSeen]
}

func newOverview(s *Server) *overview {
	o := &overview{cfg: s.cfg, queues: s.queues, monitor: s.monitor, shards: s.shards, cache: s.cache}
	o.seen = &look[overviewSeen]{of: "the store", running: s.running, ask: o.read}
	return o
}

func (o *overview) routes() []route {
	return []route{{pattern: "GET /v1/overview", handle: o.get}}
}

// read is one look at what no other part keeps.
func (o *overview) read(ctx context.Context) (out overviewSeen, err error) {
	info, err := o.cfg.Store.Inspect(ctx)
	if err != nil {
		return out, err
	}
	out.at, out.warnings = info.Now, info.Warnings
	if out.roles, err = elect.Roles(ctx, o.cfg.Store); err != nil {
		return out, err
	}
	events, err := o.cfg.Store.Read(ctx, history.Query{Newest: true})
	out.changes = grouped(events, info.Now.Add(-overviewBack))
	return out, err
}

// grouped puts together what happened to the same subject; events are in ascending order.
func grouped(events []history.Event, since time.Time) ChangesView {
	out := ChangesView{Since: since.UTC(), Groups: []GroupView{}}
	type subject struct{ part, name string }
	at := map[subject]int{}
	for i, e := range events {
		if e.At.Before(since) {
			continue
		}
		out.More = out.More || i == 0 && len(events) == history.MaxRead
		out.Total++
		k := subject{e.Part, e.Subject}
		n, ok := at[k]
		if !ok {
			n = len(out.Groups)
			at[k] = n
			out.Groups = append(out.Groups, GroupView{Part: e.Part, Subject: e.Subject, First: e.At})
		}
		out.Groups[n].Count++
		out.Groups[n].Latest = e
	}
	slices.SortStableFunc(out.Groups, func(a, b GroupView) int { return cmp.Compare(b.Latest.ID, a.Latest.ID) })
	out.More = out.More || len(out.Groups) > maxGroups
	out.Groups = out.Groups[:min(len(out.Groups), maxGroups)]
	return out
}

func (o *overview) get(w http.ResponseWriter, r *http.Request) error {
	seen, err := o.seen.view(r.Context(), overviewFresh)
	if seen.at.IsZero() {
		return cmp.Or(err, errBusy)
	}
	out := OverviewView{At: seen.at.UTC(), Held: []HeldView{}, Changes: seen.changes, Needs: []NeedView{}}
	out.failed("The store does not answer", err)
	out.addRoles(seen.roles)
	for _, text := range seen.warnings {
		out.need(NeedView{Part: "store", Severity: warn, What: text})
	}
	out.addShards(o.shards.state())
	out.addQueues(o.queues.state(r.Context()))
	if state := o.monitor.state(r.Context()); state.used(o.monitor.own) {
		out.addMonitor(state)
	}
	if o.cache.peer != nil {
		cluster, err := o.cache.peer.Cluster(r.Context())
		out.addCache(cluster, err)
	}
	slices.SortStableFunc(out.Needs, func(a, b NeedView) int { return cmp.Compare(a.Severity, b.Severity) }) // "bad" is first
	return writeJSON(w, http.StatusOK, out)
}

func (v *OverviewView) failed(what string, err error) {
	if err != nil {
		v.Errors = append(v.Errors, what+": "+lease.CutReason(err.Error()))
	}
}

func (v *OverviewView) need(n NeedView) {
	if len(v.Needs) == maxNeeds {
		v.MoreNeeds++
		return
	}
	v.Needs = append(v.Needs, n)
}

// wrong counts one that nobody holds.
func (h *HeldView) wrong(subject, what string) {
	if len(h.Wrong) == maxWrong {
		h.More++
		return
	}
	h.Wrong = append(h.Wrong, WrongView{Subject: subject, What: what})
}
