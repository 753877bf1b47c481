package sim

import (
	"slices"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// CacheTwin is a cluster that is broken on purpose, in one way: see [Twin].
type CacheTwin struct {
	Name string
	// Caught is what the judge has to say of it.
	Caught string
	// Setup changes what a process starts with.
	Setup func(*cachePeer, *protocol.Setup)
	// Start is called with a machine that starts.
	Start func(*cacheTwist, protocol.Setup)
	// In and Out replace what a machine is told, and what it wants done.
	In  func(*cacheTwist, protocol.Input) []protocol.Input
	Out func(*cacheTwist, protocol.Effect) []protocol.Effect
	// Deaf ignores that a fetch must stop, HastyTerms and HastyRemovals say that
	// something is stored before it is, Restless asks for ticks without end.
	Deaf, HastyTerms, HastyRemovals, Restless bool
	// Need makes sure that a run has what the fault needs to show.
	Need func(*CacheSetup)
}

// cacheTwist is a broken machine.
type cacheTwist struct {
	*protocol.Machine
	twin  CacheTwin
	peer  *cachePeer
	now   protocol.Now
	asker protocol.Received // the last question
	said  map[string]int64  // highest term voted in, by key
	table protocol.Table
}

func (w *cacheWorld) twist(p *cachePeer, s protocol.Setup, m *protocol.Machine) cacheMachine {
	twin := w.setup.Twin
	if twin.Start == nil && twin.In == nil && twin.Out == nil && !twin.Restless {
		return m
	}
	t := &cacheTwist{Machine: m, twin: twin, peer: p, said: map[string]int64{}, table: s.Table}
	if twin.Start != nil {
		twin.Start(t, s)
	}
	return t
}

func (t *cacheTwist) Step(now protocol.Now, in protocol.Input) (all []protocol.Effect) {
	t.now = now
	ins := []protocol.Input{in}
	if h, ok := in.(protocol.Received); ok {
		if _, ok := h.Message.(protocol.Question); ok {
			t.asker = h
		}
	}
	if t.twin.In != nil {
		ins = append(t.twin.In(t, in), protocol.Tick{})
	}
	for _, in := range ins {
		for _, e := range slices.Clone(t.Machine.Step(now, in)) {
			if t.twin.Out != nil {
				all = append(all, t.twin.Out(t, e)...)
			} else {
				all = append(all, e)
			}
		}
	}
	return all
}

func (t *cacheTwist) Next() time.Duration {
	if t.twin.Restless {
		return 0
	}
	return t.Machine.Next()
}

// hears changes the messages that a machine hears; nil: it hears nothing.
func hears[M protocol.Message](change func(*cacheTwist, string, M) protocol.Message) func(*cacheTwist, protocol.Input) []protocol.Input {
	return func(t *cacheTwist, in protocol.Input) []protocol.Input {
		h, ok := in.(protocol.Received)
		if !ok {
			return []protocol.Input{in}
		}
		if m, ok := h.Message.(M); ok {
			if h.Message = change(t, h.From, m); h.Message == nil {
				return nil
			}
		}
		return []protocol.Input{h}
	}
}

// tells changes the messages that a machine sends; nil: it sends nothing.
func tells[M protocol.Message](change func(*cacheTwist, string, M) protocol.Message) func(*cacheTwist, protocol.Effect) []protocol.Effect {
	return func(t *cacheTwist, e protocol.Effect) []protocol.Effect {
		s, ok := e.(protocol.Send)
		if !ok {
			return []protocol.Effect{e}
		}
		if m, ok := s.Message.(M); ok {
			if s.Message = change(t, s.To, m); s.Message == nil {
				return nil
			}
		}
		return []protocol.Effect{s}
	}
}

// whole has storage everywhere, and members who stay.
func whole(s *CacheSetup) {
	s.Peers, s.Spare, s.Changes, s.Wipes, s.FalseDead = 3, 0, false, false, false
	s.Stored, s.Passive = []bool{true, true, true}, make([]bool, 3)
	s.Length = 10 * s.Timings.AnnounceTimeout
}

// harsh is whole, with slow fetches of one key and all that parts those who make them.
func harsh(s *CacheSetup) {
	whole(s)
	s.Keys, s.Room, s.Gap = 1, 0, 50*time.Millisecond
	s.Cuts, s.Restarts, s.Pauses, s.Removals = true, true, false, false
	s.Timings.FetchTimeout = 4 * s.Timings.AnnounceTimeout
	s.Source = CacheSource{Fast: s.Timings.AnnounceTimeout, Slow: 4 * s.Timings.AnnounceTimeout}
	s.Timings.TTL = time.Second
}

// CacheTwins returns every one that the simulation must catch.
func CacheTwins() []CacheTwin {
	return slices.Concat(voteTwins(), restartTwins(), copyTwins(), answerTwins(), waitTwins())
}
