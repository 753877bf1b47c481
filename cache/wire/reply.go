package wire

import (
	"errors"
	"fmt"
	"time"
)

// ReplyKind is what a server says.
type ReplyKind byte

// What a server may say.
const (
	ReplyKeepAlive ReplyKind = iota // it continues waiting
	ReplyValue                      // Value, Expire and, to an extended request, Made and Term
	ReplySeeOther                   // ask another server
	ReplyServers                    // Servers, to a DISCOVER
	ReplyError                      // Code, Retry and Text; only to extended requests
)

// Code says why there is no value.
type Code string

// Codes of errors. A client takes one that it does not know for CodeFailed.
const (
	CodePartitioned Code = "partitioned" // no majority can be reached, and no copy is here
	CodeFailed      Code = "failed"      // the origin failed
	CodeNotFound    Code = "not-found"   // the origin has no such key
	CodeOverloaded  Code = "overloaded"  // a bound of the server is reached
	CodeTooLarge    Code = "too-large"   // the key is longer than the server allows
	CodeBadRequest  Code = "bad-request" // the request is malformed
)

// Reply is what a server says to a request. Its bytes are part of the frames it was
// decoded from.
type Reply struct {
	ID      []byte // of the request
	Kind    ReplyKind
	Value   []byte
	Expire  int64 // Unix milliseconds until which the value is fresh, by the servers' clocks
	Made    int64 // Unix milliseconds at which its fetch began; 0: unknown
	Term    int64 // in which it was fetched; 0: unknown
	Servers []string
	Code    Code
	Retry   time.Duration // when to ask again, in whole milliseconds; 0: not said
	Text    string        // for people, at most 1 KiB
}

const (
	replyValue    = '='
	replySeeOther = '#'
	replyServers  = '*'
	replyError    = '!'
)

// Reply encodes a reply to a client that does or does not know the extension. One
// that does not is sent a value without its history, as the original does, and must be
// sent no error.
func (e *Encoder) Reply(r *Reply, extended bool) [][]byte {
	b := e.start()
	b.frames = append(b.frames, r.ID)
	switch r.Kind {
	case ReplyValue:
		b.byte(replyValue)
		b.frames = append(b.frames, r.Value)
		b.uint(r.Expire)
		if extended {
			b.extras(r.Made, r.Term)
		}
	case ReplySeeOther:
		b.byte(replySeeOther)
	case ReplyServers:
		b.byte(replyServers)
		start := len(b.buf)
		b.buf = appendStrings(b.buf, r.Servers)
		b.cut(start)
	case ReplyError:
		b.byte(replyError).text(string(r.Code)).uint(r.Retry.Milliseconds()).text(clip(r.Text))
	}
	return b.frames
}

func badReply(frame, why string) error {
	return fmt.Errorf("%w of a server: %s: %s", ErrMalformed, frame, why)
}

// Decode reads a reply to a GET. Frames that it does not know are ignored.
func (r *Reply) Decode(frames [][]byte) error {
	*r = Reply{}
	if len(frames) == 0 || len(frames[0]) == 0 || len(frames[0]) > maxID {
		return badReply("id (frame 0)", "it must have 1 to 64 bytes")
	}
	r.ID = frames[0]
	if len(frames) == 1 {
		return nil
	}
	if len(frames[1]) != 1 {
		return badReply("type (frame 1)", "it must have one byte")
	}
	switch kind := frames[1][0]; kind {
	case replyValue:
		return r.value(frames)
	case replySeeOther:
		r.Kind = ReplySeeOther
		return nil
	case replyError:
		return r.error(frames)
	default:
		return fmt.Errorf("%w of a server: %q", ErrUnknown, kind)
	}
}

func (r *Reply) value(frames [][]byte) (err error) {
	r.Kind = ReplyValue
	if len(frames) < 4 {
		return badReply("VALUE", "value or expiry is missing")
	}
	r.Value = frames[2]
	if r.Expire, err = parseUint(frames[3]); err != nil {
		return badReply("expiry (frame 3)", err.Error())
	}
	if r.Made, err = parseExtra(frames, 4); err != nil {
		return badReply("made (frame 4)", err.Error())
	}
	if r.Term, err = parseExtra(frames, 5); err != nil {
		return badReply("term (frame 5)", err.Error())
	}
	return nil
}

func (r *Reply) error(frames [][]byte) error {
	r.Kind = ReplyError
	if len(frames) < 5 {
		return badReply("ERROR", "code, retry or text is missing")
	}
	if n := len(frames[2]); n == 0 || n > maxID {
		return badReply("code (frame 2)", "it must have 1 to 64 bytes")
	}
	retry, err := parseUint(frames[3])
	if err != nil {
		return badReply("retry (frame 3)", err.Error())
	}
	if len(frames[4]) > maxText {
		return badReply("text (frame 4)", "it has more than 1 KiB")
	}
	r.Code, r.Text = Code(frames[2]), clip(string(frames[4]))
	r.Retry = time.Duration(min(retry, maxRetry.Milliseconds())) * time.Millisecond
	return nil
}

// maxRetry keeps what a server says from running over.
const maxRetry = 24 * time.Hour

// parseExtra is a number that may be left out or empty.
func parseExtra(frames [][]byte, at int) (int64, error) {
	if at >= len(frames) {
		return 0, nil
	}
	n, err := parseUint(frames[at])
	if errors.Is(err, errEmpty) {
		return 0, nil
	}
	return n, err
}
