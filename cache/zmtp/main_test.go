package zmtp

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventually waits for something that other goroutines do; the machine may be busy.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(end) {
			t.Fatalf("gave up waiting: %s", what)
		}
		<-tick.C
	}
}

// recv waits for something on a channel.
func recv[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("gave up waiting for %s", what)
		panic("unreachable")
	}
}

func listen(t testing.TB, cfg Config) *Listener {
	t.Helper()
	l, err := Listen("tcp://127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t testing.TB, addr string, cfg Config) *Dialer {
	t.Helper()
	d, err := Dial(addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func clone(m Message) Message {
	out := make(Message, len(m))
	for i, f := range m {
		out[i] = append([]byte{}, f...)
	}
	return out
}

func text(parts ...string) Message {
	m := make(Message, len(parts))
	for i, p := range parts {
		m[i] = []byte(p)
	}
	return m
}

// same compares messages, quickly where they are large.
func same(t testing.TB, want, got Message) {
	t.Helper()
	if slices.EqualFunc(want, got, bytes.Equal) {
		return
	}
	short := func(m Message) (out []string) {
		for _, f := range m {
			out = append(out, fmt.Sprintf("%d: %q", len(f), f[:min(len(f), 100)]))
		}
		return out
	}
	t.Fatalf("message differs: %s", cmp.Diff(short(want), short(got)))
}
