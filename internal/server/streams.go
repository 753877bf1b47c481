package server

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/monitor/intake"
)

// streamsRestart is how long a stream that failed for good stays down.
const streamsRestart = time.Second

// onapStreams are the intake and the sink that ONAP's configuration names. They run on the active instance alone: all
// instances get one configuration, and a router refuses two consumers of one ID. While no instance is active the topic
// keeps its messages, and its path counts as blind.
type onapStreams struct {
	mon     *servedMonitor
	running sync.WaitGroup

	// Of the active instance's goroutine.
	now   settings.Streams
	stop  context.CancelFunc
	ended chan struct{} // closed when what ran last has ended; nil if nothing has run

	broken atomic.Bool // the sink has ended

	mu     sync.Mutex
	router *intake.Router // nil if none runs, as what follows
	sink   *dispatch.Dispatcher
}

// apply runs these streams until ctx ends, in place of those that run. When it has returned nil, alarms are stored for
// the sink. failed is called when they must be applied again.
func (o *onapStreams) apply(ctx context.Context, want settings.Streams, failed func()) error {
	if want == o.now && o.stop != nil && !o.broken.Swap(false) {
		return nil
	}
	o.end()
	router, err := o.makeRouter(want)
	if err != nil {
		return err
	}
	sinks := o.mon.cfg.SinkNames()
	var queue servedQueue
	if s := want.Sink(o.mon.cfg.Windows().First); s != nil {
		if queue, err = o.mon.makeSink(ctx, s); err != nil {
			return err
		}
		sinks = append(sinks, s.Sink)
	}
	o.mon.watcher.SetSinks(sinks)
	if err := o.mon.watcher.Register(ctx); err != nil {
		return err
	}
	o.mu.Lock()
	o.router, o.sink = router, queue.dispatcher
	o.mu.Unlock()
	o.start(ctx, router, queue.dispatcher, failed)
	o.now = want
	return nil
}

// start runs them. A router that is still in its last poll is waited for: two polls of one consumer are refused.
func (o *onapStreams) start(ctx context.Context, router *intake.Router, sink *dispatch.Dispatcher, failed func()) {
	ctx, o.stop = context.WithCancel(ctx)
	before, ended := o.ended, make(chan struct{})
	o.ended = ended
	var parts sync.WaitGroup
	if router != nil {
		parts.Go(func() {
			if before != nil {
				<-before
			}
			o.mon.poll(ctx, router)
		})
	}
	if sink != nil {
		parts.Go(func() {
			if err := sink.Run(ctx); err != nil && ctx.Err() == nil {
				o.mon.host.Log.Error("the sink of the configuration failed; restarting it", "queue", sink.Stats().Queue, "err", err)
				rest(ctx, streamsRestart)
				o.broken.Store(true)
				failed()
			}
		})
	}
	o.running.Go(func() { parts.Wait(); close(ended) })
}

// end stops what runs, and does not wait: a poll may last for seconds.
func (o *onapStreams) end() {
	if o.stop == nil {
		return
	}
	o.stop()
	o.stop, o.now = nil, settings.Streams{}
	o.mon.watcher.SetSinks(o.mon.cfg.SinkNames())
	o.mu.Lock()
	o.router, o.sink = nil, nil
	o.mu.Unlock()
}

func (o *onapStreams) makeRouter(want settings.Streams) (*intake.Router, error) {
	r := want.Router()
	if r == nil {
		return nil, nil
	}
	return o.mon.makeRouter(r, "")
}

// routers are all that this instance reads.
func (o *onapStreams) routers() []*intake.Router {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.router == nil {
		return o.mon.routers
	}
	return append(slices.Clip(o.mon.routers), o.router)
}

// stats are those of the sink; of no queue if there is none.
func (o *onapStreams) stats() dispatch.Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sink == nil {
		return dispatch.Stats{}
	}
	return o.sink.Stats()
}
