package zmtp

import (
	"fmt"
	"sync/atomic"
	"testing"
)

// benchShapes are connections and requests in flight on each.
var benchShapes = []struct{ conns, flight int }{{1, 1}, {16, 1}, {16, 8}}

// BenchmarkEcho has a ROUTER that answers at once, asked by DEALERs.
func BenchmarkEcho(b *testing.B) {
	payload := make([]byte, 100)
	request := Message{[]byte("1"), []byte("?"), payload}
	for _, s := range benchShapes {
		b.Run(fmt.Sprintf("conns=%d/flight=%d", s.conns, s.flight), func(b *testing.B) {
			echo(b, s.conns, s.flight, request, nil, nil)
		})
	}
}

// echo sends b.N requests and waits for the answers.
func echo(b *testing.B, conns, flight int, request Message, server, client Security) {
	l := listen(b, Config{Kind: ROUTER, Security: server, Handler: Handler{
		Message: func(c *Conn, m Message) { c.Send(m) },
	}})
	var left atomic.Int64
	done, ready := make(chan struct{}), make(chan *Conn, conns)
	var answered atomic.Int64
	for range conns {
		dial(b, l.Addr(), Config{Kind: DEALER, Security: client, Handler: Handler{
			Connected: func(c *Conn) { ready <- c },
			Message: func(c *Conn, _ Message) {
				if left.Add(-1) >= 0 {
					c.Send(request)
				}
				if answered.Add(1) == int64(b.N) {
					close(done)
				}
			},
		}})
	}
	all := make([]*Conn, conns)
	for i := range all {
		all[i] = recv(b, "connections", ready)
	}
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	for range flight {
		for _, c := range all {
			if left.Add(-1) >= 0 {
				c.Send(request)
			}
		}
	}
	<-done
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "echo/s")
}

// BenchmarkCurve is BenchmarkEcho with CURVE: four boxes more for each frame.
func BenchmarkCurve(b *testing.B) {
	server, client := pair()
	request := Message{[]byte("1"), []byte("?"), make([]byte, 100)}
	for _, s := range benchShapes {
		b.Run(fmt.Sprintf("conns=%d/flight=%d", s.conns, s.flight), func(b *testing.B) {
			echo(b, s.conns, s.flight, request, server, client)
		})
	}
}

// BenchmarkPublish is one message to three subscribers.
func BenchmarkPublish(b *testing.B) {
	l := listen(b, Config{Kind: PUB, Queue: 1 << 30})
	var got atomic.Int64
	done := make(chan struct{})
	for range 3 {
		dial(b, l.Addr(), Config{Kind: SUB, Subscribe: [][]byte{[]byte("*")}, Handler: Handler{
			Message: func(*Conn, Message) {
				if got.Add(1) == 3*int64(b.N) {
					close(done)
				}
			},
		}})
	}
	m := Message{[]byte("*"), make([]byte, 100)}
	probe := Message{[]byte("*probe")}
	probes := 0
	for n := 0; n < 3; probes += n {
		n = l.Publish(probe)
	}
	eventually(b, "the probes are over", func() bool { return got.Load() == int64(probes) })
	got.Store(0)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		l.Publish(m)
	}
	<-done
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkLarge is one value of a mebibyte at a time, there and back.
func BenchmarkLarge(b *testing.B) {
	server, client := pair()
	request := Message{[]byte("1"), make([]byte, 1<<20)}
	b.Run("NULL", func(b *testing.B) { b.SetBytes(2 << 20); echo(b, 1, 1, request, nil, nil) })
	b.Run("CURVE", func(b *testing.B) { b.SetBytes(2 << 20); echo(b, 1, 1, request, server, client) })
}
