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

// beat makes a beat of the members.
func (d *decoder) beat() (monitor.Heartbeat, Cause, error) {
	switch {
	case len(d.event) > 0 && d.event[0] == '{':
		return d.ves(d.inner)
	case d.bared:
		return d.ves(d.bare)
	}
	return d.short()
}

var errMissing = errors.New("is missing")

func (d *decoder) ves(h header) (b monitor.Heartbeat, cause Cause, err error) {
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
	if b.Sent, ok = parseTime(h.time); !ok {
		return b, BadTime, errors.New("lastEpochMicrosec is not a valid time")
	}
	if b.Seq, ok = whole(h.sequence); !ok {
		return b, BadNumber, errors.New("sequence is not a valid number")
	}
	switch isHeartbeat := isText(h.domain) && unquote(h.domain) == "heartbeat"; {
	case isHeartbeat || d.anyDomain != nil && d.anyDomain(b.Check):
		return b, "", nil
	case !isText(h.domain):
		return b, NoDomain, errors.New("domain is missing, or not a string")
	default:
		return b, OtherDomain, errors.New("the domain is not heartbeat")
	}
}

func (d *decoder) short() (b monitor.Heartbeat, cause Cause, err error) {
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
		if b.Sent, ok = parseTime(d.sent); !ok {
			return b, BadTime, errors.New("sent is neither RFC 3339 nor a number since 1970")
		}
	}
	if !absent(d.seq) {
		if b.Seq, ok = whole(d.seq); !ok {
			return b, BadNumber, errors.New("seq is not a valid number")
		}
	}
	if !absent(d.code) {
		if b.Code, ok = exitCode(d.code); !ok {
			return b, BadNumber, fmt.Errorf("code is not 0 to %d", maxCode)
		}
		if b.Code != 0 {
			b.Signal = monitor.SignalFail
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
			return monitor.SignalSuccess, true
		case "start":
			return monitor.SignalStart, true
		case "fail":
			return monitor.SignalFail, true
		}
	}
	return 0, false
}

// names reads both names of a beat.
func (d *decoder) names(b *monitor.Heartbeat, eventKey string, event []byte, sourceKey string, source []byte) (Cause, error) {
	var err error
	if isText(event) && string(event[1:len(event)-1]) == d.last && d.last != "" {
		b.Check = d.last // most bodies are of one event
	} else if b.Check, err = name(eventKey, event); err != nil {
		return BadName, err
	} else if bytes.IndexByte(event, '\\') < 0 {
		d.last = b.Check
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
		return "", fmt.Errorf("%s is not a valid string", key)
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
