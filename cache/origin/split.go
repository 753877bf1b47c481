package origin

import (
	"fmt"
	"strings"

	"github.com/understudy-ha/understudy/lease"
)

// Split splits a command line into words as a POSIX shell does, with its quotes
// and backslashes, and expands nothing: *, ?, ~ and { stand for themselves. What a
// shell would do more with (| & ; < > ( ) $ `) must be quoted: it is refused
// elsewhere, because there is no shell. Errors wrap [lease.ErrInvalid].
func Split(command string) ([]string, error) {
	var out []string
	var word strings.Builder
	in := false // a word has started, though it may be empty
	for i := 0; i < len(command); i++ {
		switch c := command[i]; c {
		case ' ', '\t', '\n':
			if in {
				out = append(out, word.String())
				word.Reset()
			}
			in = false
		case '\'', '"':
			n, err := quoted(&word, command[i:])
			if err != nil {
				return nil, err
			}
			i, in = i+n-1, true
		case '\\':
			if i++; i == len(command) {
				return nil, fmt.Errorf("origin: %w: the command ends in a backslash", lease.ErrInvalid)
			}
			if command[i] != '\n' { // a line that continues
				word.WriteByte(command[i])
				in = true
			}
		case '|', '&', ';', '<', '>', '(', ')', '$', '`':
			return nil, noShell(c)
		case 0:
			return nil, fmt.Errorf("origin: %w: the command contains a zero byte", lease.ErrInvalid)
		default:
			word.WriteByte(c)
			in = true
		}
	}
	if in {
		out = append(out, word.String())
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("origin: %w: the command is empty", lease.ErrInvalid)
	}
	return out, nil
}

func noShell(c byte) error {
	return fmt.Errorf("origin: %w: the command contains %q, and no shell runs it: put it in single quotes, or use sh -c 'SCRIPT' -- {key}", lease.ErrInvalid, c)
}

// quoted writes the quoted text at the beginning of s, and returns its length
// with both quotes.
func quoted(word *strings.Builder, s string) (int, error) {
	quote := s[0]
	for i := 1; i < len(s); i++ {
		c := s[i]
		switch {
		case c == quote:
			return i + 1, nil
		case c == 0:
			return 0, fmt.Errorf("origin: %w: the command contains a zero byte", lease.ErrInvalid)
		case quote == '"' && (c == '$' || c == '`'):
			return 0, noShell(c)
		case quote == '"' && c == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0:
			if i++; s[i] != '\n' {
				word.WriteByte(s[i])
			}
		default:
			word.WriteByte(c)
		}
	}
	return 0, fmt.Errorf("origin: %w: a %c in the command is not closed", lease.ErrInvalid, quote)
}
