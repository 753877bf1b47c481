package sabledb

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is what a key holds. It is never changed, but replaced.
type value struct {
	text    string
	set     []string
	list    []string
	hash    map[string]string
	expires time.Time // zero: never
}

type command struct {
	least  int
	exact  bool
	writes bool
	run    func(s *session, args []string)
}

// outside a transaction only.
var outside = map[string]bool{
	"WATCH": true, "UNWATCH": true, "MULTI": true, "INFO": true, "PING": true, "DBSIZE": true, "BRPOP": true, "SCAN": true, "LOCK": true, "UNLOCK": true, "CLUSTER": true, "REPLICAOF": true,
}

// commands are those that SableDB has.
func commands() map[string]command {
	return map[string]command{
		"PING": {1, true, false, func(s *session, _ []string) { s.out.Simple("PONG") }},
		"INFO": {1, false, false, func(s *session, _ []string) { s.out.Bulk(s.n.info()) }}, "DBSIZE": {1, true, false, (*session).dbsize},
		"CLUSTER": {2, true, false, (*session).cluster}, "REPLICAOF": {3, true, false, (*session).replicaOf}, "SELECT": {2, true, false, func(s *session, _ []string) { s.out.Simple("OK") }},
		"GET": {2, true, false, (*session).get}, "MGET": {2, false, false, (*session).mget}, "TTL": {2, true, false, (*session).ttl}, "EXISTS": {2, false, false, (*session).exists},
		"SCAN": {2, false, false, (*session).scan}, "SMEMBERS": {2, true, false, (*session).smembers}, "LRANGE": {4, true, false, (*session).lrange},
		"LLEN": {2, true, false, func(s *session, a []string) { s.out.Int(int64(len(s.look(a[1]).list))) }},
		"HGET": {3, true, false, (*session).hmget}, "HMGET": {3, false, false, (*session).hmget}, "HGETALL": {2, true, false, (*session).hgetall},
		"SET": {3, false, true, (*session).setText}, "SETNX": {3, true, true, (*session).setNX}, "GETDEL": {2, true, true, (*session).getdel}, "DEL": {2, false, true, (*session).del},
		"EXPIRE": {3, true, true, (*session).expire}, "INCR": {2, true, true, (*session).incr},
		"SADD": {3, false, true, (*session).sadd}, "SREM": {3, false, true, (*session).srem},
		"RPUSH": {3, false, true, (*session).push}, "LPUSH": {3, false, true, (*session).push}, "LREM": {4, true, true, (*session).lrem}, "LTRIM": {4, true, true, (*session).ltrim},
		"HSET": {4, false, true, (*session).hset}, "HDEL": {3, false, true, (*session).hdel},
	}
}

func (s *session) clock() time.Time { return time.Now().Add(s.n.skew) }

// look is what a key holds for this client, never nil.
func (s *session) look(key string) *value {
	v := s.n.data[key]
	if w, own := s.written[key]; own && s.inExec {
		v = w
	}
	if v == nil || !v.expires.IsZero() && !v.expires.After(s.clock()) {
		return &value{}
	}
	return v
}

func (s *session) has(key string) bool {
	v := s.look(key)
	return v.text != "" || v.set != nil || v.list != nil || v.hash != nil
}

// put replaces what a key holds; nil deletes it.
func (s *session) put(key string, v *value) {
	if s.inExec {
		s.written[key], s.now[key] = v, true
		return
	}
	s.n.put(key, v)
	s.n.wake()
}

func (n *Node) wake() {
	close(n.pushed)
	n.pushed = make(chan struct{})
}

// breaks the connection if the present EXEC has written the key.
func (s *session) breaks(key string) {
	if s.inExec && s.now[key] {
		s.broken = true
	}
}

func (s *session) cluster(args []string) {
	if strings.EqualFold(args[1], "MYID") {
		s.out.Bulk(s.n.ID)
		return
	}
	s.out.Array(0)
}

func (s *session) replicaOf(args []string) {
	if problem := s.n.replicaOf(args[1], args[2]); problem != "" {
		s.n.refused = append(s.n.refused, strings.Join(args, " "))
		s.out.Error(problem)
		return
	}
	s.out.Simple("OK")
}

// dbsize is counted every 30 s.
func (s *session) dbsize([]string) {
	if time.Since(s.n.countedAt) > 30*time.Second {
		s.n.listed, s.n.countedAt = int64(len(s.n.data)), time.Now()
	}
	s.out.Int(s.n.listed)
}

func (s *session) get(args []string) {
	if !s.has(args[1]) {
		s.out.Null()
		return
	}
	s.out.Bulk(s.look(args[1]).text)
}

func (s *session) mget(args []string) {
	s.out.Array(len(args) - 1)
	for _, key := range args[1:] {
		s.get([]string{"", key})
	}
}

// ttl is rounded to the nearest second.
func (s *session) ttl(args []string) {
	v := s.look(args[1])
	switch {
	case !s.has(args[1]):
		s.out.Int(-2)
	case v.expires.IsZero():
		s.out.Int(-1)
	default:
		s.out.Int(int64(v.expires.Sub(s.clock()).Round(time.Second) / time.Second))
	}
}

func (s *session) exists(args []string) {
	s.broken = s.broken || s.inExec
	n := 0
	for _, key := range args[1:] {
		if s.has(key) {
			n++
		}
	}
	s.out.Int(int64(n))
}

func (s *session) scan([]string) {
	var keys []string
	for key := range s.n.data {
		if s.has(key) && len(keys) < 10 {
			keys = append(keys, key)
		}
	}
	s.out.Array(2)
	s.out.Int(0)
	s.strings(keys)
}

func (s *session) strings(all []string) {
	s.out.Array(len(all))
	for _, one := range all {
		s.out.Bulk(one)
	}
}

func (s *session) smembers(args []string) {
	s.breaks(args[1])
	s.strings(s.look(args[1]).set)
}

func (s *session) hmget(args []string) {
	h := s.look(args[1]).hash
	if strings.EqualFold(args[0], "HMGET") {
		s.out.Array(len(args) - 2)
	}
	for _, field := range args[2:] {
		v, ok := h[field]
		if !ok {
			s.broken = s.broken || s.inExec
			s.out.Null()
			continue
		}
		s.out.Bulk(v)
	}
}

func (s *session) hgetall(args []string) {
	s.breaks(args[1])
	h := s.look(args[1]).hash
	s.out.Array(2 * len(h))
	for field, v := range h {
		s.out.Bulk(field)
		s.out.Bulk(v)
	}
}

func (s *session) setText(args []string) {
	v := &value{text: args[2]}
	for rest := args[3:]; len(rest) > 0; {
		switch {
		case strings.EqualFold(rest[0], "NX"):
			if s.has(args[1]) {
				s.out.Null()
				return
			}
			rest = rest[1:]
		case strings.EqualFold(rest[0], "EX") && len(rest) > 1:
			seconds, err := strconv.Atoi(rest[1])
			if err != nil || seconds <= 0 {
				s.out.Error("ERR invalid expire time in 'set' command")
				return
			}
			v.expires = s.clock().Add(time.Duration(seconds) * time.Second)
			rest = rest[2:]
		default:
			s.refuse(args)
			return
		}
	}
	s.put(args[1], v)
	s.out.Simple("OK")
}

func (s *session) setNX(args []string) {
	if s.has(args[1]) {
		s.out.Int(0)
		return
	}
	s.put(args[1], &value{text: args[2]})
	s.out.Simple("OK")
}

func (s *session) getdel(args []string) {
	s.get(args[:2])
	s.put(args[1], nil)
}

func (s *session) del(args []string) {
	n := 0
	for _, key := range args[1:] {
		if s.has(key) {
			n++
		}
		s.put(key, nil)
	}
	s.out.Int(int64(n))
}

func (s *session) expire(args []string) {
	seconds, err := strconv.Atoi(args[2])
	switch {
	case err != nil || seconds < 0:
		s.out.Error("ERR value is not an integer or out of range")
	case !s.has(args[1]):
		s.out.Int(0)
	case seconds == 0:
		s.put(args[1], nil)
		s.out.Int(1)
	default:
		v := *s.look(args[1])
		v.expires = s.clock().Add(time.Duration(seconds) * time.Second)
		s.put(args[1], &v)
		s.out.Int(1)
	}
}

func (s *session) incr(args []string) {
	n, _ := strconv.ParseInt(s.look(args[1]).text, 10, 64)
	text := strconv.FormatInt(n+1, 10)
	s.put(args[1], &value{text: text})
	s.out.Bulk(text)
}

func (s *session) sadd(args []string) {
	all := slices.Clone(s.look(args[1]).set)
	before := len(all)
	for _, one := range args[2:] {
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	s.put(args[1], &value{set: all})
	s.out.Int(int64(len(all) - before))
}

func (s *session) srem(args []string) {
	old := s.look(args[1]).set
	all := slices.DeleteFunc(slices.Clone(old), func(one string) bool { return slices.Contains(args[2:], one) })
	s.replace(args[1], &value{set: all}, len(all) == 0)
	s.out.Int(int64(len(old) - len(all)))
}

func (s *session) replace(key string, v *value, empty bool) {
	if empty {
		v = nil
	}
	s.put(key, v)
}

func (s *session) hset(args []string) {
	h := map[string]string{}
	maps.Copy(h, s.look(args[1]).hash)
	for i := 2; i+1 < len(args); i += 2 {
		h[args[i]] = args[i+1]
	}
	s.put(args[1], &value{hash: h})
	s.out.Int(int64(len(args)-2) / 2)
}

func (s *session) hdel(args []string) {
	h, n := map[string]string{}, 0
	for field, v := range s.look(args[1]).hash {
		if slices.Contains(args[2:], field) {
			n++
		} else {
			h[field] = v
		}
	}
	s.replace(args[1], &value{hash: h}, len(h) == 0)
	s.out.Int(int64(n))
}
