package intake

import (
	"bytes"
	"fmt"
)

// maxDepth is how deep values may be nested.
const maxDepth = 64

// syntaxError says where what was read stops being JSON.
type syntaxError struct {
	at   int
	what string
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("not valid JSON: %s, at byte %d", e.what, e.at)
}

// scanner walks over JSON, and takes what encoding/json takes. It makes nothing of
// values but their places: that is what makes it cheap.
type scanner struct {
	data []byte
	at   int
}

func (s *scanner) fail(what string) error {
	if s.at >= len(s.data) {
		what = "it ends too early"
	}
	return &syntaxError{at: s.at, what: what}
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// next moves past a comma to the next element of an object or an array, or past its end.
func (s *scanner) next(first bool, end byte) (more bool, err error) {
	switch c := s.peek(); {
	case c == end:
		s.at++
		return false, nil
	case first:
		return true, nil
	case c != ',':
		return false, s.fail("a comma is missing")
	}
	s.at++
	return true, nil // an end that follows is no element, and is found to be none
}

// key reads the name of an object's next member and the colon. The name is as it
// was written, without quotes.
func (s *scanner) key() ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.fail("a name is missing")
	}
	start := s.at
	if err := s.text(); err != nil {
		return nil, err
	}
	name := s.data[start+1 : s.at-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name = []byte(unquote(s.data[start:s.at]))
	}
	if s.peek() != ':' {
		return nil, s.fail("a colon is missing")
	}
	s.at++
	return name, nil
}

// value moves past the next value and returns it as it was written.
func (s *scanner) value(depth int) ([]byte, error) {
	c := s.peek()
	start := s.at
	var err error
	switch {
	case c == '"':
		err = s.text()
	case c == '{':
		err = s.object(depth)
	case c == '[':
		err = s.array(depth)
	case c == '-' || c >= '0' && c <= '9':
		err = s.number()
	case c == 't':
		err = s.word("true")
	case c == 'f':
		err = s.word("false")
	case c == 'n':
		err = s.word("null")
	default:
		err = s.fail("no value begins like this")
	}
	if err != nil {
		return nil, err
	}
	return s.data[start:s.at], nil
}

// member moves past the next value, which must be an object, and returns its last member of a name as it was written, nil
// if there is none.
func (s *scanner) member(name string) (raw []byte, err error) {
	if s.peek() != '{' {
		return nil, s.fail("an object is missing")
	}
	s.at++
	for first := true; ; first = false {
		more, err := s.next(first, '}')
		if err != nil || !more {
			return raw, err
		}
		key, err := s.key()
		if err != nil {
			return nil, err
		}
		value, err := s.value(1)
		if err != nil {
			return nil, err
		}
		if string(key) == name {
			raw = value
		}
	}
}

func (s *scanner) object(depth int) error {
	if depth >= maxDepth {
		return s.fail("nested too deep")
	}
	s.at++
	for first := true; ; first = false {
		more, err := s.next(first, '}')
		if err != nil || !more {
			return err
		}
		if _, err := s.key(); err != nil {
			return err
		}
		if _, err := s.value(depth + 1); err != nil {
			return err
		}
	}
}

func (s *scanner) array(depth int) error {
	if depth >= maxDepth {
		return s.fail("nested too deep")
	}
	s.at++
	for first := true; ; first = false {
		more, err := s.next(first, ']')
		if err != nil || !more {
			return err
		}
		if _, err := s.value(depth + 1); err != nil {
			return err
		}
	}
}

func (s *scanner) text() error {
	for s.at++; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			return nil
		case c < ' ':
			return s.fail("a control character in a text")
		case c != '\\':
			continue
		}
		s.at++
		if s.at == len(s.data) {
			break
		}
		switch s.data[s.at] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		case 'u':
			for range 4 {
				s.at++
				if s.at == len(s.data) || !hex(s.data[s.at]) {
					return s.fail("\\u takes four hexadecimal digits")
				}
			}
		default:
			return s.fail("no such escape")
		}
	}
	return s.fail("")
}

func hex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func (s *scanner) number() error {
	if s.data[s.at] == '-' {
		s.at++
	}
	if s.at < len(s.data) && s.data[s.at] == '0' {
		s.at++
	} else if !s.digits() {
		return s.fail("a digit is missing")
	}
	if s.at < len(s.data) && s.data[s.at] == '.' {
		s.at++
		if !s.digits() {
			return s.fail("a digit is missing")
		}
	}
	if s.at < len(s.data) && (s.data[s.at] == 'e' || s.data[s.at] == 'E') {
		s.at++
		if s.at < len(s.data) && (s.data[s.at] == '+' || s.data[s.at] == '-') {
			s.at++
		}
		if !s.digits() {
			return s.fail("a digit is missing")
		}
	}
	return nil
}

// digits moves past digits, and reports whether there were any.
func (s *scanner) digits() bool {
	start := s.at
	for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
		s.at++
	}
	return s.at > start
}

func (s *scanner) word(w string) error {
	if !bytes.HasPrefix(s.data[s.at:], []byte(w)) {
		return s.fail("no value begins like this")
	}
	s.at += len(w)
	return nil
}
