package sim

import (
	"slices"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

func voteTwins() []CacheTwin {
	return []CacheTwin{
		{Name: "two votes in a term", Caught: "and voted for", Need: harsh,
			Out: tells(func(t *cacheTwist, to string, a protocol.Answer) protocol.Message {
				if q, ok := t.asker.Message.(protocol.Question); ok && q.Key == a.Key && q.Term == a.Term && t.asker.From == to {
					a.Yes = true
				}
				return a
			})},
		{Name: "a vote while bound to another", Caught: "fetches a/0 in term", Need: harsh,
			Out: tells(func(t *cacheTwist, to string, a protocol.Answer) protocol.Message {
				if q, ok := t.asker.Message.(protocol.Question); ok && q.Key == a.Key && q.Term == a.Term && t.asker.From == to && a.Term > t.said[a.Key] {
					a.Yes = true
				}
				if a.Yes {
					t.said[a.Key] = a.Term
				}
				return a
			})},
		{Name: "a late yes is counted", Caught: "votes of", Need: harsh,
			In: hears(func(t *cacheTwist, _ string, a protocol.Answer) protocol.Message {
				if l := t.KeyStatus(a.Key); a.Yes && l.State == protocol.Candidate {
					a.Term = l.Term
				}
				return a
			})},
		{Name: "a fetch is acknowledged and not followed", Caught: "does in term", Need: harsh,
			In: hears(func(t *cacheTwist, from string, a protocol.Announce) protocol.Message {
				t.peer.say(protocol.Send{To: from, Message: protocol.Ack{Key: a.Key, Term: a.Term, Stamp: a.Stamp}})
				return nil
			})},
		{Name: "a fetch goes on that must stop", Caught: "does in term", Deaf: true, Need: harsh},
		{Name: "an acknowledgement counts from when it comes", Caught: "does in term",
			Need: func(s *CacheSetup) {
				harsh(s)
				s.Network = CacheNetwork{MaxDelay: s.Timings.AnnounceTimeout / 20, Late: 0.5, Lose: 0.3}
				s.Restarts, s.Length = false, 30*s.Timings.AnnounceTimeout
			},
			In: hears(func(t *cacheTwist, _ string, a protocol.Ack) protocol.Message {
				a.Stamp = t.now.Boot.Milliseconds()
				return a
			})},
		{Name: "a promise is believed for too long", Caught: "does in term", Need: harsh,
			Setup: func(p *cachePeer, s *protocol.Setup) {
				if p.host.i == 0 {
					s.Timings.AnnounceTimeout *= 4
				}
			}},
	}
}

// acquit has a machine believe that everyone knows of its life.
func acquit(t *cacheTwist, s protocol.Setup) {
	members := t.Members()
	for _, m := range members {
		if m.URL != s.Self {
			h := protocol.Hello{Incarnation: 1, Echo: s.Incarnation, ListNumber: 1, Members: members.Digest(), Wall: t.peer.host.wallNow(), HasStorage: true}
			t.Machine.Step(t.peer.host.clock(), protocol.Received{From: m.URL, Message: h})
		}
	}
}

func restartTwins() []CacheTwin {
	return []CacheTwin{
		{Name: "no abstention after a restart", Caught: "does in term", Start: acquit, Need: harsh},
		{Name: "terms are forgotten at a restart", Caught: "before it started again", Start: acquit,
			Setup: func(_ *cachePeer, s *protocol.Setup) { s.Ceiling = 0 },
			Need: func(s *CacheSetup) {
				harsh(s)
				s.Steps = true
			}},
		{Name: "a term is used before it is stored", Caught: "above what is stored", HastyTerms: true, Need: whole},
		{Name: "a removal is confirmed before it is stored", Caught: "and has confirmed", HastyRemovals: true,
			Need: func(s *CacheSetup) {
				whole(s)
				s.Removals, s.Restarts, s.DiskSlow = true, true, 2*time.Second
			}},
		{Name: "removals are forgotten at a restart", Caught: "and has confirmed",
			Setup: func(_ *cachePeer, s *protocol.Setup) { s.Removals = nil },
			Need: func(s *CacheSetup) {
				whole(s)
				s.Removals, s.Restarts = true, true
			}},
		{Name: "a removal reaches no further than clocks may be off", Caught: "and has confirmed",
			Setup: func(_ *cachePeer, s *protocol.Setup) { s.Timings.Skew -= s.Timings.Reach() - s.Timings.Skew },
			Need: func(s *CacheSetup) {
				whole(s)
				s.Removals, s.Restarts, s.Cuts, s.Gap = true, true, true, 30*time.Millisecond
				s.Timings.TTL, s.Length = time.Second, 20*s.Timings.AnnounceTimeout
			}},
		{Name: "lists that differ by two work together", Caught: "with a list that differs by",
			In: func(t *cacheTwist, in protocol.Input) []protocol.Input {
				h, ok := in.(protocol.Received)
				if !ok {
					return []protocol.Input{in}
				}
				switch m := h.Message.(type) {
				case protocol.Hello:
					m.Members = t.Members().Digest()
					h.Message = m
				case protocol.MembersList:
					return nil
				}
				return []protocol.Input{h}
			},
			Need: func(s *CacheSetup) {
				s.Peers, s.Spare, s.Changes, s.Hasty, s.Wipes = 3, 2, true, true, false
				s.Stored, s.Passive = slices.Repeat([]bool{true}, 5), make([]bool, 5)
				s.Length = 20 * s.Timings.AnnounceTimeout
			}},
	}
}

func copyTwins() []CacheTwin {
	removals := func(s *CacheSetup) {
		whole(s)
		s.Removals, s.Gap = true, 30*time.Millisecond
	}
	return []CacheTwin{
		{Name: "an older copy is taken", Caught: "by an older one",
			In: hears(func(t *cacheTwist, _ string, u protocol.Update) protocol.Message {
				t.table.Put(u.Key, u.Entry)
				return u
			}),
			Need: func(s *CacheSetup) {
				whole(s)
				s.Network = CacheNetwork{MaxDelay: time.Second, Late: 0.2, Duplicate: 0.2}
			}},
		{Name: "a removal is confirmed and not made", Caught: "and has confirmed", Need: removals,
			In: func(t *cacheTwist, in protocol.Input) []protocol.Input {
				h, ok := in.(protocol.Received)
				if !ok {
					return []protocol.Input{in}
				}
				if m, ok := h.Message.(protocol.Remove); ok {
					t.peer.say(protocol.Send{To: h.From, Message: protocol.Removed(m)})
					return nil
				}
				return []protocol.Input{in}
			}},
		{Name: "a removed copy is taken again", Caught: "and has confirmed", Need: removals,
			In: hears(func(t *cacheTwist, _ string, u protocol.Update) protocol.Message {
				if u.Entry.Newer(t.table.Get(u.Key)) {
					t.table.Put(u.Key, u.Entry)
				}
				return u
			})},
	}
}

func answerTwins() []CacheTwin {
	return []CacheTwin{
		{Name: "an answer comes twice", Caught: "to nobody",
			Out: func(_ *cacheTwist, e protocol.Effect) []protocol.Effect {
				if _, ok := e.(protocol.Reply); ok {
					return []protocol.Effect{e, e}
				}
				return []protocol.Effect{e}
			}},
		{Name: "an answer never comes", Caught: "still waits",
			Out: func(_ *cacheTwist, e protocol.Effect) []protocol.Effect {
				if _, ok := e.(protocol.Refuse); ok {
					return nil
				}
				return []protocol.Effect{e}
			}},
		{Name: "any copy will do", Caught: "it must expire after",
			In: func(_ *cacheTwist, in protocol.Input) []protocol.Input {
				if g, ok := in.(protocol.Get); ok {
					g.MinExpire, g.Refresh = 0, false
					return []protocol.Input{g}
				}
				return []protocol.Input{in}
			}},
		{Name: "a failure is forgotten", Caught: "before its back-off ends",
			Need: func(s *CacheSetup) { whole(s); s.Source.Fails, s.Source.Fast, s.Source.Slow = 1, 0, 0 },
			Out: tells(func(_ *cacheTwist, _ string, f protocol.Failed) protocol.Message {
				f.Wait *= 3
				return f
			})},
	}
}

func waitTwins() []CacheTwin {
	return []CacheTwin{
		{Name: "candidates have no patience", Caught: "within a second", Need: harsh,
			Setup: func(_ *cachePeer, s *protocol.Setup) {
				s.Timings.CandidateMin, s.Timings.CandidateMax = time.Millisecond, time.Millisecond
			}},
		{Name: "those who are cut off stand", Caught: "connected", Need: harsh,
			In: func(_ *cacheTwist, in protocol.Input) []protocol.Input {
				if l, ok := in.(protocol.Link); ok && l.State == protocol.Down {
					return nil
				}
				return []protocol.Input{in}
			}},
		{Name: "a partition never ends", Caught: "is not well", Need: harsh,
			In: hears(func(*cacheTwist, string, protocol.Pong) protocol.Message { return nil })},
		{Name: "a copy is not spread", Caught: "has term", Need: whole,
			Out: tells(func(_ *cacheTwist, to string, u protocol.Update) protocol.Message {
				if to == "" {
					return nil
				}
				return u
			})},
		{Name: "failures are remembered for ever", Caught: "still remembers",
			Need:  func(s *CacheSetup) { whole(s); s.Source.Fails = 1 },
			Setup: func(_ *cachePeer, s *protocol.Setup) { s.Timings.FailMax = time.Hour },
			In: func(_ *cacheTwist, in protocol.Input) []protocol.Input {
				if f, ok := in.(protocol.Fetched); ok && f.Err != "" && f.Wait == 0 {
					f.Wait = 300 * time.Millisecond
					return []protocol.Input{f}
				}
				return []protocol.Input{in}
			}},
		{Name: "ticks without end", Caught: "without end", Restless: true},
	}
}
