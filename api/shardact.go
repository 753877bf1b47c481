package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// RequestState is how far a person's request has come.
type RequestState string

// States of a request.
const (
	RequestWaits   RequestState = "waiting" // no agent has begun with it
	RequestRuns    RequestState = "running"
	RequestDone    RequestState = "done"   // the shard has its new primary
	RequestNotDone RequestState = "failed" // it was refused, or could not be done
)

// ShardRequestView is a person's request and what has become of it, as every surface shows it in JSON.
type ShardRequestView struct {
	Shard   string       `json:"shard"`
	Request string       `json:"request"`
	State   RequestState `json:"state"`
	Error   string       `json:"error,omitempty"` // why it failed
	Plan    *shard.Plan  `json:"plan,omitempty"`
}

// ViewRequest shows a request; false if the shard knows nothing of it any more.
func ViewRequest(row shard.Row, id string) (ShardRequestView, bool) {
	out := ShardRequestView{Shard: row.Name, Request: id}
	switch {
	case row.Request != nil && row.Request.ID == id:
		out.State = RequestWaits
	case row.Plan != nil && row.Plan.Request == id:
		out.State, out.Plan = RequestRuns, row.Plan
		if row.Plan.Phase == shard.Following && row.Plan.Kind != shard.Return {
			out.State = RequestDone // replicas may copy for long
		}
	case row.Last != nil && row.Last.Request == id:
		out.State, out.Plan = RequestDone, row.Last
		if row.Last.Failed != "" {
			out.State, out.Error = RequestNotDone, row.Last.Failed
		}
	default:
		return out, false
	}
	return out, true
}

func (v ShardRequestView) over() bool { return v.State == RequestDone || v.State == RequestNotDone }

// desk is for whoever asks; it is written into the history.
func (p *shardPart) desk(r *http.Request, said string) (shard.Desk, error) {
	who, err := by(r, said)
	return shard.Desk{Registry: p.registry, By: who}, err
}

func (p *shardPart) switchover(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		To        string `json:"to"`
		TimeoutMS int64  `json:"timeout_ms"`
		By        string `json:"by"`
	}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	if body.TimeoutMS < 0 || body.TimeoutMS > maxWait.Milliseconds() {
		return fmt.Errorf("%w: timeout_ms is %d: use 1 to %d, or 0 for %d", lease.ErrInvalid, body.TimeoutMS, maxWait.Milliseconds(), shard.DefaultPause.Milliseconds())
	}
	return p.ask(w, r, shard.Request{Kind: shard.Switchover, Timeout: millis(body.TimeoutMS)}, body.To, body.By)
}

func (p *shardPart) failover(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		To    string `json:"to"`
		Force bool   `json:"force"`
		By    string `json:"by"`
	}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	return p.ask(w, r, shard.Request{Kind: shard.Failover, Force: body.Force}, body.To, body.By)
}

// ask puts a request to the agents, and waits for its end as long as the caller wants to.
func (p *shardPart) ask(w http.ResponseWriter, r *http.Request, q shard.Request, to, said string) error {
	wait, err := duration(r, "wait", maxWait)
	if err != nil {
		return err
	}
	if err := lease.ValidateText("to", to, 0, lease.MaxAddress); err != nil {
		return err
	}
	desk, err := p.desk(r, said)
	if err != nil {
		return err
	}
	name := r.PathValue("shard")
	ctx, cancel := context.WithTimeout(r.Context(), p.timeout)
	defer cancel()
	id, err := desk.Ask(ctx, name, q, to)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/shards/"+name+"/requests/"+id)
	out := ShardRequestView{Shard: name, Request: id, State: RequestWaits}
	if wait > 0 {
		seen, err := p.follow(w, r, name, id, wait)
		switch {
		case errors.Is(err, shard.ErrNotFound):
			return fmt.Errorf("%w: %v", shard.ErrFailed, err)
		case err == nil:
			out = seen
		} // otherwise it was asked for all the same: Location leads to what becomes of it
	}
	switch out.State {
	case RequestNotDone:
		return fmt.Errorf("%w: %s", shard.ErrFailed, out.Error)
	case RequestDone:
		return writeJSON(w, http.StatusOK, out)
	}
	return writeJSON(w, http.StatusAccepted, out)
}

func (p *shardPart) getRequest(w http.ResponseWriter, r *http.Request) error {
	wait, err := duration(r, "wait", maxWait)
	if err != nil {
		return err
	}
	out, err := p.follow(w, r, r.PathValue("shard"), r.PathValue("id"), wait)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, out)
}

// follow returns what has become of a request when it is over, or when the wait is. The store is
// asked only when the directory has seen the shard's row change, and now and then.
func (p *shardPart) follow(w http.ResponseWriter, r *http.Request, name, id string, wait time.Duration) (ShardRequestView, error) {
	var out ShardRequestView
	var rev int64
	var asked time.Time
	err := p.untilFor(w, r, wait, func(ctx context.Context) (done bool, err error) {
		if v, ok := p.dir.Shard(name); ok && v.Row.Rev <= rev && time.Since(asked) < pollEvery {
			return false, nil
		}
		asked = time.Now()
		v, err := p.look(ctx, name)
		if err != nil {
			return true, err
		}
		rev = v.Row.Rev
		known := false
		if out, known = ViewRequest(v.Row, id); !known {
			return true, fmt.Errorf("%w: shard %q knows nothing of request %.80q: it was taken back, or another came after it", shard.ErrNotFound, name, id)
		}
		return out.over(), nil
	})
	return out, err
}

// cancel takes a request back that no agent has begun with.
func (p *shardPart) cancel(w http.ResponseWriter, r *http.Request) error {
	desk, err := p.desk(r, r.URL.Query().Get("by"))
	if err != nil {
		return err
	}
	if err := desk.Cancel(r.Context(), r.PathValue("shard"), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (p *shardPart) pause(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Reason string `json:"reason"`
		By     string `json:"by"`
	}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	if err := lease.ValidateText("reason", body.Reason, 0, lease.MaxReason); err != nil {
		return err
	}
	desk, err := p.desk(r, body.By)
	if err != nil {
		return err
	}
	return p.changedBy(w, r, desk.Pause(r.Context(), r.PathValue("shard"), body.Reason))
}

func (p *shardPart) resume(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		By string `json:"by"`
	}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	desk, err := p.desk(r, body.By)
	if err != nil {
		return err
	}
	return p.changedBy(w, r, desk.Resume(r.Context(), r.PathValue("shard")))
}

// changedBy shows the shard after a change.
func (p *shardPart) changedBy(w http.ResponseWriter, r *http.Request, err error) error {
	if err != nil {
		return err
	}
	v, err := p.look(r.Context(), r.PathValue("shard"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, ViewShard(v, 0))
}

func (p *shardPart) forget(w http.ResponseWriter, r *http.Request) error {
	node := r.PathValue("node")
	if err := lease.ValidateText("node", node, 1, lease.MaxAddress); err != nil {
		return err
	}
	desk, err := p.desk(r, r.URL.Query().Get("by"))
	if err != nil {
		return err
	}
	if err := desk.Forget(r.Context(), r.PathValue("shard"), node); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
