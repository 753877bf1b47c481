package zmtp

import (
	"fmt"
	"sync"
)

// subscriptions of one connection. A message matches when one of them is a prefix of
// its first frame. A peer has two.
type subscriptions struct {
	mu     sync.RWMutex
	counts map[string]int // how often each was made
	bytes  int
}

// add reports whether the subscription is new.
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
	return true, nil
}

// remove reports whether the subscription is now gone. One that was not made is ignored.
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
	return true
}

func (s *subscriptions) match(topic []byte) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for prefix := range s.counts {
		if len(prefix) <= len(topic) && string(topic[:len(prefix)]) == prefix {
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
