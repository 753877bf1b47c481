package history_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/history"
)

func TestEventJSON(t *testing.T) {
	e := history.Event{
		ID: 7, At: time.Unix(1767323045, 0).UTC(), Part: "role", Subject: "billing", From: "web-1", To: "web-2", Term: 3,
		Reason: history.Lapsed, Duration: 730123 * time.Microsecond,
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"duration_ms":730.123`) || strings.Contains(string(text), "_ns") {
		t.Errorf("written as %s", text)
	}
	// The second is what earlier versions wrote.
	for _, text := range []string{string(text), strings.Replace(string(text), `"duration_ms":730.123`, `"duration_ns":730123000`, 1)} {
		var got history.Event
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Errorf("%s: %v", text, err)
		} else if diff := cmp.Diff(e, got); diff != "" {
			t.Errorf("%s is read as (-want +got):\n%s", text, diff)
		}
	}
}
