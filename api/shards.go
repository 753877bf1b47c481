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

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
)

// errNoShards: the server has no directory of shards.
var errNoShards = errors.New("this server has nothing to say of shards")

// maxShownShards is the most shards that the state lists: each brings all its nodes.
const maxShownShards = 200

// ShardDirectory is what is known of the shards, at no cost to the store: a
// [shard.Directory], or a [shard.Agent] for its own.
type ShardDirectory interface {
	Shard(name string) (shard.View, bool)
	Shards() []shard.View
	// Changed is closed at the next change; take it before the views.
	Changed() <-chan struct{}
}

// shardPart answers for the shards.
type shardPart struct {
	dir      ShardDirectory // nil: the server has nothing to say of shards
	registry shard.Registry
	timeout  time.Duration
	waits    chan struct{}
	running  context.Context
}

func newShardPart(cfg Config, waits chan struct{}, running context.Context) *shardPart {
	p := &shardPart{dir: cfg.Shards, timeout: cfg.Timeout, waits: waits, running: running}
	if st, ok := cfg.Store.(store.Shards); ok {
		p.registry = st.Registry()
	}
	return p
}

func (p *shardPart) routes() []route {
	const one = "/v1/shards/{shard}"
	out := []route{
		{pattern: "GET /v1/shards", handle: p.list},
		{pattern: "GET " + one, handle: p.get},
		{pattern: "GET " + one + "/primary", handle: p.primary, long: true},
		{pattern: "POST " + one + "/switchover", handle: p.switchover, long: true},
		{pattern: "POST " + one + "/failover", handle: p.failover, long: true},
		{pattern: "GET " + one + "/requests/{id}", handle: p.getRequest, long: true},
		{pattern: "DELETE " + one + "/requests/{id}", handle: p.cancel},
		{pattern: "POST " + one + "/pause", handle: p.pause},
		{pattern: "POST " + one + "/resume", handle: p.resume},
		{pattern: "DELETE " + one + "/nodes/{node}", handle: p.forget},
	}
	for i := range out {
		handle := out[i].handle
		out[i].handle = func(w http.ResponseWriter, r *http.Request) error {
			if p.dir == nil {
				return errNoShards
			}
			if name := r.PathValue("shard"); name != "" {
				if err := shard.ValidateName(name); err != nil {
					return err
				}
			}
			return handle(w, r)
		}
	}
	return out
}

// changed is closed at the next change; nil without shards.
func (p *shardPart) changed() <-chan struct{} {
	if p.dir == nil {
		return nil
	}
	return p.dir.Changed()
}

// freshness tells how old the directory's knowledge is, and why it is not newer, as far as it knows.
func (p *shardPart) freshness() (time.Duration, error) {
	if d, ok := p.dir.(interface {
		Freshness() (time.Duration, error)
	}); ok {
		return d.Freshness()
	}
	return 0, nil
}

// view returns a shard as the directory has it; one that it does not have yet is read.
func (p *shardPart) view(ctx context.Context, name string) (shard.View, error) {
	if v, ok := p.dir.Shard(name); ok {
		return v, nil
	}
	return p.look(ctx, name)
}

// look asks the store.
func (p *shardPart) look(ctx context.Context, name string) (shard.View, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.registry.Look(ctx, name)
}

func (p *shardPart) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	after, text := q.Get("after"), q.Get("text")
	for name, value := range map[string]string{"after": after, "text": text} {
		if err := lease.ValidateText(name, value, 0, lease.MaxKey); err != nil {
			return err
		}
	}
	trouble, err := flag(r, "trouble")
	if err != nil {
		return err
	}
	limit, err := number(r, "limit", 1, shard.MaxShards, 100)
	if err != nil {
		return err
	}
	if _, err := p.freshness(); errors.Is(err, shard.ErrNotFound) {
		return errNotReady
	} else if err != nil && len(p.dir.Shards()) == 0 {
		return err
	}
	out := struct {
		Shards []ShardView `json:"shards"`
		Next   string      `json:"next,omitempty"` // what to ask for with after, if there may be more
	}{Shards: []ShardView{}}
	for _, v := range p.dir.Shards() {
		if v.Row.Name <= after || !strings.Contains(strings.ToLower(v.Row.Name), strings.ToLower(text)) {
			continue
		}
		view := ViewShard(v, 0)
		if trouble && view.alarm() == calm {
			continue
		}
		if out.Shards = append(out.Shards, view); len(out.Shards) == int(limit) {
			out.Next = view.Shard
			break
		}
	}
	p.aged(w)
	return writeJSON(w, http.StatusOK, out)
}

// aged says how old the answer is. While the store does not answer, what was known is given.
func (p *shardPart) aged(w http.ResponseWriter) {
	if age, err := p.freshness(); err == nil || age > 0 {
		w.Header().Set("Age", strconv.Itoa(int(age.Seconds())))
	}
}

func (p *shardPart) get(w http.ResponseWriter, r *http.Request) error {
	v, err := p.view(r.Context(), r.PathValue("shard"))
	if err != nil {
		return err
	}
	p.aged(w)
	return writeJSON(w, http.StatusOK, ViewShard(v, 0))
}

// primary tells clients where to go, or waits until there is somewhere.
func (p *shardPart) primary(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("shard")
	var at shard.Endpoint
	err := p.until(w, r, func(ctx context.Context) (done bool, err error) {
		v, err := p.view(ctx, name)
		if err != nil {
			return true, err
		}
		at, err = v.Whereabouts()
		return err == nil, err
	})
	if err != nil {
		return err
	}
	p.aged(w)
	return writeJSON(w, http.StatusOK, at)
}

// until calls look until it is done or the time has passed for which the caller is willing
// to wait, at every change and now and then; it returns what look said last.
func (p *shardPart) until(w http.ResponseWriter, r *http.Request, look func(context.Context) (done bool, err error)) error {
	wait, err := duration(r, "wait", maxWait)
	if err != nil {
		return err
	}
	return p.untilFor(w, r, wait, look)
}

func (p *shardPart) untilFor(w http.ResponseWriter, r *http.Request, wait time.Duration, look func(context.Context) (done bool, err error)) error {
	changed := p.dir.Changed()
	done, err := look(r.Context())
	if done || wait == 0 {
		return err
	}
	select {
	case p.waits <- struct{}{}:
		defer func() { <-p.waits }()
	default:
		return errBusy
	}
	lift(w, wait+2*p.timeout)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	poll := time.NewTicker(pollEvery)
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
		changed = p.dir.Changed()
		if done, err = look(r.Context()); done {
			return err
		}
	}
}

// shardsState is what the page shows of the shards: at most maxShownShards of them, those in
// trouble first, and the totals of all.
type shardsState struct {
	Totals shardTotals  `json:"totals"`
	List   []shownShard `json:"list"`
	// Error of the last reading: then what is shown is older than that.
	Error string `json:"error,omitempty"`
}

// shownShard is a shard with what the page makes of it.
type shownShard struct {
	ShardView
	Alarm alarm `json:"alarm"`
}

// shardTotals count all shards; one can be in several of them.
type shardTotals struct {
	Shards     int `json:"shards"`
	NoPrimary  int `json:"no_primary"`
	Blocked    int `json:"blocked"`
	Unattended int `json:"unattended"`
	UnderWay   int `json:"under_way"`
	Paused     int `json:"paused"`
	Trouble    int `json:"trouble"` // that a person should look at for whatever reason
}

// alarm is how soon somebody should look at a shard; the page knows the numbers.
type alarm int

const (
	calm   alarm = iota
	minor        // a node is not as it should be, or the shard is paused
	moving       // a plan is under way
	major        // it has a primary, and nobody who looks after it
	severe       // it has none, or nothing is done about one that is over
)

func (s ShardView) alarm() alarm {
	troubled := func(n NodeView) bool {
		return n.Trouble != "" || !n.AgentLives || n.Condition != shard.Up || n.LinkUp != nil && !*n.LinkUp
	}
	switch {
	case s.Blocked != "" || s.Health == shard.Stuck || s.Primary == nil && s.Plan == nil:
		return severe
	case s.Plan != nil || s.Request != nil:
		return moving
	case s.Health != shard.Fine:
		return major
	case s.Paused != nil || slices.ContainsFunc(s.Nodes, troubled):
		return minor
	}
	return calm
}

func (t *shardTotals) add(s ShardView) {
	for _, c := range []struct {
		count *int
		is    bool
	}{
		{&t.Shards, true},
		{&t.NoPrimary, s.Primary == nil},
		{&t.Blocked, s.Blocked != ""},
		{&t.Unattended, s.Health == shard.Unattended},
		{&t.UnderWay, s.Plan != nil},
		{&t.Paused, s.Paused != nil},
		{&t.Trouble, s.alarm() != calm},
	} {
		if c.is {
			*c.count++
		}
	}
}

// state is what the page shows; nil without shards.
func (p *shardPart) state() *shardsState {
	if p.dir == nil {
		return nil
	}
	out := &shardsState{}
	views := p.dir.Shards()
	out.List = make([]shownShard, 0, len(views))
	for _, v := range views {
		s := ViewShard(v, 0)
		out.Totals.add(s)
		out.List = append(out.List, shownShard{s, s.alarm()})
	}
	slices.SortStableFunc(out.List, func(a, b shownShard) int { return cmp.Compare(b.Alarm, a.Alarm) })
	out.List = out.List[:min(len(out.List), maxShownShards)]
	if _, err := p.freshness(); err != nil && !errors.Is(err, shard.ErrNotFound) {
		out.Error = lease.CutReason(err.Error())
	}
	return out
}
