package resp

import "strings"

// inline splits a line as a person typed it: words, "words with \n, \xFF and such", and
// 'words as they are, with \”.
func (r *Reader) inline(line []byte) ([]string, error) {
	var args []string
	for i := 0; ; {
		for i < len(line) && space(line[i]) {
			i++
		}
		if i == len(line) {
			return args, nil
		}
		if len(args) == r.lim.Args {
			return nil, ProtocolError("invalid multibulk length")
		}
		word, next, ok := word(line, i)
		if !ok {
			return nil, ProtocolError("unbalanced quotes in request")
		}
		args, i = append(args, word), next
	}
}

// word returns the word that starts at i, and where it ends. It is false where quotes do
// not close, or are followed by anything but space.
func word(line []byte, i int) (string, int, bool) {
	var b strings.Builder
	for i < len(line) && !space(line[i]) {
		c := line[i]
		if c != '"' && c != '\'' {
			b.WriteByte(c)
			i++
			continue
		}
		for i++; ; i++ {
			if i == len(line) {
				return "", i, false
			}
			if line[i] == c {
				break
			}
			text, n := escaped(line[i:], c)
			b.WriteByte(text)
			i += n - 1
		}
		i++
		return b.String(), i, i == len(line) || space(line[i])
	}
	return b.String(), i, true
}

// escaped returns the byte that b starts with, within the given quotes, and in how many
// bytes it was written.
func escaped(b []byte, quote byte) (byte, int) {
	switch {
	case b[0] != '\\' || len(b) < 2:
		return b[0], 1
	case quote == '\'' && b[1] == '\'':
		return '\'', 2
	case quote == '\'':
		return b[0], 1
	case b[1] == 'x' && len(b) >= 4 && hex(b[2]) >= 0 && hex(b[3]) >= 0:
		return byte(hex(b[2])<<4 | hex(b[3])), 4
	}
	if i := strings.IndexByte("nrtba", b[1]); i >= 0 {
		return "\n\r\t\b\a"[i], 2
	}
	return b[1], 2
}

func hex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

func space(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' || c == 0 }
