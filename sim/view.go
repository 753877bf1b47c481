package sim

import (
	"context"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

// frozen is a node's view of the store: a frozen process neither sends a request
// nor takes an answer in.
type frozen struct {
	leasetest.Target
	process *process
	timing  lease.Timing // that its sessions really have
}

func through[T any](p *process, op func() (T, error)) (T, error) {
	p.stumble()
	v, err := op()
	p.stumble()
	return v, err
}

func (f frozen) tell(op func() error) error {
	_, err := through(f.process, func() (struct{}, error) { return struct{}{}, op() })
	return err
}

func (f frozen) StartSession(ctx context.Context, s lease.Session) (lease.Renewal, error) {
	s.Timing = f.timing
	return through(f.process, func() (lease.Renewal, error) { return f.Target.StartSession(ctx, s) })
}

func (f frozen) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	return through(f.process, func() (lease.Renewal, error) { return f.Target.RenewSession(ctx, id) })
}

func (f frozen) EndSession(ctx context.Context, id, reason string) error {
	return f.tell(func() error { return f.Target.EndSession(ctx, id, reason) })
}

func (f frozen) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	return through(f.process, func() (lease.Lease, error) { return f.Target.Acquire(ctx, c) })
}

func (f frozen) Release(ctx context.Context, h lease.ReleaseRequest) error {
	return f.tell(func() error { return f.Target.Release(ctx, h) })
}

func (f frozen) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	return through(f.process, func() (lease.Lease, error) { return f.Target.Get(ctx, id) })
}

func (f frozen) Watch(ctx context.Context, wake func(lease.Change)) error {
	return f.Target.Watch(ctx, func(c lease.Change) { f.process.gate.run(func() { wake(c) }) })
}

func (f frozen) Join(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	return through(f.process, func() (lease.Lease, error) { return f.Target.Join(ctx, id, session) })
}

func (f frozen) Leave(ctx context.Context, id lease.ID, session string) error {
	return f.tell(func() error { return f.Target.Leave(ctx, id, session) })
}

func (f frozen) WriteState(ctx context.Context, id lease.ID, term int64, data []byte) error {
	return f.tell(func() error { return f.Target.WriteState(ctx, id, term, data) })
}

func (f frozen) ReadState(ctx context.Context, id lease.ID) (lease.State, error) {
	return through(f.process, func() (lease.State, error) { return f.Target.ReadState(ctx, id) })
}

// server is the store's process: while it is frozen, none of the requests below is served. Leave and what operators ask
// (List, Waiters, RequestRelease, Sessions, Forget, Spaces) pass, as they did when the seeds in testdata failed.
type server struct {
	leasetest.Target
	gate *gate
}

func (s server) StartSession(ctx context.Context, n lease.Session) (lease.Renewal, error) {
	s.gate.wait()
	return s.Target.StartSession(ctx, n)
}

func (s server) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	s.gate.wait()
	return s.Target.RenewSession(ctx, id)
}

func (s server) EndSession(ctx context.Context, id, reason string) error {
	s.gate.wait()
	return s.Target.EndSession(ctx, id, reason)
}

func (s server) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	s.gate.wait()
	return s.Target.Acquire(ctx, c)
}

func (s server) Release(ctx context.Context, h lease.ReleaseRequest) error {
	s.gate.wait()
	return s.Target.Release(ctx, h)
}

func (s server) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	s.gate.wait()
	return s.Target.Get(ctx, id)
}

func (s server) Join(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	s.gate.wait()
	return s.Target.Join(ctx, id, session)
}

func (s server) WriteState(ctx context.Context, id lease.ID, term int64, data []byte) error {
	s.gate.wait()
	return s.Target.WriteState(ctx, id, term, data)
}

func (s server) ReadState(ctx context.Context, id lease.ID) (lease.State, error) {
	s.gate.wait()
	return s.Target.ReadState(ctx, id)
}
