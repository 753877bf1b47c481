package api

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// errNoQueues: the store is one of those that cannot divide work.
var errNoQueues = errors.New("this server's store keeps no queues; SQLite and PostgreSQL do")

// ViewQueue shows a queue; its lists are never null.
func ViewQueue(o dispatch.Overview) apitype.Queue {
	return apitype.Queue{
		Queue: o.Queue, Depth: o.Depth, Done: o.Done, DeadLetters: o.DeadLetters, Scheduled: o.Scheduled, OldestMS: o.Oldest.Milliseconds(),
		Keys: o.Keys, InFlight: o.InStep, Pending: o.Pending, Delayed: o.Delayed, Blocked: o.Blocked,
		Holders: views(o.Holders, func(h dispatch.HolderCount) apitype.Holder {
			return apitype.Holder{Instance: viewInstance(h.Instance), Keys: h.Keys, Asleep: h.Asleep}
		}),
	}
}

// ViewKey shows a key.
func ViewKey(k dispatch.KeyRecord) apitype.Key {
	return apitype.Key{
		Key: k.Key, Depth: k.Depth, Head: k.Head, State: string(k.State), Term: k.Term, InFlight: k.InStep,
		Blocked: k.Blocked, Reason: k.Reason, WaitingMS: k.Waiting.Milliseconds(), NextMS: k.Next.Milliseconds(),
		Holder: holderOf(k.Holder),
	}
}

// queueAdminOf returns the administration of the store's queues; nil if the store keeps none.
func queueAdminOf(st store.Store) dispatch.Admin {
	if q, ok := st.(store.Queues); ok {
		return q.QueueAdmin()
	}
	return nil
}

func (s *Server) checkQueues(*http.Request) error {
	if s.queueAdmin == nil {
		return errNoQueues
	}
	return nil
}

func (s *Server) listQueues(r *http.Request) (out apitype.Queues, err error) {
	q := queryOf(r)
	after, text, limit := q.name("after"), q.name("contains"), q.limit(dispatch.MaxPage)
	if q.err != nil {
		return out, q.err
	}
	queues, at, err := s.queues.views(r.Context(), queueFresh)
	name := func(q apitype.Queue) string { return q.Queue }
	out.At = at
	out.Queues, out.Next = pageOf(matching(queues, text, name), after, limit, name)
	return out, err
}

func (s *Server) createQueue(w http.ResponseWriter, r *http.Request) error {
	body, err := bodyOf[apitype.QueueName](r)
	if err != nil {
		return err
	}
	if err := dispatch.ValidateQueue(body.Queue); err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/queues/"+body.Queue)
	known, err := s.queueAdmin.Queues(r.Context())
	if err != nil {
		return err
	}
	if slices.ContainsFunc(known, func(q dispatch.Overview) bool { return q.Queue == body.Queue }) {
		return writeJSON(w, http.StatusOK, body)
	}
	if len(known) >= maxQueues {
		return fmt.Errorf("%w: there are %d queues, and at most %d are allowed; remove some (understudy queue remove)", errQuota, len(known), maxQueues)
	}
	trace := acts{s.cfg.Store, s.log}
	if err := s.queueAdmin.CreateQueue(r.Context(), body.Queue); err != nil {
		trace.recordUnknown(r, err, "batch", body.Queue, "queue creation", "")
		return err
	}
	s.queues.invalidate()
	trace.record(r, "batch", body.Queue, "queue created", "")
	return writeJSON(w, http.StatusCreated, body)
}

func (s *Server) getQueue(r *http.Request) (out apitype.Queue, err error) {
	name, err := queueName(r)
	if err != nil {
		return out, err
	}
	queues, _, err := s.queues.views(r.Context(), queueFresh)
	if err != nil {
		return out, err
	}
	for _, q := range queues {
		if q.Queue == name {
			return q, nil
		}
	}
	return out, fmt.Errorf("%w: %s", dispatch.ErrNoQueue, name)
}

func (s *Server) listKeys(r *http.Request) (out apitype.Keys, err error) {
	queue, err := queueName(r)
	if err != nil {
		return out, err
	}
	params := queryOf(r)
	q := dispatch.KeyQuery{
		Queue: queue, After: params.stored("after"), Blocked: params.flag("blocked"), Idle: params.flag("idle"), Limit: params.limit(dispatch.MaxPage),
	}
	if params.err != nil {
		return out, params.err
	}
	keys, err := s.queueAdmin.Keys(r.Context(), q)
	next := nextAfter(keys, q.Limit, func(k dispatch.KeyRecord) string { return k.Key })
	return apitype.Keys{Keys: views(keys, ViewKey), Next: next}, err
}

func queueName(r *http.Request) (string, error) {
	name := r.PathValue("queue")
	return name, dispatch.ValidateQueue(name)
}

// requesterOf tells who asked for a change: the token that was shown, what the caller says of itself, and the address
// it came from. Of these, a caller can only choose what it says.
func requesterOf(r *http.Request, said string) (string, error) {
	if err := lease.ValidateText("by", said, 0, lease.MaxName/2); err != nil {
		return "", err
	}
	// Only the token itself may put its name into the history: a caller must not pose as another, nor in letters that look
	// alike.
	if low := strings.ToLower(said); strings.Contains(low, "token") || strings.Contains(low, "certificate") {
		return "", fmt.Errorf("%w: by is %q: leave token and certificate out; the history adds the one that was shown", lease.ErrInvalid, said)
	}
	if strings.IndexFunc(said, func(c rune) bool { return c < ' ' || c > '~' }) >= 0 {
		return "", fmt.Errorf("%w: by is %q: use ASCII", lease.ErrInvalid, said)
	}
	who, shown := cmp.Or(said, "somebody"), callerOf(r.Context())
	switch {
	case shown.token.ID != "":
		who = "token " + shown.token.Name
		if shown.certificate {
			who = "certificate " + shown.token.Name
		}
		if said != "" {
			who = said + " with " + who
		}
	case shown.config != nil && said == "":
		who = shown.operator
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		who += " (" + host + ")"
	}
	return who, nil
}
