package outagelog_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/internal/outagelog"
	"github.com/understudy-ha/understudy/lease"
)

// One outage of five minutes, of which three parts say something every second, is seven lines.
func TestOneLineAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(outagelog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})))
		parts := []*slog.Logger{log, log.With("part", "claim"), log.WithGroup("queue")}
		err := fmt.Errorf("%w: dial tcp 127.0.0.1:5432: connection refused\n%s", lease.ErrUnavailable, strings.Repeat("tried it ", 100))
		for range 300 {
			for _, part := range parts {
				part.Warn("renewal failed; trying again", "err", err)
			}
			time.Sleep(time.Second)
		}
		log.Info(lease.StoreAnswers)
		log.Info(lease.StoreAnswers) // another part
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 6 {
			t.Fatalf("%d lines:\n%s", len(lines), out.String())
		}
		if first := lines[0]; !strings.Contains(first, `msg="the store does not answer"`) || !strings.Contains(first, "connection refused") || len(first) > 400 {
			t.Errorf("it starts with %s", first)
		}
		if minute := lines[1]; !strings.Contains(minute, "for=1m0s failures=180") {
			t.Errorf("after a minute: %s", minute)
		}
		if last := lines[5]; !strings.Contains(last, `msg="store answers again" after=5m0s`) {
			t.Errorf("it ends with %s", last)
		}
	})
}

// A failure of a part that never says that the store answers is not the start of an outage of days.
func TestFailureThatNobodyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(outagelog.New(slog.NewTextHandler(&out, nil)))
		fail := func() { log.Warn("the history could not be trimmed", "err", lease.ErrUnavailable) }
		fail()
		time.Sleep(72 * time.Hour)
		fail()
		time.Sleep(72 * time.Hour)
		fail()
		time.Sleep(2 * time.Second)
		log.Info(lease.StoreAnswers)
		got := out.String()
		if strings.Count(got, `msg="the store does not answer"`) != 3 || strings.Contains(got, "for=") || !strings.Contains(got, "after=2s") {
			t.Errorf("got %s", got)
		}
	})
}

func TestOthersPass(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(outagelog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})))
	log.Info(lease.StoreAnswers) // nothing was wrong
	log.Debug("too quiet", "err", lease.ErrUnavailable)
	log.Info("info", "err", lease.ErrUnknown)
	log.Warn("lapsed", "err", lease.ErrLapsed)
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "msg=info") || !strings.Contains(got, "msg=lapsed") {
		t.Errorf("got %s", got)
	}
}
