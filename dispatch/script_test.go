package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/internal/testkit/script"
	"github.com/understudy-ha/understudy/lease"
)

// TestScripts replays testdata/*.txt through the machine. A line that starts with
// "> " tells it what happened; what it then wants done follows, one effect on a
// line. "-- name | settings" begins a new machine.
func TestScripts(t *testing.T) {
	script.Transcripts(t, "testdata/*.txt", func(t *testing.T, header string) script.Play {
		s := newScripted(t, header)
		return func(in script.Input) (_, after []string) {
			s.input(in.Words)
			return nil, s.effects()
		}
	})
}

// silentTarget only has semantics.
type silentTarget struct{ s Semantics }

func (silentTarget) Name() string                              { return "none" }
func (s silentTarget) Semantics() Semantics                    { return s.s }
func (silentTarget) Submit(context.Context, Assignment) Answer { panic("the machine submits nothing") }
func (silentTarget) Status(_ context.Context, _ []Assignment) []Answer {
	panic("the machine asks nothing")
}

// scripted is a machine with what it waits for.
type scripted struct {
	t        *testing.T
	m        *machine
	now      time.Duration
	want     claim.ClaimRequest
	exchange *exchangeRequest
	release  *releaseRequest
	list     claim.Query
	sent     map[string]*slot
	polls    [][]*slot
	line     string
}

func newScripted(t *testing.T, header string) *scripted {
	cfg := Config{Name: "q", Concurrency: 2, Streak: 1, MaxKeys: 8, Jitter: func() float64 { return 0 }}
	var sem Semantics
	_, settings, _ := strings.Cut(header, "|")
	for word := range strings.FieldsSeq(settings) {
		key, value, _ := strings.Cut(word, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "resend":
			sem.Resend = true
		case "deduplicates":
			sem.Resend, sem.Deduplicates = true, true
		case "forgets":
			sem.Forgets = true
		case "status":
			sem.HasStatus, sem.StatusLimit = true, n
		case "concurrency":
			cfg.Concurrency = n
		case "streak":
			cfg.Streak = n
		case "max-keys":
			cfg.MaxKeys = n
		case "rate":
			cfg.Rate = float64(n)
		case "attempts":
			cfg.Retry.Attempts = n
		case "on-failure":
			cfg.OnFailure = OnFailure(value)
		default:
			t.Fatalf("setting %q", word)
		}
	}
	cfg.Target = silentTarget{sem}
	return &scripted{t: t, m: newMachine(cfg.withDefaults()), sent: map[string]*slot{}}
}

func (s *scripted) input(words []string) {
	t, m := s.t, s.m
	s.line = strings.Join(words, " ")
	switch words[0] {
	case "at":
		s.now = must(time.ParseDuration(words[1]))
	case "session":
		m.setSession(strings.Trim(words[1], "-"))
	case "wake":
		m.wakeUp()
	case "stop":
		m.stop()
	case "joined":
		s.answers(requestJoin)
		m.handleJoin(s.now, share(t, words[1:]), nil)
	case "claimed":
		s.answers(requestClaim)
		m.handleClaims(s.now, s.want, claims(words[1:]), nil)
	case "released":
		s.answers(requestRelease)
		m.handleRelease(s.now, *s.release, nil)
	case "listed":
		s.answers(requestList)
		m.handleList(s.now, s.list, listed(words[1:]), nil)
	case "failed":
		s.fail(words[1:])
	case "exchanged":
		s.answers(requestExchange)
		out := s.exchanged(words[1:])
		m.handleExchange(s.now, s.exchange, out, nil, false)
	case "answer":
		slot := s.sent[words[1]]
		delete(s.sent, words[1])
		m.handleAnswer(s.now, slot, slot.assignment, answer(words[2:]), time.Second)
	case "polled":
		group := s.polls[0]
		s.polls = s.polls[1:]
		var answers []Answer
		for _, w := range words[1:] {
			answers = append(answers, Answer{Outcome: Outcome(w)})
		}
		m.handlePollAnswers(s.now, group, answers)
	default:
		t.Fatalf("input %q", words)
	}
}

// answers checks that the script answers what was asked.
func (s *scripted) answers(kind requestKind) {
	if s.m.underWay != kind {
		s.t.Fatalf("%s: the request under way is of kind %d, not %d", s.line, s.m.underWay, kind)
	}
}

func (s *scripted) fail(words []string) {
	err := errors.New("down")
	switch s.m.underWay {
	case requestJoin:
		s.m.handleJoin(s.now, claim.Share{}, err)
	case requestClaim:
		s.m.handleClaims(s.now, s.want, nil, err)
	case requestRelease:
		s.m.handleRelease(s.now, *s.release, err)
	case requestExchange:
		s.m.handleExchange(s.now, s.exchange, ExchangeResult{}, err, len(words) > 0 && words[0] == "unknown")
	}
}

// exchanged reads KEY:HOLDING, KEY:send|resolve|poll[/ATTEMPT] and KEY:late; :ignored after a holding says that the
// result was not recorded.
func (s *scripted) exchanged(words []string) ExchangeResult {
	out := ExchangeResult{Holdings: map[string]Holding{}}
	late := map[string]bool{}
	for _, w := range words {
		key, what, _ := strings.Cut(w, ":")
		what, ignored := strings.CutSuffix(what, ":ignored")
		if ignored {
			late[key] = true
		}
		what, attempt, _ := strings.Cut(what, "/")
		switch what {
		case "late":
			late[key] = true
			out.Holdings[key] = Lost
		case "send", "resolve", "poll":
			out.Holdings[key] = InProgress
			a := Assignment{Message: Message{Queue: "q", Key: key, ID: "id"}, Work: map[string]Work{"send": Send, "resolve": Resolve, "poll": Poll}[what], Attempt: 1}
			if attempt != "" {
				a.Attempt = must(strconv.Atoi(attempt))
			}
			for _, b := range s.exchange.body.Begin {
				if b.Key == key {
					a.Term = b.Term
				}
			}
			out.Begun = append(out.Begun, a)
		default:
			holding, ok := map[string]Holding{"ready": Ready, "in-progress": InProgress, "released": Released, "lost": Lost}[what]
			if !ok {
				s.t.Fatalf("%s: holding %q", s.line, what)
			}
			out.Holdings[key] = holding
		}
	}
	for _, r := range s.exchange.body.Results {
		out.Receipts = append(out.Receipts, Receipt{Key: r.Key, Seq: r.Seq, Accepted: !late[r.Key]})
	}
	return out
}

func answer(words []string) Answer {
	a := Answer{Outcome: Outcome(words[0])}
	for _, w := range words[1:] {
		if after, ok := strings.CutPrefix(w, "after="); ok {
			a.RetryAfter = must(time.ParseDuration(after))
		}
	}
	return a
}

func share(t *testing.T, words []string) (s claim.Share) {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "members":
			s.Members = n
		case "mine":
			s.Mine = n
		case "held":
			s.Held = n
		case "least":
			s.Least = n
		case "free":
			s.Free = true
		default:
			t.Fatalf("share %q", w)
		}
	}
	return s
}

func claims(words []string) (out []claim.Claim) {
	for _, w := range words {
		w, interrupted := strings.CutSuffix(w, "!")
		key, term, _ := strings.Cut(w, ":")
		out = append(out, claim.Claim{Key: key, Term: int64(must(strconv.Atoi(term))), Interrupted: interrupted})
	}
	return out
}

// listed reads KEY:TERM, and KEY:TERM! for one in a step.
func listed(words []string) (out []claim.Row) {
	for _, c := range claims(words) {
		out = append(out, claim.Row{Key: c.Key, Term: c.Term, InStep: c.Interrupted})
	}
	return out
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// effects are what the machine wants done now, as text.
func (s *scripted) effects() (out []string) {
	for _, e := range s.m.step(s.now) {
		switch {
		case e.join != nil:
			out = append(out, fmt.Sprintf("join asleep=%t", e.join.Asleep))
		case e.claimKeys != nil:
			s.want = *e.claimKeys
			out = append(out, fmt.Sprintf("claim limit=%d fresh=%d", e.claimKeys.Limit, e.claimKeys.Fresh))
		case e.list != nil:
			s.list = *e.list
			out = append(out, "list "+e.list.Session)
		case e.release != nil:
			s.release = e.release
			out = append(out, "release "+names(e.release.claims))
		case e.exchange != nil:
			s.exchange = e.exchange
			out = append(out, showExchange(e.exchange.body))
		case e.send != nil:
			s.sent[e.send.key] = e.send
			out = append(out, fmt.Sprintf("%s %s attempt=%d", workName(e.send.assignment.Work), e.send.key, e.send.assignment.Attempt))
		case e.poll != nil:
			s.polls = append(s.polls, e.poll)
			var keys []string
			for _, slot := range e.poll {
				keys = append(keys, slot.key)
			}
			out = append(out, "poll "+strings.Join(keys, ","))
		}
	}
	if s.m.isDone() {
		out = append(out, "done")
	}
	return out
}

// workName is how scripts write a kind of work.
func workName(w Work) string {
	if w == Resolve {
		return "resolve"
	}
	return string(w)
}

func names(claims []claim.Claim) string {
	var out []string
	for _, c := range claims {
		out = append(out, fmt.Sprintf("%s:%d", c.Key, c.Term))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

func showExchange(x Exchange) string {
	var out strings.Builder
	out.WriteString("exchange " + x.Session)
	for _, r := range x.Results {
		out.WriteString(fmt.Sprintf(" %s:%d=%s,%s", r.Key, r.Term, r.State, strings.Replace(string(r.After), string(RetryLater), "retry", 1)))
		if r.After == RetryLater {
			out.WriteString("," + r.Wait.Round(time.Millisecond).String())
		}
	}
	if len(x.Begin) > 0 {
		out.WriteString(" start " + names(x.Begin))
	}
	if x.Restart {
		out.WriteString(" restart")
	}
	if x.Window == 0 {
		out.WriteString(" shared")
	}
	return out.String()
}

func TestClassifyIsTotal(t *testing.T) {
	outcomes := []Outcome{Done, Accepted, Executed, InvalidMessage, Busy, NotFound, Uncertain, Misconfigured, "", "nonsense"}
	for _, o := range outcomes {
		for _, todo := range []Work{Send, Resolve, Poll} {
			for bits := range 8 {
				sem := Semantics{Resend: bits&1 != 0, HasStatus: bits&2 != 0, Forgets: bits&4 != 0, StatusLimit: 1}
				for _, policy := range []OnFailure{OnFailureDefault, OnFailureBlock, OnFailureSkip, OnFailureRetry} {
					r := Rule{Semantics: sem, OnFailure: policy, Retry: RetryPolicy{}.WithDefaults()}
					got := r.Classify(Assignment{Work: todo, Attempt: 1}, Answer{Outcome: o}, 0.5)
					name := fmt.Sprintf("%s after %s, %+v, %q", o, todo, sem, policy)
					if got.State == "" || got.After == "" || got.State == Queued || got.State == Submitting || got.State == Cancelled {
						t.Errorf("%s: %+v", name, got)
					}
					if got.After == Next && !got.State.IsFinal() {
						t.Errorf("%s: goes on after a message that is %s", name, got.State)
					}
					// What may have been taken is never let go, nor sent again blindly.
					open := o == Uncertain || o == Accepted || o == Executed || o == "" || o == "nonsense"
					if open && !sem.Resend && !sem.HasStatus && got.After != Block || open && got.State.IsFinal() {
						t.Errorf("%s: %+v", name, got)
					}
					if got.After == Hold && !sem.HasStatus {
						t.Errorf("%s: is held, and nobody will ever hear more: %+v", name, got)
					}
					if o == NotFound && todo == Resolve && sem.Forgets && !sem.Resend && got.After != Block {
						t.Errorf("%s: %+v", name, got)
					}
				}
			}
		}
	}
}

func TestPauses(t *testing.T) {
	r := RetryPolicy{}.WithDefaults()
	for attempt, most := range map[int]time.Duration{1: 250 * time.Millisecond, 2: 500 * time.Millisecond, 9: time.Minute, 500: time.Minute} {
		if low, high := r.Pause(attempt, 0), r.Pause(attempt, 0.999); low != most/2 || high >= most || high <= low {
			t.Errorf("after attempt %d: %v to %v", attempt, low, high)
		}
	}
}

func TestCutDetail(t *testing.T) {
	for name, said := range map[string]string{
		"short": "no", "long": strings.Repeat("ä", MaxDetail), "odd": "a" + strings.Repeat("ä", MaxDetail),
		"invalid": "no\xff", "inside a character": strings.Repeat("\x80", 2*MaxDetail), "grows": strings.Repeat("a\x80", MaxDetail/2+1),
	} {
		got := CutDetail(said)
		if whole := strings.ToValidUTF8(said, "\uFFFD"); !strings.HasPrefix(whole, got) || len(got) < min(len(whole), MaxDetail-utf8.UTFMax) {
			t.Errorf("%s: %d bytes %.20q of %.20q", name, len(got), got, whole)
		}
		if err := lease.ValidateText("detail", got, 1, MaxDetail); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
