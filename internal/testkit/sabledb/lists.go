package sabledb

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

func (s *session) lrange(args []string) {
	s.breaks(args[1])
	s.strings(between(s.look(args[1]).list, args[2], args[3]))
}

func between(all []string, first, last string) []string {
	from, _ := strconv.Atoi(first)
	to, _ := strconv.Atoi(last)
	if from < 0 {
		from = max(0, from+len(all))
	}
	if to < 0 {
		to += len(all)
	}
	to = min(to+1, len(all))
	if from >= to {
		return nil
	}
	return all[from:to]
}

func (s *session) push(args []string) {
	all := slices.Clone(s.look(args[1]).list)
	for _, one := range args[2:] {
		if strings.EqualFold(args[0], "LPUSH") {
			all = append([]string{one}, all...)
		} else {
			all = append(all, one)
		}
	}
	s.put(args[1], &value{list: all})
	s.out.Int(int64(len(all)))
}

func (s *session) lrem(args []string) {
	old := s.look(args[1]).list
	all := slices.DeleteFunc(slices.Clone(old), func(one string) bool { return one == args[3] })
	s.replace(args[1], &value{list: all}, len(all) == 0)
	s.out.Int(int64(len(old) - len(all)))
}

func (s *session) ltrim(args []string) {
	all := slices.Clone(between(s.look(args[1]).list, args[2], args[3]))
	s.replace(args[1], &value{list: all}, len(all) == 0)
	s.out.Simple("OK")
}

func (s *session) brpop(args []string) {
	wait, _ := strconv.ParseFloat(args[len(args)-1], 64)
	timer := time.After(time.Duration(wait * float64(time.Second)))
	for {
		s.n.c.mu.Lock()
		s.n.served["BRPOP"]++
		all, pushed, stop := s.look(args[1]).list, s.n.pushed, s.n.stop
		if n := len(all); n > 0 {
			s.replace(args[1], &value{list: slices.Clone(all[:n-1])}, n == 1)
			s.strings([]string{args[1], all[n-1]})
		}
		s.n.c.mu.Unlock()
		if len(all) > 0 {
			return
		}
		select {
		case <-pushed:
		case <-stop:
			s.broken = true
			return
		case <-timer:
			s.out.NullArray()
			return
		}
	}
}
