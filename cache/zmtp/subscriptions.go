package zmtp

import (
	"fmt"
	"slices"
	"sync"
)

// subscriptions of one connection. A message matches when one of them is a prefix of
// its first frame. They are looked up by the few lengths that occur.
type subscriptions struct {
	mu      sync.RWMutex
	counts  map[string]int // how often each was made
	lengths []lengthCount
	bytes   int
}

type lengthCount struct{ length, count int }

// add tells whether the subscription is new.
func (s *subscriptions) add(prefix []byte) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.counts[string(prefix)]; n > 0 {
		s.counts[string(prefix)] = n + 1
		return false, nil
	}
	if len(s.counts) == maxSubscriptions || s.bytes+len(prefix) > maxPrefixes {
		return false, fmt.Errorf("%w: more than %d subscriptions or %d bytes of them",
			ErrTooLarge, maxSubscriptions, maxPrefixes)
	}
	if s.counts == nil {
		s.counts = map[string]int{}
	}
	s.counts[string(prefix)] = 1
	s.bytes += len(prefix)
	if i := s.length(len(prefix)); i >= 0 {
		s.lengths[i].count++
	} else {
		s.lengths = append(s.lengths, lengthCount{len(prefix), 1})
	}
	return true, nil
}

// remove tells whether the subscription is now gone. One that was not made is ignored.
func (s *subscriptions) remove(prefix []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.counts[string(prefix)]
	if n != 1 {
		if n > 1 {
			s.counts[string(prefix)] = n - 1
		}
		return false
	}
	delete(s.counts, string(prefix))
	s.bytes -= len(prefix)
	i := s.length(len(prefix))
	if s.lengths[i].count--; s.lengths[i].count == 0 {
		s.lengths = slices.Delete(s.lengths, i, i+1)
	}
	return true
}

func (s *subscriptions) length(n int) int {
	return slices.IndexFunc(s.lengths, func(l lengthCount) bool { return l.length == n })
}

func (s *subscriptions) match(topic []byte) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, l := range s.lengths {
		if l.length <= len(topic) && s.counts[string(topic[:l.length])] > 0 {
			return true
		}
	}
	return false
}

// subscription reads one that came as a message, from a peer of version 3.0 or an
// older libzmq. Anything else that a subscriber sends means nothing.
func subscription(m Message) (prefix []byte, on, ok bool) {
	if len(m) != 1 || len(m[0]) == 0 || m[0][0] > 1 {
		return nil, false, false
	}
	return m[0][1:], m[0][0] == 1, true
}

// subscribe is what a SUB sends for one prefix.
func subscribe(dst, prefix []byte, minor int, s *sealer) []byte {
	if minor == 0 {
		return appendPart(dst, 0, append([]byte{1}, prefix...), s)
	}
	return appendPart(dst, flagCommand, appendCommand(nil, "SUBSCRIBE", prefix), s)
}
