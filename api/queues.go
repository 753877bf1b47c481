package api

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// errNoQueues: the store is one of those that cannot divide work.
var errNoQueues = errors.New("this server's store keeps no queues; SQLite and PostgreSQL do")

// ViewQueue shows a queue; its lists are never null.
func ViewQueue(o dispatch.Overview) apitype.Queue {
	out := apitype.Queue{
		Queue: o.Queue, Depth: o.Depth, Done: o.Done, OldestMS: o.Oldest.Milliseconds(),
		Keys: o.Keys, InFlight: o.InStep, Pending: o.Pending, Delayed: o.Delayed, Blocked: o.Blocked,
		Holders: make([]apitype.Holder, 0, len(o.Holders)),
	}
	for _, h := range o.Holders {
		out.Holders = append(out.Holders, apitype.Holder{Instance: viewInstance(h.Instance), Keys: h.Keys, Asleep: h.Asleep})
	}
	return out
}

// viewKey shows a key.
func viewKey(k dispatch.KeyRecord) apitype.Key {
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

func (s *Server) listQueues(w http.ResponseWriter, r *http.Request) error {
	queues, err := s.queues.views(r.Context(), queueFresh)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, apitype.Queues{Queues: queues})
}

func (s *Server) makeQueue(w http.ResponseWriter, r *http.Request) error {
	var body apitype.QueueName
	if err := readJSON(r, &body); err != nil {
		return err
	}
	if err := dispatch.ValidateQueue(body.Queue); err != nil {
		return err
	}
	if err := s.queueAdmin.CreateQueue(r.Context(), body.Queue); err != nil {
		return err
	}
	s.queues.invalidate()
	w.Header().Set("Location", "/v1/queues/"+body.Queue)
	return writeJSON(w, http.StatusOK, body)
}

func (s *Server) getQueue(w http.ResponseWriter, r *http.Request) error {
	name, err := queueName(r)
	if err != nil {
		return err
	}
	queues, err := s.queues.views(r.Context(), queueFresh)
	if err != nil {
		return err
	}
	for _, q := range queues {
		if q.Queue == name {
			return writeJSON(w, http.StatusOK, q)
		}
	}
	return fmt.Errorf("%w: %s", dispatch.ErrNoQueue, name)
}

func (s *Server) listKeys(w http.ResponseWriter, r *http.Request) error {
	q := dispatch.KeyQuery{After: r.URL.Query().Get("after")}
	var err error
	if q.Queue, err = queueName(r); err != nil {
		return err
	}
	if err := lease.ValidateText("after", q.After, 0, lease.MaxKey); err != nil {
		return err
	}
	if q.Blocked, err = flag(r, "blocked"); err != nil {
		return err
	}
	if q.Idle, err = flag(r, "idle"); err != nil {
		return err
	}
	limit, err := number(r, "limit", 1, dispatch.MaxPage, 100)
	if err != nil {
		return err
	}
	q.Limit = int(limit)
	keys, err := s.queueAdmin.Keys(r.Context(), q)
	if err != nil {
		return err
	}
	out := apitype.Keys{Keys: make([]apitype.Key, 0, len(keys))}
	for _, k := range keys {
		out.Keys = append(out.Keys, viewKey(k))
		if len(out.Keys) == q.Limit {
			out.Next = k.Key
		}
	}
	return writeJSON(w, http.StatusOK, out)
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
	if strings.Contains(said, "token ") {
		// Only the token itself may put its name into the history: a caller must not pose as another.
		return "", fmt.Errorf("%w: by is %q: leave the token out; the history adds the one that was shown", lease.ErrInvalid, said)
	}
	who, shown := cmp.Or(said, "somebody"), callerOf(r.Context())
	switch {
	case shown.token.ID != "" && said != "":
		who = said + " with token " + shown.token.Name
	case shown.token.ID != "":
		who = "token " + shown.token.Name
	case shown.config != nil && said == "":
		who = "token " + access.Config
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		who += " (" + host + ")"
	}
	return who, nil
}
