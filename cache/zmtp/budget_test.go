package zmtp

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Readers that do not read are bounded together: the one with the most waiting is cut first, one that reads never.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 8 << 20
		budget := NewBudget(limit)
		w, h := observe()
		cfg := Config{Kind: ROUTER, Handler: h, Queue: 4 << 20, Budget: budget}
		m := Message{make([]byte, 64<<10)}
		var silent []*Conn
		for range 6 {
			c, _ := pipeConn(t, cfg)
			silent = append(silent, c)
		}
		good := slowConn(t, cfg, 3, time.Millisecond)
		fill := func() (refused int) {
			for i := range 1000 {
				if !silent[i%len(silent)].Send(m) {
					refused++
				}
				if got := budget.Waiting(); got > limit {
					t.Fatalf("%d bytes wait, of %d", got, limit)
				}
			}
			return refused
		}
		most := silent[3]
		for most.Send(m) { // until its queue is full
		}
		if fill() == 0 || len(w.down) > 0 {
			t.Error("nothing is refused, or someone is cut of whom it is not known yet that it does not read")
		}
		if !good.Send(m) {
			t.Error("those that do not read leave no room for others")
		}
		time.Sleep(2500 * time.Millisecond) // WriteTimeout is 10 s
		if !silent[0].Send(m) {
			t.Error("nobody is cut although there is no room")
		}
		if err := recv(t, "end", w.down); !errors.Is(err, ErrSlow) || !most.dead.Load() {
			t.Errorf("ended with %v, and the one with the most waiting is cut: %t", err, most.dead.Load())
		}
		synctest.Wait()
		if len(w.down) > 0 {
			t.Errorf("another one is cut although there is room: %v", <-w.down)
		}
		time.Sleep(time.Minute)
		if got := budget.Waiting(); good.dead.Load() || len(w.down) != 5 || got > 0 {
			t.Errorf("the reader is cut: %t, %d of 5 that do not read are, and %d bytes wait", good.dead.Load(), len(w.down), got)
		}
		silent[0], _ = pipeConn(t, cfg)
		silent[0].Send(m)
		silent[0].Close()
		good.Close()
		if got := budget.Waiting(); got != 0 || len(budget.boxes) != 0 {
			t.Errorf("%d bytes of %d connections are still counted", got, len(budget.boxes))
		}
	})
}

// Those who read get what there is room for, and none of them is cut, however many there are and however slow.
func TestBudgetOfReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, h := observe()
		cfg := Config{Kind: ROUTER, Handler: h, Budget: NewBudget(8 << 20)}
		var all []*Conn
		for range 12 {
			all = append(all, slowConn(t, cfg, 1<<20/10, 100*time.Millisecond))
		}
		m := Message{make([]byte, 1<<20)}
		sent := map[*Conn]int{}
		for round := range 100 {
			for i := range all {
				if c := all[(i+round)%len(all)]; c.Send(m) {
					sent[c]++
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		if len(w.down) > 0 {
			t.Fatalf("one that reads is cut: %v", <-w.down)
		}
		for i, c := range all {
			if sent[c] == 0 || c.Dropped() == 0 {
				t.Errorf("connection %d: %d messages, %d refused", i, sent[c], c.Dropped())
			}
		}
	})
}

// Those that take next to nothing, however many, keep the others from nothing for long.
func TestBudgetOfTricklers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, h := observe()
		cfg := Config{Kind: ROUTER, Handler: h, Budget: NewBudget(8 << 20)}
		var all []*Conn
		for range 80 {
			all = append(all, slowConn(t, cfg, 1, 400*time.Millisecond))
		}
		for _, size := range []int{1 << 20, 64 << 10, 4 << 10, 100} {
			m := Message{make([]byte, size)}
			for range 60 {
				for _, c := range all {
					c.Send(m)
				}
			}
		}
		good := slowConn(t, cfg, 64<<10, time.Millisecond)
		if good.Send(Message{make([]byte, 1000)}) {
			t.Error("the budget is not used up")
		}
		time.Sleep(2500 * time.Millisecond) // WriteTimeout is 10 s
		if !good.Send(Message{make([]byte, 1<<20)}) || !good.Send(Message{make([]byte, 100)}) {
			t.Error("those that take a byte now and then keep all that there is from one for which nothing waits")
		}
		if err := recv(t, "end", w.down); !errors.Is(err, ErrSlow) || good.dead.Load() {
			t.Errorf("ended with %v, and the one that reads is cut: %t", err, good.dead.Load())
		}
	})
}

// A message has room on each of some connections if the budget has it for all of them, and what was written of it no longer
// counts, nor takes memory, while the rest waits.
func TestBudgetCountsWhatIsUnwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 4 << 20
		budget := NewBudget(4*size + size)
		m := Message{make([]byte, size)}
		before := heap()
		for range 4 {
			if !slowConn(t, Config{Kind: ROUTER, Budget: budget}, size/8, time.Second).Send(m) {
				t.Error("a message is refused that has room")
			}
		}
		time.Sleep(5500 * time.Millisecond) // six eighths of each are read
		if got := budget.Waiting(); got > size+4*writeChunk {
			t.Errorf("%d bytes are counted, and no more than %d are unwritten", got, size)
		}
		if got := heap() - before; got > 3*size {
			t.Errorf("they take %d bytes of memory", got)
		}
	})
}

// Answers to PINGs are bounded like messages.
func TestBudgetOfPongs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := NewBudget(96 << 10)
		pings := bytes.Repeat(unhex(t, `04 17 04 "PING" 0000 "0123456789abcdef"`), 10_000)
		for want := range slices.Values([]int64{maxPongs, 96 << 10}) {
			_, far := pipeConn(t, Config{Kind: ROUTER, Budget: budget})
			if _, err := far.Write(pings); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := budget.Waiting(); got > want+100 || got < want-100 {
				t.Errorf("%d bytes of PONGs wait, %d may", got, want)
			}
		}
	})
}

// heap is how many bytes are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
