package intake

import (
	"bytes"
	"errors"
	"fmt"

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
	event, source, time, sequence, domain []byte
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
	// anyDomain reports whether events of every domain are heartbeats of a check; nil: of none.
	anyDomain func(check string) bool

	listed bool // it was an array, an eventList or several, rather than one item
	before int  // items of bodies before this one
	items  int
	beats  []monitor.Heartbeat
	places []int // index of each beat's item
	flaws  []flaw
}

func (d *decoder) reset() {
	clear(d.beats) // names need not be kept
	clear(d.flaws)
	*d = decoder{beats: d.beats[:0], places: d.places[:0], flaws: d.flaws[:0], anyDomain: d.anyDomain}
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
		return d.fail("empty body or zero byte")
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

// lines reads items after each other. After one that is broken it continues with
// the next line that starts like an object.
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

// resume moves to the first line after start that starts like an object.
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
		d.flaw(Kind, "it is not a valid JSON object", raw)
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

// below reports whether the value of a member is an object that is read too.
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
	case "domain":
		return &h.domain
	}
	return nil
}
