package intake

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// flaw is an item that is no beat.
type flaw struct {
	index  int
	cause  Cause
	detail string
	raw    []byte // a part of what was read
}

// header has the members of a VES event's commonEventHeader that count, as they
// were written.
type header struct {
	event, source, time, sequence []byte
}

// fields are the members of an item that count. Of members of one name the last does.
type fields struct {
	event, source, signal, code, sent, seq []byte // the short form

	inner header // of the object "event"
	bare  header // of an object without that around it
	bared bool
	list  []byte // eventList
}

// maxItems is how many items a body may have.
const maxItems = monitor.MaxBeats

var errMany = errors.New("too many items")

// decoder takes beats from bodies, several after each other. The zero value is
// ready. What it has found is good until its data change.
type decoder struct {
	scanner
	fields
	within bool   // an eventList
	last   string // event

	listed bool // it was an array, an eventList or several, rather than one item
	before int  // items of bodies before this one
	items  int
	beats  []monitor.Beat
	places []int // index of each beat's item
	flaws  []flaw
}

func (d *decoder) reset() {
	clear(d.beats) // names need not be kept
	clear(d.flaws)
	*d = decoder{beats: d.beats[:0], places: d.places[:0], flaws: d.flaws[:0]}
}

// message reads what a router gave: an item, an array of them, or a text of any of these. One that
// is no JSON is one flaw.
func (d *decoder) message(raw []byte) {
	body := raw
	beats, flaws, items := len(d.beats), len(d.flaws), d.items
	var err error
	if isText(raw) {
		s := scanner{data: raw}
		if err = s.text(); err == nil && s.at < len(raw) {
			err = s.fail("something follows the text")
		}
		if err == nil {
			body = []byte(unquote(raw))
		}
	}
	if err == nil {
		err = d.decode(body)
	}
	if err != nil {
		d.beats, d.places, d.flaws, d.items = d.beats[:beats], d.places[:beats], d.flaws[:flaws], items
		d.flaw(Syntax, err.Error(), body)
		d.items++
	}
}

// decode reads a body: an item, an array of items, or one item after the other. An
// error says that nothing of it counts: it is no JSON, or too long. Of items after
// each other some may be no JSON, but not all.
func (d *decoder) decode(body []byte) error {
	d.scanner, d.before = scanner{data: body}, d.items
	switch d.peek() {
	case 0:
		return d.fail("it begins with a zero")
	case '[':
		d.listed = true
		if err := d.each(); err != nil {
			return err
		}
		if d.peek(); d.at < len(d.data) {
			return d.fail("something follows the array")
		}
		return nil
	}
	return d.lines()
}

// each reads an array of items.
func (d *decoder) each() error {
	d.at++
	for first := true; ; first = false {
		more, err := d.next(first, ']')
		if err != nil || !more {
			return err
		}
		if err := d.item(); err != nil {
			return err
		}
	}
}

// lines reads items after each other. After one that is broken it goes on with
// the next line that begins like an object.
func (d *decoder) lines() error {
	var broken error
	good := false
	for d.peek(); d.at < len(d.data); d.peek() {
		start := d.at
		err := d.item()
		switch {
		case err == nil:
			good = true
			continue
		case errors.Is(err, errMany):
			return err
		case broken == nil:
			broken = err
		}
		d.resume(start)
		d.flaw(Syntax, err.Error(), d.data[start:d.at])
		d.items++
	}
	if !good {
		return broken
	}
	return nil
}

// resume moves to the first line after start that begins like an object.
func (d *decoder) resume(start int) {
	for d.at = start; ; {
		end := bytes.IndexByte(d.data[d.at:], '\n')
		if end < 0 {
			d.at = len(d.data)
			return
		}
		d.at += end + 1
		if d.peek() == '{' || d.at == len(d.data) {
			return
		}
	}
}

func (d *decoder) flaw(cause Cause, detail string, raw []byte) {
	d.flaws = append(d.flaws, flaw{d.items, cause, detail, raw})
}

// item reads one item, and makes of it a beat, a flaw, or many.
func (d *decoder) item() error {
	if d.items-d.before >= maxItems {
		return fmt.Errorf("%w: at most %d can be sent at once", errMany, maxItems)
	}
	kind := d.peek()
	start := d.at
	if kind != '{' {
		raw, err := d.value(1)
		if err != nil {
			return err
		}
		d.flaw(Kind, "it is no object", raw)
		d.items++
		return nil
	}
	d.fields = fields{}
	if err := d.members(inItem); err != nil {
		return err
	}
	raw := d.data[start:d.at]
	if len(d.list) > 0 && d.list[0] == '[' && !d.within {
		d.listed = true
		outer := d.scanner
		d.scanner, d.within = scanner{data: d.list}, true
		err := d.each() // it has been read before, and is sound
		d.scanner, d.within = outer, false
		return err
	}
	if b, cause, err := d.beat(); err != nil {
		d.flaw(cause, err.Error(), raw)
	} else {
		d.beats = append(d.beats, b)
		d.places = append(d.places, d.items)
	}
	d.items++
	return nil
}

// level is which object is being read.
type level int

const (
	inItem  level = iota
	inEvent       // the value of "event"
	inInner       // its commonEventHeader
	inBare        // the item's own commonEventHeader
)

// members reads an object and keeps the members that count.
func (d *decoder) members(at level) error {
	d.at++
	for first := true; ; first = false {
		more, err := d.next(first, '}')
		if err != nil || !more {
			return err
		}
		name, err := d.key()
		if err != nil {
			return err
		}
		if below, ok := d.below(at, name); ok {
			if err := d.members(below); err != nil {
				return err
			}
			continue
		}
		to := d.member(at, name)
		raw, err := d.value(int(at) + 1)
		if err != nil {
			return err
		}
		if to != nil {
			*to = raw
		}
	}
}

// below tells whether the value of a member is an object that is read too.
func (d *decoder) below(at level, name []byte) (level, bool) {
	switch {
	case at == inItem && string(name) == "event":
		d.event, d.inner = nil, header{}
		if d.peek() == '{' {
			d.event = d.data[d.at : d.at+1]
			return inEvent, true
		}
	case at == inItem && string(name) == "commonEventHeader":
		d.bare, d.bared = header{}, d.peek() == '{'
		return inBare, d.bared
	case at == inEvent && string(name) == "commonEventHeader":
		d.inner = header{}
		return inInner, d.peek() == '{'
	}
	return 0, false
}

// member is where the value of a member goes, nil if it does not count.
func (d *decoder) member(at level, name []byte) *[]byte {
	h := &d.inner
	switch at {
	case inItem:
		switch string(name) {
		case "event":
			return &d.event
		case "source":
			return &d.source
		case "signal":
			return &d.signal
		case "code":
			return &d.code
		case "sent":
			return &d.sent
		case "seq":
			return &d.seq
		case "eventList":
			return &d.list
		}
		return nil
	case inEvent:
		return nil
	case inBare:
		h = &d.bare
	}
	switch string(name) {
	case "eventName":
		return &h.event
	case "sourceName":
		return &h.source
	case "lastEpochMicrosec":
		return &h.time
	case "sequence":
		return &h.sequence
	}
	return nil
}

// beat makes a beat of the members.
func (d *decoder) beat() (monitor.Beat, Cause, error) {
	switch {
	case len(d.event) > 0 && d.event[0] == '{':
		return d.ves(d.inner)
	case d.bared:
		return d.ves(d.bare)
	}
	return d.short()
}

var errMissing = errors.New("is missing")

func (d *decoder) ves(h header) (b monitor.Beat, cause Cause, err error) {
	switch {
	case absent(h.event):
		return b, NoEvent, fmt.Errorf("eventName %w", errMissing)
	case absent(h.source):
		return b, NoSource, fmt.Errorf("sourceName %w", errMissing)
	case absent(h.time):
		return b, NoTime, fmt.Errorf("lastEpochMicrosec %w", errMissing)
	case absent(h.sequence):
		return b, NoSequence, fmt.Errorf("sequence %w", errMissing)
	}
	if cause, err := d.names(&b, "eventName", h.event, "sourceName", h.source); err != nil {
		return b, cause, err
	}
	var ok bool
	if b.Sent, ok = moment(h.time); !ok {
		return b, BadTime, errors.New("lastEpochMicrosec is no time")
	}
	if b.Seq, ok = whole(h.sequence); !ok {
		return b, BadNumber, errors.New("sequence is no number")
	}
	return b, "", nil
}

func (d *decoder) short() (b monitor.Beat, cause Cause, err error) {
	switch {
	case absent(d.event):
		return b, NoEvent, fmt.Errorf("event %w", errMissing)
	case absent(d.source):
		return b, NoSource, fmt.Errorf("source %w", errMissing)
	}
	if cause, err := d.names(&b, "event", d.event, "source", d.source); err != nil {
		return b, cause, err
	}
	ok := true
	if !absent(d.sent) {
		if b.Sent, ok = moment(d.sent); !ok {
			return b, BadTime, errors.New("sent is neither RFC 3339 nor a number since 1970")
		}
	}
	if !absent(d.seq) {
		if b.Seq, ok = whole(d.seq); !ok {
			return b, BadNumber, errors.New("seq is no number")
		}
	}
	if !absent(d.code) {
		code, ok := whole(d.code)
		if !ok || code < 0 || code > maxCode {
			return b, BadNumber, fmt.Errorf("code is not 0 to %d", maxCode)
		}
		if b.Code = int(code); code != 0 {
			b.Signal = monitor.Fail
		}
	}
	if !absent(d.signal) {
		if b.Signal, ok = signalOf(d.signal); !ok {
			return b, BadSignal, errors.New("signal is none of ok, start and fail")
		}
	}
	return b, "", nil
}

func signalOf(raw []byte) (monitor.Signal, bool) {
	if isText(raw) {
		switch unquote(raw) {
		case "ok":
			return monitor.Fine, true
		case "start":
			return monitor.Start, true
		case "fail":
			return monitor.Fail, true
		}
	}
	return 0, false
}

// names reads both names of a beat.
func (d *decoder) names(b *monitor.Beat, eventKey string, event []byte, sourceKey string, source []byte) (Cause, error) {
	var err error
	if isText(event) && string(event[1:len(event)-1]) == d.last && d.last != "" {
		b.Event = d.last // most bodies are of one event
	} else if b.Event, err = name(eventKey, event); err != nil {
		return BadName, err
	} else if bytes.IndexByte(event, '\\') < 0 {
		d.last = b.Event
	}
	if b.Source, err = name(sourceKey, source); err != nil {
		return BadName, err
	}
	return "", nil
}

// plain is an error without its sentinel.
func plain(err error) string {
	return strings.TrimPrefix(err.Error(), lease.ErrInvalid.Error()+": ")
}

// name reads what an event or a source is called.
func name(key string, raw []byte) (string, error) {
	switch {
	case !isText(raw):
		return "", fmt.Errorf("%s is no text", key)
	case len(raw) > 6*monitor.MaxName+2: // all of it escaped
		return "", fmt.Errorf("%s has more than %d bytes", key, monitor.MaxName)
	case !utf8.Valid(raw):
		return "", fmt.Errorf("%s is not valid UTF-8", key)
	}
	s := unquote(raw)
	if err := lease.ValidateText(key, s, 1, monitor.MaxName); err != nil {
		return "", errors.New(plain(err))
	}
	return s, nil
}
