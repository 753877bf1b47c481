package instance_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/outagelog"
	"github.com/understudy-ha/understudy/lease"
)

// lines is a log that calls a function with each line.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	each func(line string)
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	l.each(string(b))
	return len(b), nil
}

// An outage that ended before the store was first opened is over in the log, too: a later one is not counted from there.
func TestOutageAtStartEndsInTheLog(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close() // nobody listens there
	host := &instance.Host{}
	host.StoreURL = "redis://" + address
	log := &lines{each: func(line string) {
		if strings.Contains(line, "does not answer") {
			host.StoreURL = "sqlite:" + dir + "/store.db"
		}
	}}
	host.Log = slog.New(outagelog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st, err := host.Open(ctx, instance.Opening{Patient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if text := log.text.String(); strings.Count(text, "does not answer") != 1 || strings.Count(text, lease.StoreAnswers) != 1 {
		t.Errorf("the log says:\n%s", text)
	}
}
