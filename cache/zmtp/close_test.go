package zmtp

import (
	"testing"
	"time"
)

// TestCloseDelivers: what was published before Close arrives, and then the connection ends, whatever the peer sends meanwhile.
func TestCloseDelivers(t *testing.T) {
	for name, heartbeat := range map[string]time.Duration{"a silent peer": 0, "one that pings": time.Millisecond} {
		t.Run(name, func(t *testing.T) { closeDelivers(t, heartbeat) })
	}
}

func closeDelivers(t *testing.T, heartbeat time.Duration) {
	subscribed := make(chan struct{}, 1)
	l := listen(t, Config{Kind: PUB, Queue: 64 << 20, Handler: Handler{Subscribed: func(*Conn, []byte, bool) { subscribed <- struct{}{} }}})
	got, down := make(chan int, 1000), make(chan error, 1)
	dial(t, l.Addr(), Config{Kind: SUB, Subscribe: [][]byte{[]byte("*")}, MaxMessage: 1 << 20, Heartbeat: heartbeat, HeartbeatTimeout: 10 * time.Second, Handler: Handler{
		Message:      func(_ *Conn, m Message) { got <- len(m[1]) },
		Disconnected: func(_ *Conn, err error) { down <- err },
	}})
	recv(t, "subscription", subscribed)
	const messages, size = 20, 1 << 19 // more than a socket holds
	value := make([]byte, size)
	for i := range messages {
		if l.Publish(Message{[]byte("*"), value}) != 1 {
			t.Fatalf("message %d was not published", i)
		}
	}
	l.Close()
	recv(t, "end", down)
	if len(got) != messages {
		t.Errorf("%d of %d messages arrived", len(got), messages)
	}
}
