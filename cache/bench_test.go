package cache

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/wire"
	"github.com/understudy-ha/understudy/cache/zmtp"
)

// asker is a client with a number of requests in flight on one connection.
type asker struct {
	dialer  *zmtp.Dialer
	encoder wire.Encoder
	request wire.Request
	left    int
	done    chan struct{}
	sent    time.Time
	took    []time.Duration
}

func newAsker(b *testing.B, api, key string) *asker {
	a := &asker{done: make(chan struct{}), request: wire.Request{
		ID: []byte("1"), Op: wire.OpGet, Expire: time.Now().Add(time.Hour).UnixMilli(), Key: []byte(key), Extended: true, Patience: 5000,
	}}
	connected := make(chan struct{})
	var err error
	a.dialer, err = zmtp.Dial(api, zmtp.Config{Kind: zmtp.DEALER, Handler: zmtp.Handler{
		Connected: func(*zmtp.Conn) { close(connected) },
		Message: func(c *zmtp.Conn, m zmtp.Message) {
			var r wire.Reply
			if err := r.Decode(m); err != nil || r.Kind != wire.ReplyValue {
				b.Errorf("reply %v, %v", r.Kind, err)
			}
			if a.took != nil {
				a.took = append(a.took, time.Since(a.sent))
			}
			if a.left--; a.left > 0 {
				a.ask()
			} else if a.left == 0 {
				a.done <- struct{}{}
			}
		},
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = a.dialer.Close() })
	<-connected
	return a
}

func (a *asker) ask() {
	a.sent = time.Now()
	a.dialer.Send(a.encoder.Request(&a.request))
}

// BenchmarkHot asks one peer for one key that it has, over TCP, the clients
// in the same process.
func BenchmarkHot(b *testing.B) {
	for _, load := range []struct{ clients, inFlight int }{{1, 1}, {16, 1}, {16, 8}} {
		b.Run(fmt.Sprintf("clients=%d/flight=%d", load.clients, load.inFlight), func(b *testing.B) {
			c := newCluster(b, 1, func(context.Context, Fetch) (Value, error) { return Value{Data: make([]byte, 100)}, nil }, nil).settled()
			if _, err := c.peers[0].Get(c.ctx(), "hot", GetOptions{}); err != nil {
				b.Fatal(err)
			}
			var askers []*asker
			for range load.clients {
				askers = append(askers, newAsker(b, c.members[0].API, "hot"))
			}
			if load.clients == 1 {
				askers[0].took = make([]time.Duration, 0, b.N)
			}
			each := (b.N + len(askers) - 1) / len(askers)
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for _, a := range askers {
				all.Go(func() {
					a.left = max(each, load.inFlight)
					for range load.inFlight {
						a.ask()
					}
					<-a.done
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "gets/s")
			if hits := c.peers[0].Stats().Hits; hits < int64(b.N) {
				b.Errorf("%d hits for %d gets", hits, b.N)
			}
			if took := askers[0].took; took != nil {
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-µs")
			}
		})
	}
}

// BenchmarkCold asks all three peers at once for keys that nobody has, of a source
// that takes no time: what is measured is the agreement.
func BenchmarkCold(b *testing.B) {
	c := newCluster(b, 3, echo, nil).settled()
	took := make([]time.Duration, 0, 3*b.N)
	var mu sync.Mutex
	for i := 0; b.Loop(); i++ {
		key := fmt.Sprint("key ", i)
		var all sync.WaitGroup
		for _, p := range c.peers {
			all.Go(func() {
				began := time.Now()
				if _, err := p.Get(context.Background(), key, GetOptions{}); err != nil {
					b.Error(err)
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			})
		}
		all.Wait()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(took[len(took)-1].Microseconds()), "max-µs")
	b.ReportMetric(float64(c.calls.Load())/float64(b.N), "fetches/key")
}
