package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// book applies decisions to one job, as a store does.
type book struct {
	testing.TB
	job  Job
	now  time.Time
	runs map[string]Run // by scheduled time
}

func newBook(t testing.TB, schedule string, edit ...func(*Definition)) *book {
	def := Definition{Schedule: schedule}
	for _, e := range edit {
		e(&def)
	}
	b := &book{TB: t, job: Job{Name: "j"}, now: at("09:00:00"), runs: map[string]Run{}}
	b.apply(Define("j", def))
	return b
}

// at is a time of one day; "+1 09:00:00" is one of the next.
func at(clock string) time.Time {
	days, rest, later := strings.Cut(clock, " ")
	if !later {
		days, rest = "+0", clock
	}
	t, err := time.Parse(time.TimeOnly, rest)
	if err != nil {
		panic(err)
	}
	var n int
	fmt.Sscanf(days, "+%d", &n)
	return time.Date(2026, 11, 21+n, t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

func (b *book) try(decide Decision) error {
	c, err := decide(b.job, b.now)
	if err != nil || c.Unchanged {
		return err
	}
	for _, r := range c.Runs {
		b.runs[r.Scheduled.Format(time.RFC3339Nano)] = r
	}
	c.Job.Version = b.job.Version + 1
	b.job = c.Job
	return nil
}

func (b *book) apply(decide Decision) {
	b.Helper()
	if err := b.try(decide); err != nil {
		b.Fatal(err)
	}
}

func (b *book) claim(clock string, term int64) (Run, bool) {
	b.Helper()
	b.now = at(clock)
	b.apply(Claim(Holder{Term: term, Instance: lease.Instance{ID: "i", Name: fmt.Sprint("host", term)}}))
	r, on := b.job.Running()
	return r, on && r.Term == term
}

func (b *book) finish(clock string, s State) {
	b.Helper()
	b.now = at(clock)
	r, on := b.job.Running()
	if !on {
		b.Fatal("nothing is running")
	}
	b.apply(Finish(r.Scheduled, r.Term, Result{State: s, Why: "because"}))
}

// want compares all runs: "HH:MM:SS state", by their times.
func (b *book) want(lines ...string) {
	b.Helper()
	var got []string
	for _, key := range sortedKeys(b.runs) {
		r := b.runs[key]
		got = append(got, r.Scheduled.Format(time.TimeOnly)+" "+string(r.State))
	}
	if !slices.Equal(got, lines) {
		b.Errorf("at %s the runs are %q, want %q", b.now.Format(time.TimeOnly), got, lines)
	}
}

func sortedKeys(m map[string]Run) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int { return m[a].Scheduled.Compare(m[b].Scheduled) })
	return keys
}

func TestRunOnce(t *testing.T) {
	b := newBook(t, "0 10 * * *")
	if _, on := b.claim("09:59:59", 1); on {
		t.Fatal("claimed before its time")
	}
	r, on := b.claim("10:00:00", 2)
	if !on || !r.Scheduled.Equal(at("10:00:00")) || !r.Started.Equal(at("10:00:00")) {
		t.Fatalf("claimed %+v", r)
	}
	if again, on := b.claim("10:00:01", 2); !on || !again.Scheduled.Equal(r.Scheduled) {
		t.Error("its holder does not find the claim whose answer was lost")
	}
	b.finish("10:00:05", Succeeded)
	if _, on := b.claim("10:00:06", 3); on {
		t.Error("claimed twice")
	}
	b.want("10:00:00 succeeded")
	if want := at("+1 10:00:00"); !b.job.Next.Equal(want) || !b.job.DueAt().Equal(want) {
		t.Errorf("next at %v, due at %v", b.job.Next, b.job.DueAt())
	}
	if b.job.Ended[Succeeded] != 1 || b.job.Last.State != Succeeded {
		t.Errorf("counted %v, last %+v", b.job.Ended, b.job.Last)
	}
}

// A holder that dies after its claim may have started the program: nobody starts it again.
func TestLost(t *testing.T) {
	b := newBook(t, "0 10 * * *")
	b.claim("10:00:00", 1)
	if _, on := b.claim("10:00:30", 2); on {
		t.Error("a lost run was claimed again")
	}
	b.want("10:00:00 lost")
	b.now = at("10:01:00")
	b.apply(Finish(at("10:00:00"), 1, Result{State: Succeeded}))
	b.want("10:00:00 lost")
	if err := b.try(Claim(Holder{Term: 1})); err != nil {
		t.Error(err) // nothing was claimed under 2: no term is in the way
	}
}

func TestLostIsRepeatedIfSafe(t *testing.T) {
	b := newBook(t, "0 10 * * *", func(d *Definition) { d.Retries = 1 })
	b.claim("10:00:00", 1)
	r, on := b.claim("10:00:30", 2)
	if !on || r.Attempt != 2 || !r.Scheduled.Equal(at("10:00:00")) {
		t.Fatalf("claimed %+v, %v", r, on)
	}
	if err := b.try(Claim(Holder{Term: 1})); !errors.Is(err, ErrStale) {
		t.Errorf("a claim under an earlier term: %v", err)
	}
	b.apply(Finish(at("10:00:00"), 1, Result{State: Succeeded})) // late
	b.want("10:00:00 running")
	if _, on := b.claim("10:01:00", 3); on {
		t.Error("more attempts than allowed")
	}
	b.want("10:00:00 lost")
}

func TestFailedIsRepeatedWithPauses(t *testing.T) {
	b := newBook(t, "0 10 * * *", func(d *Definition) { d.Retries = 2 })
	b.claim("10:00:00", 1)
	b.finish("10:00:01", Failed)
	b.apply(Finish(at("10:00:00"), 1, Result{State: Failed, Why: "because"})) // again, as after an answer that was lost
	if _, on := b.claim("10:00:01", 2); on {
		t.Error("tried again at once")
	}
	due := b.job.DueAt()
	if due.Before(at("10:00:02")) || due.After(at("10:00:03")) {
		t.Errorf("the second attempt is due at %v", due)
	}
	if r, on := b.claim("10:00:05", 3); !on || r.Attempt != 2 {
		t.Errorf("claimed %+v", r)
	}
	b.finish("10:00:06", TimedOut)
	b.claim("10:10:00", 4)
	b.finish("10:10:01", Failed)
	b.want("10:00:00 failed")
	if b.job.Last.Attempt != 3 || len(b.job.Open) != 0 {
		t.Errorf("last %+v, open %v", b.job.Last, b.job.Open)
	}
}

func TestMissed(t *testing.T) {
	hourly := []string{"10:00:00 missed", "11:00:00 missed", "12:00:00 missed"}
	for _, c := range []struct {
		rule  Missed
		clock string
		want  []string
	}{
		{MissedOne, "12:30:00", []string{hourly[0], hourly[1], "12:00:00 running"}},
		{MissedSkip, "12:30:00", hourly},
		{MissedSkip, "12:00:59", []string{hourly[0], hourly[1], "12:00:00 running"}},
		{MissedAll, "12:30:00", []string{"10:00:00 running", "11:00:00 queued", "12:00:00 queued"}},
	} {
		b := newBook(t, "0 * * * *", func(d *Definition) { d.Missed = c.rule })
		b.now = at("09:00:00")
		b.claim(c.clock, 1)
		b.want(c.want...)
		if !b.job.Next.Equal(at("13:00:00")) {
			t.Errorf("%s: next at %v", c.rule, b.job.Next)
		}
	}
}

// Times that nobody was there for are counted, however many they are, and "all" has its bounds.
func TestMissedForLong(t *testing.T) {
	b := newBook(t, "every 1s")
	b.claim("+3 09:00:00", 1)
	if n := len(b.runs); n != 2 {
		t.Errorf("%d runs, want one for all that were missed and one that runs", n)
	}
	if got := b.job.Last.Why; !strings.Contains(got, "at least 1000 times") {
		t.Errorf("why: %q", got)
	}
	b = newBook(t, "* * * * *", func(d *Definition) { d.Missed = MissedAll })
	b.claim("+3 09:00:00", 1)
	if len(b.job.Open) != MaxQueued || b.job.Ended[MissedRun] == 0 {
		t.Errorf("%d open, %v", len(b.job.Open), b.job.Ended)
	}
	if oldest := b.job.Open[0].Scheduled; oldest.Before(at("+2 09:00:00")) {
		t.Errorf("%v runs, which is more than a day ago", oldest)
	}
	n := b.job.Open[len(b.job.Open)-1].Scheduled
	b.now = at("+3 09:00:29")
	if b.apply(Overlapping(Holder{Term: 1})); b.job.Ended[Skipped] != 0 {
		t.Errorf("%d were skipped that were due when nothing ran", b.job.Ended[Skipped])
	}
	b.finish("+3 09:00:30", Succeeded)
	if b.claim("+3 09:00:31", 2); !b.job.Next.After(n) || len(b.job.Open) != MaxQueued {
		t.Errorf("the rest does not move up: next at %v, %d open", b.job.Next, len(b.job.Open))
	}
}

func TestOverlap(t *testing.T) {
	for rule, want := range map[Overlap][]string{
		Forbid:  {"10:00:00 running", "11:00:00 skipped", "12:00:00 skipped"},
		Queue:   {"10:00:00 running", "11:00:00 queued", "12:00:00 queued"},
		Replace: {"10:00:00 running", "11:00:00 queued", "12:00:00 queued"},
	} {
		b := newBook(t, "0 * * * *", func(d *Definition) { d.Overlap = rule })
		b.claim("10:00:00", 1)
		b.now = at("12:00:01")
		b.apply(Overlapping(Holder{Term: 1}))
		b.want(want...)
		if err := b.try(Overlapping(Holder{Term: 2})); !errors.Is(err, ErrStale) {
			t.Errorf("under another term: %v", err)
		}
	}
}

// Of the runs that wait to replace another, the latest starts.
func TestReplacedRunsDoNotQueueUp(t *testing.T) {
	b := newBook(t, "0 * * * *", func(d *Definition) { d.Overlap, d.Retries = Replace, 1 })
	b.claim("10:00:00", 1)
	b.finish("10:59:59", Failed)
	b.claim("11:00:00", 2)
	b.now = at("13:00:01")
	b.apply(Overlapping(Holder{Term: 2}))
	b.finish("13:00:02", Succeeded)
	if r, on := b.claim("13:00:03", 3); !on || !r.Scheduled.Equal(at("13:00:00")) {
		t.Errorf("claimed %+v", r)
	}
	b.want("10:00:00 cancelled", "11:00:00 succeeded", "12:00:00 skipped", "13:00:00 running")

	b = newBook(t, "0 * * * *", func(d *Definition) { d.Overlap = Replace })
	b.claim("10:00:00", 1)
	b.now = at("14:00:01")
	b.apply(Overlapping(Holder{Term: 1}))
	b.finish("14:00:02", Succeeded)
	b.claim("14:00:03", 2)
	b.want("10:00:00 succeeded", "11:00:00 skipped", "12:00:00 skipped", "13:00:00 skipped", "14:00:00 running")
}

func TestTriggerAndPause(t *testing.T) {
	b := newBook(t, "0 10 * * *")
	b.apply(Pause("alice"))
	b.apply(Trigger("bob"))
	b.apply(Trigger("bob"))
	if len(b.job.Open) != 2 || b.job.Open[0].Scheduled.Nanosecond() == 0 {
		t.Fatalf("open: %+v", b.job.Open)
	}
	r, on := b.claim("09:00:00", 1)
	if !on || r.Trigger != "bob" {
		t.Errorf("claimed %+v", r)
	}
	b.finish("09:00:01", Succeeded)
	b.claim("09:00:02", 2)
	b.finish("09:00:03", Succeeded)
	if _, on := b.claim("10:00:00", 3); on {
		t.Error("a paused job runs")
	}
	if r := b.runs["2026-11-21T10:00:00Z"]; r.State != Skipped || r.Why != "paused by alice" {
		t.Errorf("while it was paused: %+v", r)
	}
	b.now = at("+3 09:00:00")
	b.apply(Resume("bob"))
	if n := b.job.Ended[Skipped]; n != 3 {
		t.Errorf("%d times were skipped, want all 3 that passed while it was paused", n)
	}
	if _, on := b.claim("+3 10:00:00", 4); !on {
		t.Error("a resumed job does not run")
	}
	if err := b.try(Forget("bob")); !errors.Is(err, ErrBusy) {
		t.Errorf("forgetting it while it runs: %v", err)
	}
}

// TestPauseAfterMissed: times that came before a job was paused were missed, unless an instance may still have run them.
func TestPauseAfterMissed(t *testing.T) {
	b := newBook(t, "0 * * * *")
	b.now = at("12:00:30")
	b.apply(Pause("alice"))
	b.now = at("13:30:00")
	b.apply(Resume("alice"))
	b.want("10:00:00 missed", "11:00:00 missed", "12:00:00 skipped", "13:00:00 skipped")
	b.claim("14:00:00", 1)
	b.now = at("15:30:00")
	b.apply(Pause("alice"))
	if _, on := b.job.Running(); !on || b.job.Ended[MissedRun] != 2 {
		t.Errorf("paused while a run is on: %+v", b.job)
	}
}

// TestForgetEndsWhatIsQueued: the rows of runs that were queued do not stay so when the job waits for its sinks.
func TestForgetEndsWhatIsQueued(t *testing.T) {
	b := newBook(t, "0 10 * * *")
	b.claim("10:00:00", 1)
	b.finish("10:00:01", Failed)
	b.apply(ClaimAlarm(new(Alarm)))
	for range 3 {
		b.apply(Trigger("bob"))
	}
	b.apply(Forget("alice"))
	if b.job.ForgottenBy != "alice" || len(b.job.Open) != 0 || b.job.Ended[Skipped] != 3 {
		t.Errorf("%+v", b.job)
	}
	for key, r := range b.runs {
		if r.Trigger != "" && (r.State != Skipped || r.Why != "forgotten by alice") {
			t.Errorf("%s: %+v", key, r)
		}
	}
}

// A step of the store's clock runs nothing twice, and a change of the schedule neither.
func TestNothingTwice(t *testing.T) {
	b := newBook(t, "0 10 * * *")
	b.claim("10:00:00", 1)
	b.finish("10:00:01", Succeeded)
	if _, on := b.claim("09:00:00", 2); on { // stepped back
		t.Error("runs again when the clock was stepped back")
	}
	b.apply(Define("j", Definition{Schedule: "0 * * * *"}))
	if !b.job.Next.Equal(at("11:00:00")) {
		t.Errorf("next at %v: 10:00 has its run", b.job.Next)
	}
	b.now = at("12:30:00")
	b.apply(Define("j", Definition{Schedule: "45 * * * *"}))
	b.want("10:00:00 succeeded", "11:00:00 missed", "12:00:00 missed")
	if !b.job.Next.Equal(at("12:45:00")) || b.job.Created != at("09:00:00") {
		t.Errorf("next at %v, created at %v", b.job.Next, b.job.Created)
	}
}

// TestStoreClockForwardAndBack: a job waits until the latest time that was decided about has come again, but for runs that are triggered.
// One that was forgotten, and is offered again, does not wait.
func TestStoreClockForwardAndBack(t *testing.T) {
	b := newBook(t, "0 * * * *")
	b.claim("+3 09:00:00", 1) // ahead by three days
	b.finish("+3 09:00:01", Succeeded)
	for _, clock := range []string{"10:00:01", "+2 10:00:00", "+3 09:00:00"} {
		if r, on := b.claim(clock, 2); on {
			t.Errorf("at %s it runs again: %+v", clock, r)
		}
	}
	b.now = at("10:30:00")
	b.apply(Trigger("ops"))
	if r, on := b.claim("10:30:01", 2); !on || r.Trigger != "ops" {
		t.Errorf("triggered, it runs %+v", r)
	}
	b.finish("10:30:02", Succeeded)
	if due := b.job.DueAt(); !due.Equal(at("+3 10:00:00")) {
		t.Errorf("due at %v", due)
	}
	c, err := Forget("ops")(b.job, b.now)
	if err != nil || !c.Forget {
		t.Fatalf("%+v, %v", c, err)
	}
	b.job = c.After(b.job)
	b.apply(Define("j", Definition{Schedule: "0 * * * *"}))
	if _, on := b.claim("11:00:00", 3); !on {
		t.Error("it does not run although it was forgotten and offered again")
	}
}

func TestJitter(t *testing.T) {
	b := newBook(t, "* * * * *", func(d *Definition) { d.JitterMS = 30_000 })
	seen := map[time.Duration]bool{}
	for range 20 {
		next := b.job.Next
		due := b.job.DueAt()
		late := due.Sub(next)
		if late < 0 || late >= 30*time.Second {
			t.Fatalf("%v is due %v later", next, late)
		}
		seen[late] = true
		b.now = due.Add(-time.Millisecond)
		b.apply(Claim(Holder{Term: 1}))
		if _, on := b.job.Running(); on {
			t.Fatal("started before its jitter")
		}
		b.now = due
		b.apply(Claim(Holder{Term: 1}))
		if r, _ := b.job.Running(); b.job.Late(r) != 0 {
			t.Fatalf("it counts as %v late", b.job.Late(r))
		}
		b.finish(due.Add(time.Second).Format(time.TimeOnly), Succeeded)
	}
	if len(seen) < 10 {
		t.Errorf("only %d different delays", len(seen))
	}
}

func TestInvalid(t *testing.T) {
	for want, d := range map[string]Definition{
		"schedule":            {Schedule: "soon"},
		"overlap":             {Schedule: "@daily", Overlap: "maybe"},
		"missed":              {Schedule: "@daily", Missed: "maybe"},
		"contradict":          {Schedule: "@daily", Overlap: Replace, Missed: MissedAll},
		"jitter":              {Schedule: "@daily", JitterMS: -1},
		"deadline":            {Schedule: "@daily", DeadlineMS: -1},
		"retries":             {Schedule: "@daily", Retries: 101},
		"that is in the past": {Schedule: "2020-01-01"},
	} {
		_, err := Define("j", d)(Job{Name: "j"}, at("09:00:00"))
		if !errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := Define("a\nb", Definition{Schedule: "@daily"})(Job{}, at("09:00:00")); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("a name of two lines: %v", err)
	}
}

func TestTail(t *testing.T) {
	var out tail
	if _, changed := out.unsaved(); changed {
		t.Error("changed without a write")
	}
	var text strings.Builder
	for i := range 5000 {
		line := fmt.Sprintf("line %d\n", i)
		text.WriteString(line)
		_, _ = out.Write([]byte(line))
	}
	all := text.String()
	o, changed := out.unsaved()
	if !changed || o.Total != int64(len(all)) || string(o.Tail) != all[len(all)-MaxTail:] {
		t.Errorf("%d of %d bytes kept", len(o.Tail), o.Total)
	}
	big := strings.Repeat("x", 100_000)
	_, _ = out.Write([]byte(big))
	out.save(o)
	if o, changed = out.unsaved(); !changed || len(o.Tail) != MaxTail || o.Tail[0] != 'x' || o.Total != int64(len(all)+len(big)) {
		t.Errorf("%d of %d bytes kept", len(o.Tail), o.Total)
	}
	if _, changed := out.unsaved(); !changed {
		t.Error("what was not stored is not tried again")
	}
	out.save(o)
	if _, changed := out.unsaved(); changed {
		t.Error("changed without a write")
	}
}

// TestLongRunSkipsAll: many times come while a run is on that nobody watches. None of them is missed.
func TestLongRunSkipsAll(t *testing.T) {
	b := newBook(t, "every 5s")
	r, on := b.claim("09:00:05", 1)
	if !on {
		t.Fatal("nothing is due")
	}
	b.now = at("09:20:07")
	b.apply(FinishUnwatched(r.Scheduled, 1, Result{State: Succeeded}))
	if _, on := b.claim("09:20:08", 2); on {
		t.Error("a time that had passed was claimed")
	}
	if b.job.Ended[MissedRun] != 0 || b.job.Ended[Skipped] != 240 || b.job.Alarm.ID != "" {
		t.Errorf("%v, alarm %+v", b.job.Ended, b.job.Alarm)
	}
	if _, on := b.claim("09:20:10", 2); !on {
		t.Error("the next time was not claimed")
	}
}
