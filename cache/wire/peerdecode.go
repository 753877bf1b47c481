package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// Decode takes a message apart, which is to all peers or to [Codec.Self]. Errors wrap [ErrMalformed], [ErrTarget], [ErrAuth] or
// [ErrUnknown]; none of them is a reason to close the connection. What is returned
// has nothing in common with the frames.
func (c Codec) Decode(frames [][]byte) (from string, m protocol.Message, err error) {
	if len(frames) <= typeFrame {
		return "", nil, fmt.Errorf("%w: %d frames; target, sender and type are needed", ErrMalformed, len(frames))
	}
	if to := string(frames[0]); to != "*" && (to != c.Self || to == "") {
		return "", nil, fmt.Errorf("%w: %.*q", ErrTarget, maxURL, to)
	}
	if n := len(frames[1]); n == 0 || n > maxURL {
		return "", nil, fmt.Errorf("%w: the sender (frame 1) has %d bytes; 1 to %d are allowed", ErrMalformed, n, maxURL)
	}
	if err := c.authenticate(frames); err != nil {
		return "", nil, err
	}
	r := reader{codec: c, kind: frames[typeFrame][0], frames: frames, at: typeFrame + 1}
	if m = r.message(); r.err != nil {
		return "", nil, r.err
	}
	return string(frames[1]), m, nil
}

// reader takes the frames one by one. After the first error all it returns is zero.
type reader struct {
	codec  Codec
	kind   byte
	frames [][]byte
	at     int
	err    error
}

func (r *reader) fail(what, why string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: type %q, frame %d (%s): %s", ErrMalformed, r.kind, r.at, what, fmt.Sprintf(why, args...))
	}
}

// next is the next frame; false when there is none.
func (r *reader) next(what string) ([]byte, bool) {
	if r.err == nil && r.at >= len(r.frames) {
		r.fail(what, "it is missing")
	}
	if r.err != nil {
		return nil, false
	}
	f := r.frames[r.at]
	r.at++
	return f, true
}

// sized is a frame of lo to hi bytes.
func (r *reader) sized(what string, lo, hi int) []byte {
	f, ok := r.next(what)
	if ok && (len(f) < lo || len(f) > hi) {
		r.at--
		r.fail(what, "it has %d bytes; %d to %d are allowed", len(f), lo, hi)
		return nil
	}
	return f
}

func (r *reader) key() string { return string(r.sized("key", 1, r.codec.maxKey())) }

func (r *reader) uint(what string) int64 {
	f, ok := r.next(what)
	if !ok {
		return 0
	}
	n, err := parseUint(f)
	if err != nil {
		r.at--
		r.fail(what, "%v", err)
	}
	return n
}

// uintOrEmpty is a number that the original takes as 0 when the frame is empty.
func (r *reader) uintOrEmpty(what string) int64 {
	if r.err == nil && r.at < len(r.frames) && len(r.frames[r.at]) == 0 {
		r.at++
		return 0
	}
	return r.uint(what)
}

// extra is a number that may be left out.
func (r *reader) extra(what string) int64 {
	if r.at >= len(r.frames) {
		return 0
	}
	return r.uintOrEmpty(what)
}

func (r *reader) byte(what string) byte {
	if f := r.sized(what, 1, 1); f != nil {
		return f[0]
	}
	return 0
}

func (r *reader) mark(what string) uint64 {
	if f := r.sized(what, 8, 8); f != nil {
		return binary.BigEndian.Uint64(f)
	}
	return 0
}

func (r *reader) message() protocol.Message {
	switch r.kind {
	case typeQuestion:
		return protocol.Question{Key: r.key(), Term: r.uintOrEmpty("term"), ListNumber: r.extra("config"), MinExpire: r.extra("since")}
	case typeAnswer:
		return protocol.Answer{Key: r.key(), Term: r.uint("term"), Expire: r.uint("expire"), Yes: r.vote()}
	case typeEntryReq:
		return protocol.EntryReq{Key: r.key()}
	case typeAnnounce:
		return protocol.Announce{Key: r.key(), Term: r.uint("term"), Expire: r.uint("expire"), Stamp: r.extra("stamp"), ListNumber: r.extra("config")}
	case typeUpdate:
		return protocol.Update{Key: r.key(), Entry: r.entry()}
	case typePing:
		return protocol.Ping{}
	case typePong:
		return protocol.Pong{}
	case typeHello:
		return r.hello()
	case typeAck:
		return protocol.Ack{Key: r.key(), Term: r.uint("term"), Stamp: r.uint("stamp")}
	case typeRelease:
		return protocol.Release{Key: r.key(), Term: r.uint("term"), Used: r.extra("used") != 0}
	case typeFailed:
		return protocol.Failed{Key: r.key(), Term: r.uint("term"), Wait: r.uint("wait"), Count: r.uint("count"),
			Text: clip(string(r.sized("text", 0, maxText)))}
	case typeRemove:
		return protocol.Remove{Removal: r.removal()}
	case typeRemoved:
		return protocol.Removed{Removal: r.removal()}
	case typeFetchReq:
		return protocol.FetchReq{Key: r.key()}
	case typeMembers:
		return r.members()
	}
	r.err = fmt.Errorf("%w: %q", ErrUnknown, r.kind)
	return nil
}

func (r *reader) vote() bool {
	f, ok := r.next("vote")
	return ok && len(f) > 0 && f[0] != 0
}

func (r *reader) entry() protocol.Entry {
	e := protocol.Entry{Term: r.uint("term"), Expire: r.uint("expire")}
	if r.err == nil && e.Expire == 0 {
		r.at--
		r.fail("expire", "it is 0: there would be no value")
	}
	value := r.sized("value", 0, r.codec.maxValue())
	if e.Made = r.extra("made"); r.err != nil {
		return protocol.Entry{}
	}
	e.Value = make([]byte, len(value))
	copy(e.Value, value)
	e.Digest = protocol.Digest(e.Value)
	return e
}

func (r *reader) hello() protocol.Hello {
	h := protocol.Hello{Incarnation: r.mark("incarnation")}
	if r.err == nil && h.Incarnation == 0 {
		r.at--
		r.fail("incarnation", "it is 0")
	}
	h.Echo, h.ListNumber, h.Members, h.Wall = r.mark("echo"), r.uint("config"), r.mark("members"), r.uint("wall")
	flags := r.uint("flags")
	h.Busy, h.HasStorage, h.Empty, h.Lost = flags&flagBusy != 0, flags&flagStorage != 0, flags&flagEmpty != 0, flags&flagLost != 0
	return h
}

func (r *reader) removal() protocol.Removal {
	scope, least := protocol.Scope(r.byte("scope")), 0
	switch scope {
	case protocol.PrefixKey, protocol.Everything:
	case protocol.OneKey:
		least = 1
	default:
		if r.err == nil {
			r.at--
		}
		r.fail("scope", "it is %q; k, p and e are known", byte(scope))
	}
	return protocol.Removal{Scope: scope, Name: string(r.sized("name", least, r.codec.maxKey())), Term: r.uint("term")}
}

func (r *reader) members() protocol.MembersList {
	var m protocol.MembersList
	step := r.byte("step")
	r.mark("basis")
	r.uint("ballot")
	r.uint("accepted")
	r.uint("number")
	r.uint("floor")
	if r.err == nil && step != membersInForce {
		r.err = fmt.Errorf("%w: step %q of an older version's agreement on members", ErrUnknown, step)
	}
	if n := len(r.frames) - r.at; r.err == nil && n > 2*protocol.MaxMembers {
		r.fail("members", "%d members; %d are allowed", (n+1)/2, protocol.MaxMembers)
	}
	for r.err == nil && r.at < len(r.frames) {
		member := protocol.Member{URL: string(r.sized("url", 1, maxURL)), API: string(r.sized("api", 1, maxURL))}
		if err := member.Validate(); r.err == nil && err != nil {
			r.fail("members", "%v", err)
		}
		m.Members = append(m.Members, member)
	}
	return m
}
