package protocol

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// message reads what a peer says:
//
//	question KEY TERM [config=N] [since=N]      answer KEY TERM yes|no [expire=N]
//	announce KEY TERM [expire=N] [stamp=N] [config=N]   ack KEY TERM stamp=N
//	update KEY TERM VALUE expire=N [made=N]     entryreq KEY
//	release KEY TERM [used]  failed KEY TERM TEXT wait=DURATION [count=N]
//	remove|removed key NAME TERM | prefix NAME TERM | all TERM | everything TERM
//	ping   pong            hello [incarnation=N] [echo=N] [busy] [config=N] [members=LIST] [wall=N] [forgets] [empty] [lost]
//	members LIST
//
// A stamp is a time on the machine's boot clock in milliseconds; "stamp=now" is now.
func (s *scripted) message(from string, words []string) Message {
	options, words := options(words)
	number := func(name string) int64 {
		switch text := options[name]; {
		case text == "":
			return 0
		case name == "stamp" && text == "now":
			return s.now.Boot.Milliseconds()
		default:
			return s.number(text)
		}
	}
	term := func() int64 { return s.number(words[2]) }
	config := func() int64 { // 1, unless it is said
		if _, said := options["config"]; said || s.originals[from] {
			return number("config")
		}
		return 1
	}
	switch words[0] {
	case "question":
		return Question{Key: words[1], Term: term(), ListNumber: config(), MinExpire: number("since")}
	case "answer":
		return Answer{Key: words[1], Term: term(), Yes: words[3] == "yes", Expire: number("expire")}
	case "announce":
		return Announce{Key: words[1], Term: term(), Expire: number("expire"), Stamp: number("stamp"), ListNumber: config()}
	case "ack":
		return Ack{Key: words[1], Term: term(), Stamp: number("stamp")}
	case "update":
		value := []byte(strings.Trim(words[3], `"`))
		return Update{words[1], Entry{Term: term(), Value: value, Digest: Digest(value), Expire: number("expire"), Made: number("made")}}
	case "entryreq":
		return EntryReq{words[1]}
	case "fetchreq":
		return FetchReq{words[1]}
	case "release":
		return Release{Key: words[1], Term: term(), Used: slices.Contains(words, "used")}
	case "failed":
		return Failed{Key: words[1], Term: term(), Wait: s.duration(options["wait"]).Milliseconds(), Text: strings.Join(words[3:], " "), Count: max(1, number("count"))}
	case "remove":
		return Remove{s.removal(words[1:])}
	case "removed":
		return Removed{s.removal(words[1:])}
	case "ping":
		return Ping{}
	case "pong":
		return Pong{}
	case "hello":
		return s.readHello(options, words[1:])
	case "members":
		return MembersList{membersNamed(words[1])}
	}
	s.t.Fatalf("%s: no such message", s.where)
	return nil
}

func (s *scripted) removal(words []string) Removal {
	r := Removal{PrefixKey, "", s.number(words[len(words)-1])}
	if words[0] == "everything" {
		r.Scope = Everything
	} else if words[0] != "all" {
		r.Name = words[1]
	}
	if words[0] == "key" {
		r.Scope = OneKey
	}
	return r
}

func (s *scripted) readHello(options map[string]string, words []string) Hello {
	h := s.hello(2)
	for _, w := range words {
		switch w {
		case "busy":
			h.Busy = true
		case "forgets":
			h.HasStorage = false
		case "empty":
			h.Empty = true
		case "lost":
			h.Lost = true
		}
	}
	for name, value := range options {
		switch name {
		case "incarnation":
			h.Incarnation = uint64(s.number(value))
		case "echo":
			h.Echo = uint64(s.number(value))
		case "config":
			h.ListNumber = s.number(value)
		case "members":
			h.Members = membersNamed(value).Digest()
		case "wall":
			h.Wall = s.number(value)
		}
	}
	return h
}

// showEffect is an effect in one line.
func showEffect(e Effect, since func(time.Duration) string) string {
	switch e := e.(type) {
	case Send:
		to := "all"
		if e.To != "" {
			to = peerName(e.To)
		}
		return "to " + to + ": " + showMessage(e.Message)
	case Reply:
		return fmt.Sprintf("reply %d: %s", e.Token, showEntry(e.Entry))
	case KeepAlive:
		return fmt.Sprintf("keep-alive %d", e.Token)
	case Refuse:
		reason := [...]string{"0", "origin failed", "partitioned", "overloaded", "timed out", "broken", "not a member", "stopping", "passive"}[e.Reason]
		return fmt.Sprintf("refuse %d, %s, wait %v: %s", e.Token, reason, e.Wait, shortUrls(e.Why))
	case KeysRemoved:
		return fmt.Sprintf("gone %d: %d of %d", e.Token, e.Confirmed, e.Of)
	case MembersChanged:
		return strings.TrimSpace(fmt.Sprintf("changed %d: %s", e.Token, shortUrls(e.Err)))
	case StartFetch:
		stale := ""
		if e.Stale.Held() {
			stale = ", instead of " + showEntry(e.Stale)
		}
		return fmt.Sprintf("fetch %s %s: end it %s%s", e.Key, stamp(e.Term), since(e.Until), stale)
	case Trust:
		return fmt.Sprintf("trust %s %s: end it %s", e.Key, stamp(e.Term), since(e.Until))
	case Abort:
		return fmt.Sprintf("abort %s %s: %s", e.Key, stamp(e.Term), shortUrls(e.Why))
	case Save:
		return fmt.Sprintf("save %s %s", e.Key, showEntry(e.Entry))
	case Raise:
		return "raise " + stamp(e.To)
	case SaveRemovals:
		var all []string
		for _, r := range e.All {
			all = append(all, showRemoval(r))
		}
		return "save removals: " + strings.Join(all, ", ")
	case SaveMembers:
		settled := ""
		if !e.State.Settled {
			settled = ", not settled"
		}
		return "save members " + e.State.Members.names() + settled
	case StateChanged:
		if e.Key == "" {
			return "moved: " + shortUrls(e.Why)
		}
		peer := ""
		if e.Peer != "" {
			peer = " of " + peerName(e.Peer)
		}
		return fmt.Sprintf("%s is %s%s %s: %s", e.Key, e.To, peer, stamp(e.Term), shortUrls(e.Why))
	}
	return fmt.Sprintf("%#v", e)
}

func showMessage(m Message) string {
	option := func(name string, n int64) string {
		if n == 0 {
			return ""
		}
		return " " + name + "=" + stamp(n)
	}
	switch m := m.(type) {
	case Question:
		return fmt.Sprintf("question %s %s%s%s", m.Key, stamp(m.Term), option("config", m.ListNumber), option("since", m.MinExpire))
	case Answer:
		vote := "no"
		if m.Yes {
			vote = "yes"
		}
		return fmt.Sprintf("answer %s %s %s%s", m.Key, stamp(m.Term), vote, option("expire", m.Expire))
	case Announce:
		return fmt.Sprintf("announce %s %s%s%s", m.Key, stamp(m.Term), option("expire", m.Expire), showStamp(m.Stamp))
	case Ack:
		return fmt.Sprintf("ack %s %s%s", m.Key, stamp(m.Term), showStamp(m.Stamp))
	case Update:
		return fmt.Sprintf("update %s %s", m.Key, showEntry(m.Entry))
	case EntryReq:
		return "entryreq " + m.Key
	case FetchReq:
		return "fetchreq " + m.Key
	case Release:
		if m.Used {
			return fmt.Sprintf("release %s %s used", m.Key, stamp(m.Term))
		}
		return fmt.Sprintf("release %s %s", m.Key, stamp(m.Term))
	case Failed:
		return fmt.Sprintf("failed %s %s %s wait=%v count=%d", m.Key, stamp(m.Term), m.Text, time.Duration(m.Wait)*time.Millisecond, m.Count)
	case Remove:
		return "remove " + showRemoval(m.Removal)
	case Removed:
		return "removed " + showRemoval(m.Removal)
	case Ping:
		return "ping"
	case Pong:
		return "pong"
	case Hello:
		words := fmt.Sprintf("hello incarnation=%d echo=%d config=%d", m.Incarnation, m.Echo, m.ListNumber)
		if m.Busy {
			words += " busy"
		}
		if m.Lost {
			words += " lost"
		}
		return words
	case MembersList:
		return "members " + m.Members.names()
	}
	return fmt.Sprintf("%#v", m)
}

// showStamp shows a time of the boot clock.
func showStamp(ms int64) string {
	if ms == 0 {
		return ""
	}
	return fmt.Sprintf(" stamp=%d", ms)
}

func showRemoval(r Removal) string {
	switch {
	case r.Scope == Everything:
		return "everything " + stamp(r.Term)
	case r.Scope == Owed:
		return "owed to " + peerName(r.Name) + " " + stamp(r.Term)
	case r.Scope == OneKey:
		return "key " + r.Name + " " + stamp(r.Term)
	case r.Name == "":
		return "all " + stamp(r.Term)
	default:
		return "prefix " + r.Name + " " + stamp(r.Term)
	}
}

func showEntry(e Entry) string {
	var seen string
	if e.Used > e.Term {
		seen = " seen " + stamp(e.Used)
	}
	if !e.Held() {
		return "nothing" + seen
	}
	return fmt.Sprintf("%s %q until %s%s", stamp(e.Term), e.Value, stamp(e.Expire), seen)
}

func showLook(l KeyStatus, since func(time.Duration) string) string {
	out := l.State.String()
	if l.State != Idle {
		out += " " + stamp(l.Term)
	}
	if l.Peer != "" {
		out += " of " + peerName(l.Peer)
		if l.PeerFetches {
			out += ", which fetches"
		}
	}
	if l.Waiting > 0 {
		out += fmt.Sprintf(", %d wait", l.Waiting)
	}
	if l.Failure != "" {
		out += fmt.Sprintf(", failed (%s), again %s", l.Failure, since(l.Retry))
	}
	return out
}

// stamp shows a term or a time: near the epoch as milliseconds since then.
func stamp(n int64) string {
	if d := time.Duration(n-epoch) * time.Millisecond; n > epoch-1e9 && n < epoch+1e9 {
		if d != 0 && d%time.Minute == 0 {
			return "@" + strings.Replace(strings.TrimSuffix(d.String(), "0s"), "h0m", "h", 1)
		}
		return "@" + strconv.FormatInt(n-epoch, 10)
	}
	return strconv.FormatInt(n, 10)
}

// shortUrls names peers shortly in a sentence.
func shortUrls(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "tcp://", ""), ":1", "")
}
