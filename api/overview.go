package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/attention"
	"github.com/understudy-ha/understudy/lease"
)

const (
	// overviewFresh is how old the overview may be.
	overviewFresh = 2 * time.Second
	// overviewBack is how far back it reports changes.
	overviewBack = time.Hour
	// maxWrong, maxGroups and maxNeeds bound its lists.
	maxWrong  = 10
	maxGroups = 50
	maxNeeds  = 100
)

// overviewSnapshot is the result of the overview's own read.
type overviewSnapshot struct {
	at       time.Time
	warnings []string
	roles    []elect.Role
	changes  apitype.Changes
}

// overview makes [apitype.Overview] of what the parts know.
type overview struct {
	s        *Server
	snapshot *sharedRead[overviewSnapshot]
}

func newOverview(s *Server) *overview {
	o := &overview{s: s}
	o.snapshot = &sharedRead[overviewSnapshot]{subject: "the store", running: s.running, load: o.read}
	return o
}

func (o *overview) routes() []route {
	return []route{{pattern: "GET /v1/overview", handle: inJSON(o.get)}}
}

// read reads what no other part of the server keeps.
func (o *overview) read(ctx context.Context) (out overviewSnapshot, err error) {
	info, err := o.s.cfg.Store.Inspect(ctx)
	if err != nil {
		return out, err
	}
	out.at, out.warnings = info.Now, info.Warnings
	if out.roles, err = elect.Roles(ctx, o.s.cfg.Store); err != nil {
		return out, err
	}
	events, err := o.s.cfg.Store.Read(ctx, history.Query{Newest: true})
	out.changes = groupChanges(events, info.Now.Add(-overviewBack))
	return out, err
}

// groupChanges puts together what happened to the same subject; events are in ascending order.
func groupChanges(events []history.Event, since time.Time) apitype.Changes {
	out := apitype.Changes{Since: since.UTC(), Groups: []apitype.Change{}}
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
			out.Groups = append(out.Groups, apitype.Change{Part: shownPart(e.Part), Subject: e.Subject, First: e.At})
		}
		out.Groups[n].Count++
		out.Groups[n].Latest = viewEvent(e)
	}
	slices.SortStableFunc(out.Groups, func(a, b apitype.Change) int { return cmp.Compare(b.Latest.ID, a.Latest.ID) })
	out.More = out.More || len(out.Groups) > maxGroups
	out.Groups = out.Groups[:min(len(out.Groups), maxGroups)]
	return out
}

func (o *overview) get(r *http.Request) (apitype.Overview, error) {
	seen, err := o.snapshot.fresh(r.Context(), overviewFresh)
	if seen.at.IsZero() {
		return apitype.Overview{}, cmp.Or(err, errBusy)
	}
	out := overviewBuilder{apitype.Overview{At: seen.at.UTC(), Held: []apitype.Held{}, Changes: seen.changes, Needs: []apitype.Need{}}}
	if err != nil {
		out.addError("The store does not answer", err.Error())
	}
	out.addRoles(seen.roles)
	for _, text := range seen.warnings {
		out.addNeed(apitype.Need{Part: "store", Severity: attention.Warn, What: text})
	}
	out.addShards(o.s.shards.views())
	if o.s.queues.admin != nil {
		out.addQueues(o.s.queues.latest(r.Context(), queueFresh))
	}
	if o.s.jobs != nil {
		out.addJobs(o.s.jobsSeen.fresh(r.Context(), overviewFresh))
	}
	if state := o.s.monitor.state(r.Context()); o.s.monitor.isUsed(state) {
		out.addMonitor(state)
	}
	if o.s.cache.peer != nil {
		cluster, err := o.s.cache.peer.Cluster(r.Context())
		out.addCache(viewCluster(cluster), err)
	}
	slices.SortStableFunc(out.Needs, func(a, b apitype.Need) int { return cmp.Compare(a.Severity, b.Severity) }) // "bad" is first
	return out.Overview, nil
}

// overviewBuilder is an overview in the making.
type overviewBuilder struct{ apitype.Overview }

func (v *overviewBuilder) addError(what, why string) {
	if why != "" {
		v.Errors = append(v.Errors, what+": "+lease.TruncateReason(why))
	}
}

// addNeed adds one that needs attention. Where the list is full, a bad one takes the place of the last warning: very many
// warnings must not hide it.
func (v *overviewBuilder) addNeed(n apitype.Need) {
	if len(v.Needs) < maxNeeds {
		v.Needs = append(v.Needs, n)
		return
	}
	v.MoreNeeds++
	for i := len(v.Needs) - 1; i >= 0 && n.Severity == attention.Bad; i-- {
		if v.Needs[i].Severity != attention.Bad {
			v.Needs = append(slices.Delete(v.Needs, i, i+1), n)
			return
		}
	}
}

// addHeld adds a part of which all is held that is not wrong.
func (v *overviewBuilder) addHeld(h apitype.Held) {
	h.Held = h.Total - len(h.Wrong) - h.More
	v.Held = append(v.Held, h)
}

// addWrong counts one that is not held.
func addWrong(h *apitype.Held, subject, what string) {
	if len(h.Wrong) == maxWrong {
		h.More++
		return
	}
	h.Wrong = append(h.Wrong, apitype.Wrong{Subject: subject, What: what})
}
