package messagerouter

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// split divides the array of an answer into its items, without looking into
// them, so that one that is broken does not take the others along. A single
// object is one item. With an error, the items are those before the fault.
func split(body []byte) (items []json.RawMessage, err error) {
	i := space(body, 0)
	if i < len(body) && body[i] == '{' {
		end := item(body, i)
		if end < 0 || space(body, end) != len(body) {
			return nil, fmt.Errorf("%w: an object that breaks off", ErrAnswer)
		}
		return []json.RawMessage{body[i:end:end]}, nil
	}
	if i == len(body) || body[i] != '[' {
		return nil, fmt.Errorf("%w: no JSON array", ErrAnswer)
	}
	items = []json.RawMessage{}
	i = space(body, i+1)
	if i < len(body) && body[i] == ']' {
		return items, after(body, i+1)
	}
	for i < len(body) {
		end := item(body, i)
		if end < 0 {
			return items, fmt.Errorf("%w: it breaks off in item %d, at byte %d", ErrAnswer, len(items), len(body))
		}
		next := space(body, end)
		if next == len(body) {
			if first := body[i]; first == '"' || first == '{' || first == '[' { // of a number more may have come
				items = append(items, body[i:end:end])
			}
			break
		}
		if end == i || body[next] != ',' && body[next] != ']' {
			return items, fmt.Errorf("%w: no JSON array from byte %d on, after %d items", ErrAnswer, next, len(items))
		}
		items = append(items, body[i:end:end])
		if body[next] == ']' {
			return items, after(body, next+1)
		}
		i = space(body, next+1)
	}
	return items, fmt.Errorf("%w: it breaks off after %d items, at byte %d", ErrAnswer, len(items), len(body))
}

func after(body []byte, i int) error {
	if space(body, i) != len(body) {
		return fmt.Errorf("%w: something follows the array, from byte %d on", ErrAnswer, i)
	}
	return nil
}

// item returns the end of the value that starts at i; -1 if the body ends before.
func item(body []byte, i int) int {
	switch body[i] {
	case '"':
		return text(body, i)
	case '{', '[':
		return nested(body, i)
	}
	for i < len(body) && body[i] != ',' && body[i] != ']' && !blank(body[i]) {
		i++
	}
	return i
}

// text returns the end of the text that starts at i.
func text(body []byte, i int) int {
	for i++; i < len(body); i++ {
		j := bytes.IndexByte(body[i:], '"')
		if j < 0 {
			return -1
		}
		// An odd number of backslashes before the quote makes it part of the text.
		end, slashes := i+j, 0
		for end-slashes > i && body[end-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return end + 1
		}
		i = end
	}
	return -1
}

func nested(body []byte, i int) int {
	for depth := 0; i < len(body); i++ {
		switch body[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"':
			end := text(body, i)
			if end < 0 {
				return -1
			}
			i = end - 1
		}
	}
	return -1
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func space(body []byte, i int) int {
	for i < len(body) && blank(body[i]) {
		i++
	}
	return i
}

func firstByte(body []byte) byte {
	if i := space(body, 0); i < len(body) {
		return body[i]
	}
	return 0
}
