package sabledb

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
)

var errProtocol = errors.New("sabledb: not the protocol")

// failed is an error answer.
type failed string

// status is a simple string.
type status string

// readValue reads one value: nil (of a bulk string), none (of an array), status,
// failed, int64, string, or a slice of these.
func readValue(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errProtocol
	}
	rest := line[1:]
	switch line[0] {
	case '+':
		return status(rest), nil
	case '-':
		return failed(rest), nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, errProtocol
	}
	switch line[0] {
	case ':':
		return n, nil
	case '$':
		if n < 0 {
			return nil, nil
		}
		text := make([]byte, n+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		return string(text[:n]), nil
	case '*':
		if n < 0 {
			return none{}, nil
		}
		all := make([]any, 0, min(n, 1024))
		for range n {
			v, err := readValue(r)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		return all, nil
	}
	return nil, errProtocol
}

// none is an array that is not there.
type none struct{}

func appendValue(out []byte, v any) []byte {
	switch v := v.(type) {
	case status:
		return append(append(append(out, '+'), v...), "\r\n"...)
	case failed:
		return append(append(append(out, '-'), v...), "\r\n"...)
	case int64:
		return append(strconv.AppendInt(append(out, ':'), v, 10), "\r\n"...)
	case string:
		out = append(strconv.AppendInt(append(out, '$'), int64(len(v)), 10), "\r\n"...)
		return append(append(out, v...), "\r\n"...)
	case none:
		return append(out, "*-1\r\n"...)
	case []any:
		out = append(strconv.AppendInt(append(out, '*'), int64(len(v)), 10), "\r\n"...)
		for _, one := range v {
			out = appendValue(out, one)
		}
		return out
	default:
		return append(out, "$-1\r\n"...)
	}
}

// readRequest reads a command with its arguments.
func readRequest(r *bufio.Reader) ([]string, error) {
	v, err := readValue(r)
	if err != nil {
		return nil, err
	}
	all, _ := v.([]any)
	args := make([]string, len(all))
	for i, a := range all {
		text, ok := a.(string)
		if !ok {
			return nil, errProtocol
		}
		args[i] = text
	}
	if len(args) == 0 {
		return nil, errProtocol
	}
	return args, nil
}

func request(args ...string) []byte {
	all := make([]any, len(args))
	for i, a := range args {
		all[i] = a
	}
	return appendValue(nil, all)
}
