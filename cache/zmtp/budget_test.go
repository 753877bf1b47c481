package zmtp

import (
	"errors"
	"testing"
)

// Readers that do not read are bounded together: the one with the most waiting is cut first, one that reads never.
func TestBudget(t *testing.T) {
	const limit = 8 << 20
	budget := NewBudget(limit)
	w, h := observe()
	l := listen(t, Config{Kind: ROUTER, Handler: h, Queue: 4 << 20, Budget: budget})
	m := Message{make([]byte, 64<<10)}
	var silent []*Conn
	for range 6 {
		r := rawDial(t, l.Addr())
		r.send(greeting31 + readyDEALER)
		silent = append(silent, recv(t, "connection", w.up))
	}
	reader := rawDial(t, l.Addr())
	reader.send(greeting31 + readyDEALER)
	reader.expect("greeting, READY", greeting31+readyROUTER)
	good := recv(t, "connection", w.up)
	most := silent[3]
	for most.Send(m) { // until its queue is full
	}
	cut := 0
	for i := 0; cut == 0; i++ {
		if c := silent[i%len(silent)]; c != most {
			c.Send(m)
		}
		if got := budget.Waiting(); got > limit {
			t.Fatalf("%d bytes wait, of %d", got, limit)
		}
		select {
		case err := <-w.down:
			if !errors.Is(err, ErrSlow) || !most.dead.Load() {
				t.Fatalf("ended with %v, and the one with the most waiting is cut: %t", err, most.dead.Load())
			}
			cut++
		default:
		}
	}
	good.Send(text("x"))
	reader.expect("message", `0001 "x"`)
	_ = l.Close()
	if got := budget.Waiting(); got != 0 || len(budget.boxes) != 0 {
		t.Errorf("%d bytes of %d connections are still counted", got, len(budget.boxes))
	}
}
