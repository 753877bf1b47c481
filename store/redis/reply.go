package redis

import (
	"fmt"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// row reads the fields of a script's answer one after the other. An answer that
// is not as expected is a fault of the scripts or of foreign data under the
// prefix; it is reported once, by err.
type row struct {
	fields []any
	failed bool
}

func rowOf(v any) *row {
	fields, ok := v.([]any)
	if n, isNumber := v.(int64); isNumber {
		fields, ok = []any{n}, true
	}
	return &row{fields: fields, failed: !ok}
}

func (r *row) more() bool { return len(r.fields) > 0 }

func (r *row) next() any {
	if len(r.fields) == 0 {
		r.failed = true
		return nil
	}
	v := r.fields[0]
	r.fields = r.fields[1:]
	return v
}

func (r *row) text() string {
	s, ok := r.next().(string)
	r.failed = r.failed || !ok
	return s
}

func (r *row) number() int64 {
	v := r.next()
	if n, ok := v.(int64); ok {
		return n
	}
	s, _ := v.(string)
	n, err := strconv.ParseInt(s, 10, 64)
	r.failed = r.failed || err != nil
	return n
}

func (r *row) micros() time.Duration { return time.Duration(r.number()) * time.Microsecond }
func (r *row) time() time.Time       { return time.UnixMicro(r.number()) }
func (r *row) row() *row             { return rowOf(r.next()) }

func (r *row) instance() lease.Instance {
	return lease.Instance{ID: r.text(), Name: r.text(), Address: r.text()}
}

func (r *row) timing() lease.Timing {
	return lease.Timing{Interval: r.micros(), Timeout: r.micros()}
}

func (r *row) err() error {
	if r.failed {
		return fmt.Errorf("%w: the answer cannot be read: something else writes under this prefix", lease.ErrUnknown)
	}
	return nil
}

// lease reads what show in rows.lua writes.
func (r *row) lease(space string) lease.Lease {
	l := lease.Lease{ID: lease.ID{Space: space, Key: r.text()}}
	l.Waiting, l.Term, l.Reserved = int(r.number()), r.number(), r.micros()
	if !r.more() {
		return l // never held
	}
	l.Session, l.Since, l.Age, l.Successor = r.text(), r.time(), r.micros(), r.text()
	l.ReleaseRequested, l.RequestedSuccessor, l.Holder = r.text() != "", r.text(), r.instance()
	l.Places = int(r.number())
	if r.more() {
		l.Timing, l.Seq, l.Remaining, l.Ended = r.timing(), r.number(), r.micros(), r.text() != ""
	}
	return l
}

func (r *row) session(id string) lease.Session {
	return lease.Session{
		ID: id, Instance: r.instance(), Timing: r.timing(), Seq: r.number(), Remaining: r.micros(), Started: r.time(),
	}
}
