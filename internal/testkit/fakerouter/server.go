package fakerouter

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// Request is one that was received.
type Request struct {
	Method          string
	Topic           string
	Group, Consumer string
	Wait            time.Duration // as the router understood it
	Limit           int
	ContentType     string
	Body            string
}

// Server is a router on a port of loopback. It is closed when its test ends.
type Server struct {
	t       testing.TB
	address string

	mu             sync.Mutex
	down           func() // nil while it is down
	topics         map[string]*topic
	polls          map[string]bool // by topic, group and consumer
	faults         []Fault
	requests       []Request
	delay          time.Duration
	user, password string
	pretty         bool
	objects        bool
	changed        chan struct{} // closed when something was published
}

type topic struct {
	messages []string
	groups   map[string]*group
}

// group reads a topic; one of its consumers at a time.
type group struct {
	turn   sync.Mutex
	offset int // by Server.mu
}

// New starts a router.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{
		t: t, address: realserver.FreeAddress(t), topics: map[string]*topic{}, polls: map[string]bool{}, changed: make(chan struct{}),
	}
	s.Up()
	t.Cleanup(s.Down)
	return s
}

// URL of a topic, which exists from then on.
func (s *Server) URL(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open(name)
	return "http://" + s.address + "/events/" + name
}

func (s *Server) open(name string) *topic {
	if s.topics[name] == nil {
		s.topics[name] = &topic{groups: map[string]*group{}}
	}
	return s.topics[name]
}

// Publish puts messages into a topic, whatever they are.
func (s *Server) Publish(name string, messages ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.open(name)
	t.messages = append(t.messages, messages...)
	close(s.changed)
	s.changed = make(chan struct{})
}

// Messages are all that were ever published to a topic.
func (s *Server) Messages(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.open(name).messages)
}

// Offset is how many messages of a topic a group has read.
func (s *Server) Offset(name, groupName string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.open(name).groups[groupName]; g != nil {
		return g.offset
	}
	return 0
}

// Requests are all that were received.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Fail makes the next requests meet these faults, one each, in this order.
func (s *Server) Fail(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// Failures is how many faults no request has met yet.
func (s *Server) Failures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.faults)
}

// Slow delays every request from now on.
func (s *Server) Slow(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// Guard demands basic authentication.
func (s *Server) Guard(user, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.user, s.password = user, password
}

// Pretty ends every item of an answer with a newline.
func (s *Server) Pretty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pretty = true
}

// Objects gives messages as they stand, and not as texts that contain them. A message that is no
// JSON then breaks the answer.
func (s *Server) Objects() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects = true
}

// Down stops listening and breaks all connections. Topics are kept.
func (s *Server) Down() {
	s.mu.Lock()
	down := s.down
	s.down = nil
	s.mu.Unlock()
	if down != nil {
		down()
	}
}

// Up listens again, at the same address.
func (s *Server) Up() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return
	}
	listener, err := listen(s.t.Context(), s.address)
	if err != nil {
		s.t.Fatalf("message router: %v", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	s.down = func() {
		// It may not have started to listen, or have just let someone in.
		_ = server.Close()
		<-served
		_ = server.Close()
	}
}

// listen tries for a while: the port may be in use for a moment by a connection that ends.
func listen(ctx context.Context, address string) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err == nil {
			return listener, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// arrive records a request, and returns the fault that it meets and how long it is delayed.
func (s *Server) arrive(r Request) (Fault, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	at := slices.IndexFunc(s.faults, func(f Fault) bool { return cmp.Or(f.Method, r.Method) == r.Method })
	if at < 0 {
		return Fault{}, s.delay
	}
	f := s.faults[at]
	s.faults = slices.Delete(s.faults, at, at+1)
	return f, s.delay + f.Delay
}
