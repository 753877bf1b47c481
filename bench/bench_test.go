package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/lease"
)

func TestQuantile(t *testing.T) {
	var hundred sample
	for i := 100; i >= 1; i-- {
		hundred = append(hundred, time.Duration(i))
	}
	for _, c := range []struct {
		s    sample
		q    float64
		want time.Duration
	}{
		{hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100}, {hundred, 0, 1},
		{sample{7}, 0.99, 7}, {sample{1, 3}, 0.5, 1}, {nil, 0.5, 0},
	} {
		if got := c.s.quantile(c.q); got != c.want {
			t.Errorf("quantile %v of %d: %d, want %d", c.q, len(c.s), got, c.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("the sample was sorted in place")
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0123: "0.0123", 0.123: "0.123", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 11298: "11298", -5.678: "-5.68",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestWorkerArguments(t *testing.T) {
	want := workerOptions{url: "sqlite:/a b/c.db", timing: lease.Timing{Interval: 400 * time.Millisecond, Timeout: 2 * time.Second},
		parties: 50, first: 150, beats: true, own: true, watched: "shared"}
	got, err := parseWorker(want.args()[1:])
	if err != nil || got != want {
		t.Errorf("parsed back: %+v, %v; want %+v", got, err, want)
	}
	for i := range 7 {
		args := want.args()[1:]
		if args[i+1] = "x"; i+1 == 7 {
			continue // any text is a role
		}
		if _, err := parseWorker(args); err == nil {
			t.Errorf("argument %d may be %q", i+1, "x")
		}
	}
}

func TestGather(t *testing.T) {
	ms := time.Millisecond
	m := &member{lines: make(chan said, 10), kept: []said{
		{saidStopping, 1000 * ms, "1"},
		{saidCall, 1001 * ms, "acquire"},
		{saidStarted, 1004 * ms, "2"},
		{saidCall, 1200 * ms, "get"},
		{saidCall, 2100 * ms, "get"}, // of another second
		{saidStopping, 3000 * ms, "2"},
	}}
	other := &member{lines: make(chan said, 10), kept: []said{{saidCall, 1002 * ms, "acquire"}}}
	got := gather([]*member{m, other})
	want := []round{{took: 4 * ms, soon: 2, later: 3, claims: 2}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(round{})); d != "" {
		t.Errorf("hand-overs found (-want +got):\n%s", d)
	}
}

func TestReportShowsWhatDoesNotHold(t *testing.T) {
	r := &Report{Figures: []Figure{
		{Section: "s", Subject: "a", Name: "good", Value: 1, Unit: "ms", Bound: 1},
		{Section: "s", Subject: "a", Name: "bad", Value: 2, Unit: "ms", Bound: 1, Peer: 4, Versus: "p"},
	}}
	var out strings.Builder
	if err := r.write(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	has := func(name, text string) bool {
		return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, name) && strings.Contains(l, text) })
	}
	if !has("good", "yes") || has("good", "**no**") || !has("bad", "**no**") || !has("bad", "p 4.00") || !has("bad", "0.50") {
		t.Errorf("the report is\n%s", out.String())
	}
}
