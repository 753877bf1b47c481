package client

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

// hot is a server that answers as a peer does with a copy of 100 bytes.
func hot(b *testing.B) string {
	value := make([]byte, 100)
	l, err := zmtp.Listen("tcp://127.0.0.1:0", zmtp.Config{Kind: zmtp.ROUTER, Handler: zmtp.Handler{
		Connected: func(c *zmtp.Conn) { c.Value = new(wire.Encoder) },
		Message: func(c *zmtp.Conn, m zmtp.Message) {
			var q wire.Request
			if q.Decode(m) == nil {
				r := wire.Reply{ID: q.ID, Kind: wire.ReplyValue, Value: value, Expire: 1479145000000, Made: 1479145000000, Term: 1479145000000}
				c.Send(c.Value.(*wire.Encoder).Reply(&r, q.Extended))
			}
		},
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return l.Addr()
}

// BenchmarkGet has clients of their own or one for all, each goroutine with one
// request in flight.
func BenchmarkGet(b *testing.B) {
	for _, c := range []struct{ clients, each int }{{1, 1}, {1, 16}, {16, 1}, {16, 8}} {
		b.Run(fmt.Sprintf("clients=%d/flight=%d", c.clients, c.each), func(b *testing.B) { gets(b, c.clients, c.each) })
	}
}

func gets(b *testing.B, clients, each int) {
	addr := hot(b)
	var all []*Client
	for range clients {
		c := dial(b, Config{Servers: []string{addr}, Timeout: 5 * time.Second})
		if _, err := c.Get(b.Context(), "some/key", Options{}); err != nil {
			b.Fatal(err)
		}
		all = append(all, c)
	}
	took := make([][]time.Duration, clients*each)
	var group sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for g := range took {
		c, n := all[g%clients], b.N/len(took)+1
		group.Go(func() {
			took[g] = make([]time.Duration, 0, n)
			for range n {
				begin := time.Now()
				if _, err := c.Get(context.Background(), "some/key", Options{}); err != nil {
					b.Error(err)
					return
				}
				took[g] = append(took[g], time.Since(begin))
			}
		})
	}
	group.Wait()
	b.StopTimer()
	every := slices.Concat(took...)
	slices.Sort(every)
	b.ReportMetric(float64(len(every))/b.Elapsed().Seconds(), "gets/s")
	b.ReportMetric(float64(every[len(every)/2].Nanoseconds())/1000, "p50-µs")
	b.ReportMetric(float64(every[len(every)*99/100].Nanoseconds())/1000, "p99-µs")
}
