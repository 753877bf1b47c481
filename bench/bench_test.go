package main

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/lease"
)

// TestCPUTimes: the times of two processes can be put together, those of their children that have ended, too.
func TestCPUTimes(t *testing.T) {
	parent := cpuTimes(os.Getppid())
	for id := range cpuTimes(os.Getpid()) {
		if _, both := parent[id]; both && id != os.Getpid() { // it is its parent's child
			t.Errorf("both have a time of %d", id)
		}
	}
}

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

// TestMachineInShort: a kernel's build and the last kilobyte of memory say nothing about the figures.
func TestMachineInShort(t *testing.T) {
	var w strings.Builder
	Machine{Processor: "P", Cores: 2, Memory: "24684084 kB", Kernel: "6.18.44-generic", FileSystem: "ext4", Load: "0.10"}.write(&w)
	if want := "All taken in one run, on  at an unknown commit, on P, 2 cores, 24 GB of memory, Linux 6.18; files on ext4,"; !strings.HasPrefix(w.String(), want) {
		t.Errorf("%q does not start with %q", w.String(), want)
	}
	for given, want := range map[string]string{"1048576 kB": "1 GB", "524288 kB": "524288 kB", "unknown": "unknown"} {
		if got := inGigabytes(given); got != want {
			t.Errorf("%s is %s, want %s", given, got, want)
		}
	}
	for given, want := range map[string]string{"6.18.44": "6.18", "6.18": "6.18", "6.18-rc1": "6.18", "": ""} {
		if got := majorMinor(given); got != want {
			t.Errorf("%q is %q, want %q", given, got, want)
		}
	}
}

func TestWorkerOptionsReachTheProcess(t *testing.T) {
	want := workerOptions{URL: "sqlite:/a b/c.db", Timing: lease.Timing{Interval: 400 * time.Millisecond, Timeout: 2 * time.Second},
		Parties: 50, First: 150, Beats: true, Own: true}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got workerOptions
	run := withOptions(func(_ *child, o workerOptions) error { got = o; return nil })
	if err := run(nil, data); err != nil || got != want {
		t.Errorf("read back: %+v, %v; want %+v", got, err, want)
	}
	if err := run(nil, []byte("{")); err == nil {
		t.Error("broken options were taken")
	}
}

func TestHandOvers(t *testing.T) {
	ms := time.Millisecond
	got := handOvers([]said{
		{saidStarted, 1004 * ms, ""},
		{saidStopping, 1000 * ms, ""},
		{saidStopping, 3000 * ms, ""}, // and nobody is told of a start
		{saidStopping, 6000 * ms, ""},
		{saidStarted, 7001 * ms, ""}, // of another second
	})
	if d := cmp.Diff(sample{4 * ms}, got); d != "" {
		t.Errorf("hand-overs found (-want +got):\n%s", d)
	}
}

func TestReportShowsWhatDoesNotHold(t *testing.T) {
	r := &Report{Figures: []Figure{
		{Section: "s", Subject: "a", Name: "good", Value: 1, Unit: "ms", Bound: 1},
		{Section: "s", Subject: "a", Name: "bad", Value: 2, Unit: "ms", Bound: 1, Peer: 4, Versus: "p"},
	}}
	r.Figures = append(r.Figures,
		Figure{Section: "s", Subject: "a", Name: "enough", Value: 3, Unit: "/s", Least: 3},
		Figure{Section: "s", Subject: "a", Name: "too few", Value: 2, Unit: "/s", Least: 3},
		Figure{Section: "s", Subject: "a", Name: "none wrong", Limited: true},
		Figure{Section: "s", Subject: "a", Name: "one wrong", Value: 1, Limited: true})
	var out strings.Builder
	r.write(&out)
	lines := strings.Split(out.String(), "\n")
	has := func(name, text string) bool {
		return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, name) && strings.Contains(l, text) })
	}
	if !has("good", "|≤ 1.00|") || !has("bad", "|**≤ 1.00**|p 4.00|") {
		t.Errorf("the report is\n%s", out.String())
	}
	if !has("enough", "|≥ 3.00|") || !has("too few", "|**≥ 3.00**|") || !has("none wrong", "|≤ 0|") || !has("one wrong", "|**≤ 0**|") {
		t.Errorf("the report is\n%s", out.String())
	}
}

func TestSinkJudgesOrder(t *testing.T) {
	for _, c := range []struct {
		name                        string
		came                        []int
		distinct, again, misordered int64
	}{
		{"in order", []int{1, 2, 3, 64, 65}, 5, 0, 1},
		{"one again", []int{1, 2, 2, 1, 3}, 3, 2, 0},
		{"overtaken", []int{1, 3, 2}, 3, 0, 2},
		{"begins late", []int{2, 3}, 2, 0, 1},
	} {
		s := &sinkServer{clock: lease.BootClock(), seed: maphash.MakeSeed()}
		s.clear()
		for _, n := range c.came {
			r := httptest.NewRequest("POST", "/in/test", bytes.NewReader(message("key", n, 0)))
			w := httptest.NewRecorder()
			if s.take(w, r); w.Code != 200 {
				t.Fatalf("%s: %d: %s", c.name, n, w.Body)
			}
		}
		got := s.sum()
		if got.Distinct != c.distinct || got.Again != c.again || got.Misordered != c.misordered || got.Broken != 0 {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestMessageIsReadBack(t *testing.T) {
	key, n, at, err := readMessage(message("key-000007", 41, 3*time.Second))
	if key != "key-000007" || n != 41 || at != 3*time.Second || err != nil {
		t.Errorf("read %q %d %v %v", key, n, at, err)
	}
	var job riverPost
	if err := json.Unmarshal(message("k", 1, 2), &job); err != nil || job.Key != "k" || job.N != 1 || job.At != 2 || job.Text != padding {
		t.Errorf("as a job: %+v, %v", job, err)
	}
	for _, broken := range []string{"", `{"n": 1, "at": 2}`, `{"n": x, "at": 0, "key": "k", "text": ""}`, `{"at": 0, "key": "k"}`} {
		if _, _, _, err := readMessage([]byte(broken)); err == nil {
			t.Errorf("%q was read", broken)
		}
	}
}

func TestDocumentReplacesItsBlocksOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc.md")
	block := func(name, text string) string {
		begin, end := marks(name)
		return begin + "\n" + text + "\n" + end + "\n"
	}
	if err := os.WriteFile(path, []byte("a\n"+block("run", "stale")+block("jobs", "kept")+block("leases", "stale")+"c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &Report{Machine: Machine{Commit: "abc", Date: "2026-01-02"}, Figures: []Figure{
		{Section: "cost", Subject: "a", Name: "new: time, median", Value: 1, Bound: 2},
		{Section: "cost", Subject: "a", Name: "new: time, worst", Value: 3, Bound: 2},
	}}
	if err := r.document(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	_, end := marks("leases")
	if got := string(data); err != nil || !strings.Contains(got, "kept") || strings.Contains(got, "stale") || !strings.Contains(got, "on 2026-01-02 at abc") ||
		!strings.Contains(got, "|**cost**|a|new: time, median|1.00|≤ 2.00|||\n|||… worst|3.00|**≤ 2.00**|||\n") || !strings.HasSuffix(got, end+"\nc\n") {
		t.Errorf("%v: the document is\n%s", err, data)
	}
	r.Figures[0].Section = "rate" // of queues
	if err := r.document(path); err == nil {
		t.Error("a block that is not there was written")
	}
}
