package api

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// errNoQueues: the store is one of those that cannot divide work.
var errNoQueues = errors.New("this server's store keeps no queues; SQLite and PostgreSQL do")

// QueueView is a queue at a glance, as every surface shows it in JSON.
type QueueView struct {
	Queue string `json:"queue"`
	// Depth is how many batches are not over, Done how many are, ever.
	Depth int64 `json:"depth"`
	Done  int64 `json:"done"`
	// Rate of those that were done, by the second; missing until there were two looks.
	Rate     *float64 `json:"rate_per_s,omitempty"`
	OldestMS int64    `json:"oldest_ms"`
	// Keys that have batches waiting, and how many of them are which.
	Keys     int64        `json:"keys"`
	InFlight int64        `json:"in_flight"`
	Pending  int64        `json:"pending"`
	Delayed  int64        `json:"delayed"`
	Blocked  int64        `json:"blocked"`
	Holders  []HolderView `json:"holders"`
	// BlockedKeys are the first of them; only the state has them.
	BlockedKeys []KeyView `json:"blocked_keys,omitempty"`
}

// HolderView is how many keys of a queue an instance holds.
type HolderView struct {
	Instance lease.Instance `json:"instance"`
	Keys     int            `json:"keys"`
	Asleep   bool           `json:"asleep"`
}

// KeyView is a key of a queue, as every surface shows it in JSON.
type KeyView struct {
	Key   string `json:"key"`
	Depth int64  `json:"depth"`
	// Head is the batch whose turn it is, and its state.
	Head     string          `json:"head,omitempty"`
	State    dispatch.State  `json:"state,omitempty"`
	Holder   *lease.Instance `json:"holder,omitempty"`
	Term     int64           `json:"term"`
	InFlight bool            `json:"in_flight"`
	Blocked  bool            `json:"blocked"`
	Reason   string          `json:"reason,omitempty"`
	// WaitingMS is how long the head is there, NextMS when it is tried again.
	WaitingMS int64 `json:"waiting_ms"`
	NextMS    int64 `json:"next_ms,omitempty"`
}

// ViewQueue shows a queue; its lists are never null.
func ViewQueue(o dispatch.Overview) QueueView {
	out := QueueView{
		Queue: o.Queue, Depth: o.Depth, Done: o.Done, OldestMS: o.Oldest.Milliseconds(),
		Keys: o.Keys, InFlight: o.InStep, Pending: o.Pending, Delayed: o.Delayed, Blocked: o.Blocked,
		Holders: make([]HolderView, 0, len(o.Holders)),
	}
	for _, h := range o.Holders {
		out.Holders = append(out.Holders, HolderView(h))
	}
	return out
}

// ViewKey shows a key.
func ViewKey(k dispatch.KeyRecord) KeyView {
	out := KeyView{
		Key: k.Key, Depth: k.Depth, Head: k.Head, State: k.State, Term: k.Term, InFlight: k.InStep,
		Blocked: k.Blocked, Reason: k.Reason, WaitingMS: k.Waiting.Milliseconds(), NextMS: k.Next.Milliseconds(),
	}
	if k.Holder.ID != "" {
		out.Holder = &k.Holder
	}
	return out
}

// deskOf returns the desk of a store that has one.
func deskOf(st store.Store) dispatch.Desk {
	if q, ok := st.(store.Queues); ok {
		return q.Desk()
	}
	return nil
}

// withDesk are the handlers of queues: without a desk they have nothing to say.
func (s *Server) withDesk(handle func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if s.desk == nil {
			return errNoQueues
		}
		return handle(w, r)
	}
}

func (s *Server) listQueues(w http.ResponseWriter, r *http.Request) error {
	queues, err := s.queues.views(r.Context(), queueFresh)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"queues": queues})
}

func (s *Server) makeQueue(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Queue string `json:"queue"`
	}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	if err := dispatch.ValidateQueue(body.Queue); err != nil {
		return err
	}
	if err := s.desk.Make(r.Context(), body.Queue); err != nil {
		return err
	}
	s.queues.forget()
	w.Header().Set("Location", "/v1/queues/"+body.Queue)
	return writeJSON(w, http.StatusOK, map[string]string{"queue": body.Queue})
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
	keys, err := s.desk.Keys(r.Context(), q)
	if err != nil {
		return err
	}
	out := struct {
		Keys []KeyView `json:"keys"`
		Next string    `json:"next,omitempty"` // what to ask for with after, if there may be more
	}{Keys: make([]KeyView, 0, len(keys))}
	for _, k := range keys {
		out.Keys = append(out.Keys, ViewKey(k))
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

// by tells who asked for a change: the token that was shown, what the caller says of itself, and the address
// it came from. Of these, a caller can only choose what it says.
func by(r *http.Request, said string) (string, error) {
	if err := lease.ValidateText("by", said, 0, lease.MaxName/2); err != nil {
		return "", err
	}
	if strings.Contains(said, "token ") {
		// The history says which token was shown, and nobody is to say it for it.
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
