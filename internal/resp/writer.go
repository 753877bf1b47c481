package resp

import (
	"strconv"
	"strings"
)

// Writer gathers answers in memory. The zero value writes version 2. Lengths are followed
// by as many elements; a map's elements are pairs.
type Writer struct {
	// Version of the protocol: 3, or anything else for 2.
	Version int
	buf     []byte
}

// Len is how many bytes have been gathered.
func (w *Writer) Len() int { return len(w.buf) }

// Take returns what has been gathered, and starts again in the room of spare.
func (w *Writer) Take(spare []byte) []byte {
	out := w.buf
	w.buf = spare[:0]
	return out
}

// Simple writes a short text of one line.
func (w *Writer) Simple(s string) { w.text('+', s) }

// Error writes an error, whose first word is its code.
func (w *Writer) Error(s string) { w.text('-', s) }

func (w *Writer) text(kind byte, s string) {
	if strings.ContainsAny(s, "\r\n") {
		s = strings.NewReplacer("\r", " ", "\n", " ").Replace(s)
	}
	w.buf = append(append(w.buf, kind), s...)
	w.buf = append(w.buf, '\r', '\n')
}

// Int writes a number.
func (w *Writer) Int(n int64) {
	w.buf = strconv.AppendInt(append(w.buf, ':'), n, 10)
	w.buf = append(w.buf, '\r', '\n')
}

// Bulk writes any text.
func (w *Writer) Bulk(s string) {
	w.length('$', len(s))
	w.buf = append(append(w.buf, s...), '\r', '\n')
}

// Verbatim writes a text for people.
func (w *Writer) Verbatim(s string) {
	if w.Version != 3 {
		w.Bulk(s)
		return
	}
	w.length('=', len(s)+4)
	w.buf = append(append(append(w.buf, "txt:"...), s...), '\r', '\n')
}

// Null writes that there is no such text.
func (w *Writer) Null() { w.null("$-1\r\n") }

// NullArray writes that there is no such array.
func (w *Writer) NullArray() { w.null("*-1\r\n") }

func (w *Writer) null(before string) {
	if w.Version == 3 {
		before = "_\r\n"
	}
	w.buf = append(w.buf, before...)
}

// Array starts an array of n elements.
func (w *Writer) Array(n int) { w.length('*', n) }

// Map starts a map of n pairs; in version 2 it is an array.
func (w *Writer) Map(n int) {
	if w.Version == 3 {
		w.length('%', n)
		return
	}
	w.length('*', 2*n)
}

// Push starts a message of n elements that nobody asked for; in version 2 it is an array.
func (w *Writer) Push(n int) {
	if w.Version == 3 {
		w.length('>', n)
		return
	}
	w.length('*', n)
}

// Bulks writes an array of texts.
func (w *Writer) Bulks(all ...string) {
	w.Array(len(all))
	for _, s := range all {
		w.Bulk(s)
	}
}

func (w *Writer) length(kind byte, n int) {
	w.buf = strconv.AppendInt(append(w.buf, kind), int64(n), 10)
	w.buf = append(w.buf, '\r', '\n')
}
