package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/lease"
)

// maxMembers is how many members all lists and objects of one value may have together. The largest value that the
// API takes, a check with all its labels and tags, has less than 100.
const maxMembers = 1000

// field reads the value of one key of an object.
type field func(*json.Decoder) error

// readObject reads exactly one object, whose keys are those of fields. Of its lists it holds one element at a time, and it
// stops at the first that is wrong: what a caller sends never decides how much memory it takes. An empty body and
// null are objects without keys.
func readObject(r *http.Request, fields map[string]field) error {
	d := newDecoder(r.Body)
	return readBody(d, func() error { return decodeObject(d, fields) })
}

func decodeObject(d *json.Decoder, fields map[string]field) error {
	switch first, err := d.Token(); {
	case err != nil || first == nil:
		return err
	case first != json.Delim('{'):
		return errors.New("it is not an object")
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return truncated(err)
		}
		name, read := fieldOf(fields, key)
		if read == nil {
			return fmt.Errorf("unknown field %.50q", key)
		}
		if seen[name] { // a list that is given again and again would be decoded as often
			return fmt.Errorf("field %q appears twice", name)
		}
		seen[name] = true
		if err := read(d); err != nil {
			return truncated(err)
		}
	}
	_, err := d.Token()
	return truncated(err)
}

// fieldOf finds the field of a key as package json does: case does not matter.
func fieldOf(fields map[string]field, key json.Token) (string, field) {
	text, _ := key.(string)
	if read, ok := fields[text]; ok {
		return text, read
	}
	for name, read := range fields {
		if strings.EqualFold(name, text) {
			return name, read
		}
	}
	return "", nil
}

// truncated is the error of what ends too early: at the start of a body the end is no error.
func truncated(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// valueOf reads one value.
func valueOf[T any](into *T) field {
	return func(d *json.Decoder) error { return decodeValue(d, into) }
}

// listOf reads a list of up to so many things, each of which convert checks before the next is read.
func listOf[T, V any](things string, into *[]V, most int, convert func(n int, one T) (V, error)) field {
	nested := hasLists(reflect.TypeFor[T]())
	return func(d *json.Decoder) error {
		switch first, err := d.Token(); {
		case err != nil || first == nil:
			return err
		case first != json.Delim('['):
			return errors.New("a list is expected")
		}
		*into = []V{}
		for d.More() {
			n := len(*into) + 1
			if n > most {
				return fmt.Errorf("%w: more than %d %s", lease.ErrInvalid, most, things)
			}
			var one T
			if err := decodeOne(d, &one, nested); err != nil {
				return err
			}
			v, err := convert(n, one)
			if err != nil {
				return err
			}
			*into = append(*into, v)
		}
		_, err := d.Token()
		return err
	}
}

// decodeValue decodes the next value. One whose type has lists is first checked for how many members it has.
func decodeValue(d *json.Decoder, v any) error { return decodeOne(d, v, hasLists(reflect.TypeOf(v))) }

// decodeOne is decodeValue for whoever knows whether the type has lists.
func decodeOne(d *json.Decoder, v any, nested bool) error {
	if !nested {
		return d.Decode(v)
	}
	var text json.RawMessage
	if err := d.Decode(&text); err != nil {
		return err
	}
	if countMembers(text) > maxMembers {
		return fmt.Errorf("%w: a value has more than %d members", lease.ErrInvalid, maxMembers)
	}
	return newDecoder(bytes.NewReader(text)).Decode(v)
}

// hasLists reports whether a value of the type can have any number of members. Bytes are one value.
func hasLists(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[apitype.Headers](), reflect.TypeFor[time.Time]():
		return false // the one has a bound of its own, the other is a text
	}
	switch t.Kind() {
	case reflect.Pointer:
		return hasLists(t.Elem())
	case reflect.Map:
		return true
	case reflect.Slice:
		return t.Elem().Kind() != reflect.Uint8
	case reflect.Struct:
		for f := range t.Fields() {
			if hasLists(f.Type) {
				return true
			}
		}
	}
	return false
}

// countMembers counts the members of all lists and objects in valid JSON that follow another.
func countMembers(text []byte) (n int) {
	for inString, i := false, 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\': // only in strings
			i++
		case c == '"':
			inString = !inString
		case c == ',' && !inString:
			n++
		}
	}
	return n
}
