package sink_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/monitor/sink"
)

func TestLog(t *testing.T) {
	var out bytes.Buffer
	s := open(t, sink.Config{Log: &sink.LogConfig{Logger: slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelError}))}})
	if s.Name() != "log" {
		t.Errorf("name %q", s.Name())
	}
	wants(t, tell(t, s, onset()), dispatch.Done)
	wants(t, tell(t, s, abated()), dispatch.Done)
	wants(t, tell(t, s, group()), dispatch.Done)
	for _, name := range hostile() {
		wants(t, tell(t, s, named(onset(), name)), dispatch.Done)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3+len(hostile()) {
		t.Fatalf("%d lines", len(lines))
	}
	var logged []map[string]any
	for _, l := range lines {
		var m map[string]any
		if err := json.Unmarshal([]byte(l), &m); err != nil {
			t.Fatal(err)
		}
		logged = append(logged, m)
	}
	on, off, many := logged[0], logged[1], logged[2]
	if on["msg"] != "alarm raised" || on["level"] != "WARN" || on["request_id"] != requestID || on["source"] != "edge-17" || on["sink"] != "pager" || on["reason"] != "silent" {
		t.Errorf("onset %v", on)
	}
	if off["msg"] != "alarm ended" || off["level"] != "INFO" || off["ended"] == nil {
		t.Errorf("abated %v", off)
	}
	if many["group"] != "berlin" || many["count"] != 3.0 || many["members"] != "edge-1, edge-2, edge-3" {
		t.Errorf("group %v", many)
	}
	var text bytes.Buffer
	s = open(t, sink.Config{Log: &sink.LogConfig{Logger: slog.New(slog.NewTextHandler(&text, nil))}})
	for _, name := range hostile() {
		wants(t, tell(t, s, named(onset(), name)), dispatch.Done)
	}
	if n := strings.Count(text.String(), "\n"); n != len(hostile()) {
		t.Errorf("%d lines of text for %d alarms", n, len(hostile()))
	}
	s = open(t, sink.Config{Log: &sink.LogConfig{Logger: slog.New(slog.NewJSONHandler(full{}, nil))}})
	wants(t, tell(t, s, onset()), dispatch.Uncertain)
}

// full is a disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }
