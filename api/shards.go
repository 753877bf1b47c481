package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/catalog"
	"github.com/understudy-ha/understudy/store"
)

// errNoShards: the server has no catalog of shards.
var errNoShards = errors.New("this server has nothing to say of shards")

// shardPart answers for the shards.
type shardPart struct {
	catalog  catalog.AgedViews // nil: the server has nothing to say of shards
	registry shard.Registry
	timeout  time.Duration
	waits    *places
	running  context.Context
}

func newShardPart(cfg Config, waits *places, running context.Context) *shardPart {
	p := &shardPart{catalog: cfg.Shards, timeout: cfg.Timeout, waits: waits, running: running}
	if st, ok := cfg.Store.(store.Shards); ok {
		p.registry = st.Registry()
	}
	return p
}

func (p *shardPart) routes() []route {
	const one = "/v1/shards/{shard}"
	return guarded(p.check, []route{
		{pattern: "GET /v1/shards", handle: p.list},
		{pattern: "GET " + one, handle: p.get},
		{pattern: "GET " + one + "/primary", handle: p.primary, long: true},
		{pattern: "POST " + one + "/switchover", handle: p.switchover, long: true},
		{pattern: "POST " + one + "/failover", handle: p.failover, long: true},
		{pattern: "GET " + one + "/requests/{id}", handle: p.getRequest, long: true},
		{pattern: "DELETE " + one + "/requests/{id}", handle: p.cancelRequest},
		{pattern: "POST " + one + "/pause", handle: inJSON(p.pause)},
		{pattern: "POST " + one + "/resume", handle: inJSON(p.resume)},
		{pattern: "DELETE " + one + "/nodes/{node}", handle: p.forgetNode},
	})
}

// check refuses requests where nothing is known of shards, and names that no shard can have.
func (p *shardPart) check(r *http.Request) error {
	if p.catalog == nil {
		return errNoShards
	}
	if name := r.PathValue("shard"); name != "" {
		return shard.ValidateName(name)
	}
	return nil
}

// changed is closed at the next change; nil without shards.
func (p *shardPart) changed() <-chan struct{} {
	if p.catalog == nil {
		return nil
	}
	return p.catalog.Changed()
}

// view returns a shard as the catalog has it; one that it does not have yet is read.
func (p *shardPart) view(ctx context.Context, name string) (shard.View, error) {
	if v, ok := p.catalog.Shard(name); ok {
		return v, nil
	}
	return p.readView(ctx, name)
}

// readView asks the store.
func (p *shardPart) readView(ctx context.Context, name string) (shard.View, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.registry.ReadView(ctx, name)
}

func (p *shardPart) list(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	after, text, trouble, limit := q.name("after"), strings.ToLower(q.name("contains", "text")), q.flag("trouble"), q.limit(shard.MaxShards)
	if q.err != nil {
		return q.err
	}
	if _, err := p.catalog.Freshness(); errors.Is(err, shard.ErrNotFound) {
		return errNotReady
	} else if err != nil && len(p.catalog.Shards()) == 0 {
		return err
	}
	out := apitype.Shards{Shards: []apitype.Shard{}}
	for _, v := range p.catalog.Shards() {
		if v.Row.Name <= after || !strings.Contains(strings.ToLower(v.Row.Name), text) {
			continue
		}
		view := ViewShard(v)
		if trouble && view.Alarm == 0 {
			continue
		}
		if out.Shards = append(out.Shards, view); len(out.Shards) == limit {
			out.Next = view.Name
			break
		}
	}
	p.setAge(w)
	return writeJSON(w, http.StatusOK, out)
}

// setAge says how old the answer is. While the store does not answer, what was known is given.
func (p *shardPart) setAge(w http.ResponseWriter) {
	if age, err := p.catalog.Freshness(); err == nil || age > 0 {
		w.Header().Set("Age", strconv.Itoa(int(age.Seconds())))
	}
}

func (p *shardPart) get(w http.ResponseWriter, r *http.Request) error {
	v, err := p.view(r.Context(), r.PathValue("shard"))
	if err != nil {
		return err
	}
	p.setAge(w)
	return writeJSON(w, http.StatusOK, ViewShard(v))
}

// primary tells clients where to go, or waits until there is somewhere.
func (p *shardPart) primary(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("shard")
	var at shard.Endpoint
	wait, err := waitParameter(r)
	if err != nil {
		return err
	}
	err = p.waitUntil(w, r, wait, func(ctx context.Context) (done bool, err error) {
		v, err := p.view(ctx, name)
		if err != nil {
			return true, err
		}
		at, err = v.PrimaryEndpoint()
		return err == nil, err
	})
	if err != nil {
		return err
	}
	p.setAge(w)
	return writeJSON(w, http.StatusOK, apitype.ShardPrimary(at))
}

// waitParameter is how long the caller is willing to wait.
func waitParameter(r *http.Request) (time.Duration, error) {
	q := queryOf(r)
	wait := q.duration("wait", maxWait, 0)
	return wait, q.err
}

// waitUntil calls check at every change, and once a pollInterval, until it is done or the wait has passed. It
// returns the last error of check.
func (p *shardPart) waitUntil(w http.ResponseWriter, r *http.Request, wait time.Duration, check func(context.Context) (done bool, err error)) error {
	changed := p.catalog.Changed()
	done, err := check(r.Context())
	if done || wait == 0 {
		return err
	}
	leave, err := p.waits.take(r, 0)
	if err != nil {
		return err
	}
	defer leave()
	extendWriteDeadline(w, wait+2*p.timeout)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-changed:
		case <-poll.C:
		case <-timer.C:
			return err
		case <-r.Context().Done():
			return context.Cause(r.Context())
		case <-p.running.Done():
			return errStopping
		}
		changed = p.catalog.Changed()
		if done, err = check(r.Context()); done {
			return err
		}
	}
}

func addShard(t *apitype.ShardTotals, s apitype.Shard) {
	for _, c := range []struct {
		count *int
		is    bool
	}{
		{&t.Shards, true},
		{&t.NoPrimary, s.Primary == nil},
		{&t.Blocked, s.Blocked != ""},
		{&t.Unattended, s.Health == string(shard.Unattended)},
		{&t.UnderWay, s.Plan != nil},
		{&t.Paused, s.Paused != nil},
		{&t.Trouble, s.Alarm != 0},
	} {
		if c.is {
			*c.count++
		}
	}
}

// views shows all shards, those that need attention before the others, and says why the catalog is not up to date.
func (p *shardPart) views() (out []apitype.Shard, trouble string) {
	if p.catalog == nil {
		return nil, ""
	}
	out = views(p.catalog.Shards(), ViewShard)
	slices.SortStableFunc(out, func(a, b apitype.Shard) int { return cmp.Compare(b.Alarm, a.Alarm) })
	if _, err := p.catalog.Freshness(); err != nil && !errors.Is(err, shard.ErrNotFound) {
		trouble = lease.TruncateReason(err.Error())
	}
	return out, trouble
}

// state is what the page shows; nil without shards.
func (p *shardPart) state() *apitype.ShardsState {
	if p.catalog == nil {
		return nil
	}
	out := &apitype.ShardsState{}
	out.List, out.Error = p.views()
	for _, s := range out.List {
		addShard(&out.Totals, s)
	}
	out.List = out.List[:min(len(out.List), maxShown)]
	return out
}
