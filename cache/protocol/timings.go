package protocol

import (
	"errors"
	"fmt"
	"time"
)

// ErrUnsafeTiming is that waits do not fit together: with them two peers could
// fetch one key at once, or an election could never end.
var ErrUnsafeTiming = errors.New("cache: unsafe timing")

// Timings are the waits of the protocol. A zero field has the value that the original (see the
// package's documentation) uses, where it has one. Of these, settings reach AnnounceTimeout, with Announce, FetchTimeout and TTL; the
// others are for tests and for programs.
type Timings struct {
	// CandidateMin and CandidateMax bound a candidate's random patience; 150 and 300 ms.
	CandidateMin, CandidateMax time.Duration
	// Repeat is how often a question is repeated to whoever has not answered; 100 ms.
	Repeat time.Duration
	// OriginalVote is how long a vote binds that was given to a peer of the original, which
	// never releases its voters; 300 ms. Every other vote binds for AnnounceTimeout.
	OriginalVote time.Duration
	// AnnounceTimeout is the announce timeout: how long a follower waits for the next
	// announcement, how long a vote binds, and how long a peer that started
	// abstains; 2 s. It must be the same on every peer: each counts by its own value what
	// another has promised, and a fetch could outlast a promise that is shorter.
	AnnounceTimeout time.Duration
	// Announce is how often a fetch is announced; 1 s. internal/settings sets it to
	// AnnounceTimeout / 2, the most that Validate allows.
	Announce time.Duration
	// KeepAlive is how often whoever waits is told so; 1 s.
	KeepAlive time.Duration
	// Ping is how often a partitioned peer asks who is there; 3 s.
	Ping time.Duration
	// Hello is how often peers greet each other; 1 s.
	Hello time.Duration
	// FetchTimeout is how long the origin may take, with the time that a call waits for its turn (cache.Config.Fetches); 60 s.
	FetchTimeout time.Duration
	// FailMin and FailMax bound the back-off after failures; 1 s and 1 min.
	FailMin, FailMax time.Duration
	// TTL is how long a value is fresh, from the start of its fetch; 1 h, at least 1 s.
	TTL time.Duration
	// Skew is how far other peers' wall clocks may be off; 5 s. A copy that
	// expires later than MaxTTL and Skew from now is refused.
	Skew time.Duration
	// MaxTTL is the longest time to live that is believed; 10 × TTL, at least 24 h. Where another peer believes more, this one
	// fetches again what it cannot take.
	MaxTTL time.Duration
}

// WithDefaults fills in the zero fields.
func (t Timings) WithDefaults() Timings {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&t.CandidateMin, 150*time.Millisecond)
	set(&t.CandidateMax, 300*time.Millisecond)
	set(&t.Repeat, 100*time.Millisecond)
	set(&t.OriginalVote, 300*time.Millisecond)
	set(&t.AnnounceTimeout, 2*time.Second)
	set(&t.Announce, time.Second)
	set(&t.KeepAlive, time.Second)
	set(&t.Ping, 3*time.Second)
	set(&t.Hello, time.Second)
	set(&t.FetchTimeout, time.Minute)
	set(&t.FailMin, time.Second)
	set(&t.FailMax, time.Minute)
	set(&t.TTL, time.Hour)
	set(&t.Skew, 5*time.Second)
	set(&t.MaxTTL, max(10*t.TTL, 24*time.Hour))
	return t
}

// Reach is how far ahead of its wall clock a peer has to start a removal, or terms where it cannot know which were used,
// because its storage is new or the members have changed: beyond the terms of others, whose clocks may be ahead by Skew,
// and who begin above a ceiling, which leads the clock by twice AnnounceTimeout (ensureCeiling), when they have
// restarted; the second is for several restarts in a row.
func (t Timings) Reach() time.Duration { return t.Skew + 2*t.AnnounceTimeout + time.Second }

// lossWait is how long something can rest on the votes and fetches of a peer that has forgotten them.
func (t Timings) lossWait() time.Duration { return 2*t.AnnounceTimeout + t.Skew }

// Validate checks, after [Timings.WithDefaults], that the waits fit together.
func (t Timings) Validate() error {
	for _, c := range []struct {
		bad bool
		why string
	}{
		{t.CandidateMin < time.Millisecond, fmt.Sprintf("the candidate's shortest wait (%v) must be at least 1ms", t.CandidateMin)},
		{t.CandidateMax < t.CandidateMin, fmt.Sprintf("the candidate's longest wait (%v) must not be below its shortest (%v)", t.CandidateMax, t.CandidateMin)},
		{t.Repeat < time.Millisecond, fmt.Sprintf("questions must not be repeated more often than every 1ms (%v)", t.Repeat)},
		{t.OriginalVote < t.CandidateMax, fmt.Sprintf("a voter must wait for its candidate (%v) as long as that may take (%v)", t.OriginalVote, t.CandidateMax)},
		{t.AnnounceTimeout < 2*t.Announce, fmt.Sprintf("the announce timeout (%v) must be at least twice the announce interval (%v): otherwise one late announcement ends a fetch", t.AnnounceTimeout, t.Announce)},
		{t.AnnounceTimeout < 2*t.CandidateMax, fmt.Sprintf("the announce timeout (%v) must be at least twice the candidate's longest wait (%v): a vote must outlive the election", t.AnnounceTimeout, t.CandidateMax)},
		{t.Announce < time.Millisecond, fmt.Sprintf("the announce interval (%v) must be at least 1ms", t.Announce)},
		{t.KeepAlive < 10*time.Millisecond, fmt.Sprintf("the keep-alive interval (%v) must be at least 10ms", t.KeepAlive)},
		{t.Ping < 10*time.Millisecond || t.Hello < 10*time.Millisecond, "peers must not be greeted more often than every 10ms"},
		{t.FetchTimeout < time.Millisecond, fmt.Sprintf("the origin's deadline (%v) must be at least 1ms", t.FetchTimeout)},
		{t.FailMin < time.Millisecond || t.FailMax < t.FailMin, fmt.Sprintf("the back-off after failures must grow from at least 1ms (%v) to no less (%v)", t.FailMin, t.FailMax)},
		{t.TTL < time.Second, fmt.Sprintf("the time to live (%v) must be at least 1s", t.TTL)},
		{t.MaxTTL < t.TTL, fmt.Sprintf("the longest time to live that is believed (%v) must not be below the time to live (%v)", t.MaxTTL, t.TTL)},
		{t.Skew < 0, "the clocks' skew must not be negative"},
	} {
		if c.bad {
			return fmt.Errorf("%w: %s", ErrUnsafeTiming, c.why)
		}
	}
	return nil
}

// margin is what is kept between the end of a fetch and the earliest time at which
// another may begin: late timers, and clocks that do not run alike.
func (t Timings) margin() time.Duration { return t.AnnounceTimeout / 10 }
