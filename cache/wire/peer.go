package wire

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// Codec encodes and decodes the messages of peers. It may be used from many
// goroutines as long as its fields are not changed.
type Codec struct {
	// Secret authenticates messages; nil: none is made and none is accepted.
	Secret []byte
	// Self is the url of the peer that decodes.
	Self string
	// MaxKey bounds a key and MaxValue a value, in bytes; 1 KiB and 16 MiB.
	MaxKey, MaxValue int
}

// Bounds of what has no bound of its own.
const (
	maxURL  = 255
	maxText = 1 << 10
)

func (c Codec) maxKey() int   { return cmp.Or(c.MaxKey, 1<<10) }
func (c Codec) maxValue() int { return cmp.Or(c.MaxValue, 16<<20) }

// Types of messages.
const (
	typeQuestion = 'Q'
	typeAnswer   = 'A'
	typeEntryReq = 'E'
	typeAnnounce = '!'
	typeUpdate   = '='
	typePing     = '.'
	typePong     = '-'
	typeHello    = 'h'
	typeAck      = 'k'
	typeRelease  = 'r'
	typeFailed   = 'f'
	typeRemove   = 'x'
	typeRemoved  = 'X'
	typeFetchReq = 'F'
	typeMembers  = 'm'
)

// membersInForce is the step of a list that is in force. Older versions agreed on their
// members in several steps, and have four numbers between the step and the list.
const membersInForce = 'g'

// Flags of a HELLO.
const (
	flagBusy    = 1
	flagStorage = 2
	flagEmpty   = 4
	flagLost    = 8
)

// Encode appends the frames of a message; to is a url, or "" for all peers. The
// frame of a value is the value itself, not a copy. Numbers outside of 0 to
// [protocol.MaxWireNumber] become the nearest that is inside, and the text of a failure
// is cut to 1 KiB.
func (c Codec) Encode(dst [][]byte, to, from string, m protocol.Message) [][]byte {
	b := builder{frames: dst, buf: make([]byte, 0, 128)}
	b.text(cmp.Or(to, "*")).text(from)
	b.message(m)
	if len(c.Secret) > 0 {
		message := b.frames[len(dst):]
		message[typeFrame] = c.sum(message[typeFrame][:1:1], message)
	}
	return b.frames
}

// builder collects frames, the small ones in one piece of memory.
type builder struct {
	frames [][]byte
	buf    []byte
}

// cut makes a frame of what was appended to buf since the start.
func (b *builder) cut(start int) *builder {
	b.frames = append(b.frames, b.buf[start:len(b.buf):len(b.buf)])
	return b
}

func (b *builder) text(s string) *builder {
	start := len(b.buf)
	b.buf = append(b.buf, s...)
	return b.cut(start)
}

func (b *builder) byte(v byte) *builder {
	start := len(b.buf)
	b.buf = append(b.buf, v)
	return b.cut(start)
}

func (b *builder) uint(n int64) *builder {
	start := len(b.buf)
	b.buf = appendUint(b.buf, n)
	return b.cut(start)
}

func (b *builder) mark(n uint64) *builder {
	start := len(b.buf)
	b.buf = binary.BigEndian.AppendUint64(b.buf, n)
	return b.cut(start)
}

// extras are numbers of which those that end in zeros are not sent.
func (b *builder) extras(numbers ...int64) {
	for len(numbers) > 0 && numbers[len(numbers)-1] == 0 {
		numbers = numbers[:len(numbers)-1]
	}
	for _, n := range numbers {
		b.uint(n)
	}
}

func (b *builder) message(m protocol.Message) {
	switch m := m.(type) {
	case protocol.Question:
		b.byte(typeQuestion).text(m.Key).uint(m.Term).extras(m.ListNumber, m.MinExpire)
	case protocol.Answer:
		b.byte(typeAnswer).text(m.Key).uint(m.Term).uint(m.Expire)
		if m.Yes {
			b.byte(1)
		} else {
			b.text("")
		}
	case protocol.EntryReq:
		b.byte(typeEntryReq).text(m.Key)
	case protocol.Announce:
		b.byte(typeAnnounce).text(m.Key).uint(m.Term).uint(m.Expire).extras(m.Stamp, m.ListNumber)
	case protocol.Update:
		b.byte(typeUpdate).text(m.Key).uint(m.Entry.Term).uint(m.Entry.Expire)
		b.frames = append(b.frames, m.Entry.Value)
		b.extras(m.Entry.Made)
	case protocol.Ping:
		b.byte(typePing)
	case protocol.Pong:
		b.byte(typePong)
	default:
		b.extension(m)
	}
}

// extension encodes what the original does not know.
func (b *builder) extension(m protocol.Message) {
	switch m := m.(type) {
	case protocol.Hello:
		b.byte(typeHello).mark(m.Incarnation).mark(m.Echo).uint(m.ListNumber).mark(m.Members).uint(m.Wall)
		b.uint(bit(m.Busy, flagBusy) | bit(m.HasStorage, flagStorage) | bit(m.Empty, flagEmpty) | bit(m.Lost, flagLost))
	case protocol.Ack:
		b.byte(typeAck).text(m.Key).uint(m.Term).uint(m.Stamp)
	case protocol.Release:
		b.byte(typeRelease).text(m.Key).uint(m.Term).extras(bit(m.Used, 1))
	case protocol.Failed:
		b.byte(typeFailed).text(m.Key).uint(m.Term).uint(m.Wait).uint(m.Count).text(clip(m.Text))
	case protocol.Remove:
		b.byte(typeRemove).removal(m.Removal)
	case protocol.Removed:
		b.byte(typeRemoved).removal(m.Removal)
	case protocol.FetchReq:
		b.byte(typeFetchReq).text(m.Key)
	case protocol.MembersList:
		b.byte(typeMembers).byte(membersInForce).mark(0).uint(0).uint(0).uint(protocol.FixedListNumber).uint(0)
		for _, member := range m.Members {
			b.text(member.URL).text(member.API)
		}
	default:
		panic(fmt.Sprintf("wire: no bytes are defined for %T", m))
	}
}

func (b *builder) removal(r protocol.Removal) {
	b.byte(byte(r.Scope)).text(r.Name).uint(r.Term)
}

func bit(on bool, flag int64) int64 {
	if on {
		return flag
	}
	return 0
}

// clip makes a text for people valid and not too long. It never grows.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= maxText {
		return s
	}
	cut := maxText
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}
