package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// removalRoutes delete what has no use any more.
func (s *Server) removalRoutes() []route {
	removed := func(pattern string, remove func(ctx context.Context, r *http.Request, who string) error) []route {
		return []route{{pattern: "DELETE " + pattern, handle: s.removal(remove), long: true}}
	}
	return slices.Concat(
		removed("/v1/roles/{role}", s.forgetRole),
		guarded(s.checkQueues, removed("/v1/queues/{queue}", s.removeQueue)),
		guarded(s.shards.check, removed("/v1/shards/{shard}", s.removeShard)),
		guarded(s.monitor.checkTable, slices.Concat(
			removed(checksPath+"/{check}", s.monitor.remove), removed("/v1/sources/{check}/{source}", s.monitor.remove),
			removed("/v1/monitor/sinks/{sink}", s.monitor.removeSink), removed("/v1/monitor/paths/{path}", s.monitor.removePath))))
}

// removal is the handler of a removal, which may take as long as a wait: until the timeout of a lease's last holder has been
// counted, or while much is deleted in portions.
func (s *Server) removal(remove func(ctx context.Context, r *http.Request, who string) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		who, err := requesterOf(r, r.URL.Query().Get("by"))
		if err != nil {
			return err
		}
		leave, err := s.waits.take(r, 0)
		if err != nil {
			return err
		}
		defer leave()
		extendWriteDeadline(w, maxWait+2*s.cfg.Timeout)
		ctx, cancel := context.WithTimeout(r.Context(), maxWait+s.cfg.Timeout)
		defer cancel()
		defer context.AfterFunc(s.running, cancel)()
		if err := remove(ctx, r, who); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

func (s *Server) forgetRole(ctx context.Context, r *http.Request, who string) error {
	defer s.leaseQuota.read.invalidate()
	return elect.Forget(ctx, s.cfg.Store, s.cfg.Clock, r.PathValue("role"), who)
}

// removeQueue deletes a queue with the messages whose number the caller names.
func (s *Server) removeQueue(ctx context.Context, r *http.Request, who string) error {
	name, err := queueName(r)
	if err != nil {
		return err
	}
	q := queryOf(r)
	messages := q.number("messages", 0, math.MaxInt64, 0)
	if q.err != nil {
		return q.err
	}
	defer s.queues.invalidate()
	return s.queueAdmin.RemoveQueue(ctx, name, messages, who)
}

func (s *Server) removeShard(ctx context.Context, r *http.Request, who string) error {
	admin, err := s.shards.admin(r, r.URL.Query().Get("by"))
	if err != nil {
		return err
	}
	l, err := admin.Remove(ctx, r.PathValue("shard"))
	if err == nil && l.Term > 0 {
		_, err = lease.Forget(ctx, s.cfg.Store, s.cfg.Clock, []lease.Lease{l}, who)
	}
	return err
}

// remove deletes the source that the path names, or the check.
func (p *monitorPart) remove(ctx context.Context, r *http.Request, who string) error {
	if err := checkNames(r); err != nil {
		return err
	}
	defer p.snapshot.invalidate()
	return p.table.ApplyAction(ctx, monitor.Action{Type: monitor.ActionRemove, Check: r.PathValue("check"), Source: r.PathValue("source"), Who: who})
}

// removeSink makes a sink unknown that no instance delivers to any more.
func (p *monitorPart) removeSink(ctx context.Context, r *http.Request, who string) error {
	return p.removeNamed(ctx, r, who, monitor.ActionRemoveSink, "sink", func(o monitor.Overview, name string) bool { return slices.Contains(o.Sinks, name) })
}

// removePath makes an intake path unknown that is no longer used.
func (p *monitorPart) removePath(ctx context.Context, r *http.Request, who string) error {
	return p.removeNamed(ctx, r, who, monitor.ActionRemovePath, "path", func(o monitor.Overview, name string) bool {
		return slices.ContainsFunc(o.Paths, func(p monitor.PathView) bool { return p.Name == name })
	})
}

func (p *monitorPart) removeNamed(ctx context.Context, r *http.Request, who string, verb monitor.ActionType, noun string, known func(monitor.Overview, string) bool) error {
	name, note := r.PathValue(noun), r.URL.Query().Get("note")
	if err := lease.ValidateText("note", note, 0, monitor.MaxName); err != nil {
		return err
	}
	o, err := p.table.Overview(ctx)
	if err != nil {
		return err
	}
	if !known(o, name) {
		return fmt.Errorf("%w: no such %s: %.200q", lease.ErrNotFound, noun, name)
	}
	defer p.snapshot.invalidate()
	return p.table.ApplyAction(ctx, monitor.Action{Type: verb, Source: name, Who: who, Note: note})
}
