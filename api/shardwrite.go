package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// viewRequest shows a request; false if the shard no longer knows it.
func viewRequest(row shard.Row, id string) (apitype.ShardRequest, bool) {
	out := apitype.ShardRequest{Shard: row.Name, Request: id}
	switch {
	case row.Request != nil && row.Request.ID == id:
		out.State = apitype.RequestWaiting
	case row.Plan != nil && row.Plan.Request == id:
		out.State, out.Plan = apitype.RequestRunning, viewPlan(row.Plan)
		// A switchover that went back ends as failed. An operator who forces the old primary gets what was asked for.
		if p := row.Plan; p.Phase == shard.Following && (p.Kind != shard.Return || p.Force) {
			out.State = apitype.RequestDone // replicas may copy for long
		}
	case row.Last != nil && row.Last.Request == id:
		out.State, out.Plan = apitype.RequestDone, viewPlan(row.Last)
		if row.Last.Failed != "" {
			out.State, out.Error = apitype.RequestFailed, row.Last.Failed
		}
	default:
		return out, false
	}
	return out, true
}

// admin acts for the caller, whose name goes into the history.
func (p *shardPart) admin(r *http.Request, said string) (shard.Admin, error) {
	who, err := requesterOf(r, said)
	return shard.Admin{Registry: p.registry, By: who}, err
}

func (p *shardPart) switchover(w http.ResponseWriter, r *http.Request) error {
	body, err := bodyOf[apitype.SwitchoverRequest](r)
	if err != nil {
		return err
	}
	if body.TimeoutMS < 0 || body.TimeoutMS > maxWait.Milliseconds() {
		return fmt.Errorf("%w: timeout_ms is %d: use 1 to %d, or 0 for %d", lease.ErrInvalid, body.TimeoutMS, maxWait.Milliseconds(), shard.DefaultPause.Milliseconds())
	}
	return p.submitRequest(w, r, shard.Request{Kind: shard.Switchover, Timeout: millis(body.TimeoutMS)}, body.To, body.By)
}

func (p *shardPart) failover(w http.ResponseWriter, r *http.Request) error {
	body, err := bodyOf[apitype.FailoverRequest](r)
	if err != nil {
		return err
	}
	return p.submitRequest(w, r, shard.Request{Kind: shard.Failover, Force: body.Force}, body.To, body.By)
}

// submitRequest records a request for the agents, and waits for its end as long as the caller asks.
func (p *shardPart) submitRequest(w http.ResponseWriter, r *http.Request, q shard.Request, to, said string) error {
	wait, err := waitParameter(r)
	if err != nil {
		return err
	}
	if err := lease.ValidateText("to", to, 0, lease.MaxAddress); err != nil {
		return err
	}
	admin, err := p.admin(r, said)
	if err != nil {
		return err
	}
	name := r.PathValue("shard")
	ctx, cancel := context.WithTimeout(r.Context(), p.timeout)
	defer cancel()
	id, err := admin.RequestPlan(ctx, name, q, to)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/shards/"+name+"/requests/"+id)
	out := apitype.ShardRequest{Shard: name, Request: id, State: apitype.RequestWaiting}
	if wait > 0 {
		seen, err := p.waitForRequest(w, r, name, id, wait)
		switch {
		case errors.Is(err, shard.ErrNotFound):
			return fmt.Errorf("%w: %v", shard.ErrFailed, err)
		case err == nil:
			out = seen
		} // any other error leaves the request in place: Location leads to its outcome
	}
	switch out.State {
	case apitype.RequestFailed:
		return fmt.Errorf("%w: %s", shard.ErrFailed, out.Error)
	case apitype.RequestDone:
		return writeJSON(w, http.StatusOK, out)
	}
	return writeJSON(w, http.StatusAccepted, out)
}

func (p *shardPart) getRequest(w http.ResponseWriter, r *http.Request) error {
	wait, err := waitParameter(r)
	if err != nil {
		return err
	}
	out, err := p.waitForRequest(w, r, r.PathValue("shard"), r.PathValue("id"), wait)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, out)
}

// waitForRequest returns the state of a request when it has ended, or when the wait has. It reads the store only after the
// catalog has seen the shard's row change, and once a pollInterval: a thousand waits must not poll it.
func (p *shardPart) waitForRequest(w http.ResponseWriter, r *http.Request, name, id string, wait time.Duration) (apitype.ShardRequest, error) {
	var out apitype.ShardRequest
	var rev int64
	var asked time.Time
	err := p.waitUntil(w, r, wait, func(ctx context.Context) (done bool, err error) {
		if v, ok := p.catalog.Shard(name); ok && v.Row.Rev <= rev && time.Since(asked) < pollInterval {
			return false, nil
		}
		asked = time.Now()
		v, err := p.readView(ctx, name)
		if err != nil {
			return true, err
		}
		rev = v.Row.Rev
		known := false
		if out, known = viewRequest(v.Row, id); !known {
			return true, fmt.Errorf("%w: shard %q knows nothing of request %.80q: it was withdrawn, or another came after it", shard.ErrNotFound, name, id)
		}
		return out.HasEnded(), nil
	})
	return out, err
}

// cancelRequest withdraws a request that no agent has started.
func (p *shardPart) cancelRequest(w http.ResponseWriter, r *http.Request) error {
	admin, err := p.admin(r, r.URL.Query().Get("by"))
	if err != nil {
		return err
	}
	if err := admin.Cancel(r.Context(), r.PathValue("shard"), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (p *shardPart) pause(r *http.Request) (out apitype.Shard, err error) {
	body, err := bodyOf[apitype.PauseRequest](r)
	if err != nil {
		return out, err
	}
	if err := lease.ValidateText("reason", body.Reason, 0, lease.MaxReason); err != nil {
		return out, err
	}
	return p.change(r, body.By, func(a shard.Admin, name string) error { return a.Pause(r.Context(), name, body.Reason) })
}

func (p *shardPart) resume(r *http.Request) (out apitype.Shard, err error) {
	body, err := bodyOf[apitype.Caller](r)
	if err != nil {
		return out, err
	}
	return p.change(r, body.By, func(a shard.Admin, name string) error { return a.Resume(r.Context(), name) })
}

// change acts for the caller, and returns the shard afterwards.
func (p *shardPart) change(r *http.Request, said string, act func(a shard.Admin, name string) error) (out apitype.Shard, err error) {
	name := r.PathValue("shard")
	admin, err := p.admin(r, said)
	if err == nil {
		err = act(admin, name)
	}
	if err != nil {
		return out, err
	}
	v, err := p.readView(r.Context(), name)
	if err != nil {
		return out, fmt.Errorf("%w: it is done, and the shard could not be read: %w", lease.ErrUnknown, err)
	}
	return ViewShard(v), nil
}

func (p *shardPart) forgetNode(w http.ResponseWriter, r *http.Request) error {
	node := r.PathValue("node")
	if err := lease.ValidateText("node", node, 1, lease.MaxAddress); err != nil {
		return err
	}
	admin, err := p.admin(r, r.URL.Query().Get("by"))
	if err != nil {
		return err
	}
	if err := admin.Forget(r.Context(), r.PathValue("shard"), node); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
