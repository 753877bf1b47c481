package resp_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/internal/resp"
)

func TestRequests(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string // requests; the last is the error
	}{
		{"array", "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", []string{`["GET" "k"]`, "EOF"}},
		{"bytes", "*1\r\n$4\r\n\r\n\x00\xff\r\n", []string{`["\r\n\x00\xff"]`, "EOF"}},
		{"lines", "PING\r\nPING\n\r\n  \r\nget \"a b\" 'c''\r\n", []string{`["PING"]`, `["PING"]`, "Protocol error: unbalanced quotes in request"}},
		{"quotes", `set k "\x41\n\"\q" 'it\'s \n'` + "\r\n", []string{`["set" "k" "A\n\"q" "it's \\n"]`, "EOF"}},
		{"empty words", `a "" ''` + "\r\n", []string{`["a" "" ""]`, "EOF"}},
		{"empty arrays", "*0\r\n*-1\r\n\r\nPING\r\n", []string{`["PING"]`, "EOF"}},
		{"pipelined", "*1\r\n$1\r\na\r\nb\r\n*1\r\n$1\r\nc\r\n", []string{`["a"]`, `["b"]`, `["c"]`, "EOF"}},
		{"cut in a count", "*2", []string{"unexpected EOF"}},
		{"cut after a count", "*2\r\n", []string{"unexpected EOF"}},
		{"cut in an argument", "*1\r\n$5\r\nab", []string{"unexpected EOF"}},
		{"no count", "*x\r\n", []string{"Protocol error: invalid multibulk length"}},
		{"plus", "*+1\r\n", []string{"Protocol error: invalid multibulk length"}},
		{"many", "*9\r\n", []string{"Protocol error: invalid multibulk length"}},
		{"huge count", "*99999999999999999999\r\n", []string{"Protocol error: invalid multibulk length"}},
		{"no bulk", "*1\r\n:1\r\n", []string{"Protocol error: expected '$', got ':'"}},
		{"unprintable", "*1\r\n\x01\r\n", []string{"Protocol error: expected '$', got ' '"}},
		{"negative", "*1\r\n$-1\r\n", []string{"Protocol error: invalid bulk length"}},
		{"large", "*1\r\n$101\r\n", []string{"Protocol error: invalid bulk length"}},
		{"large together", "*2\r\n$60\r\n" + strings.Repeat("x", 60) + "\r\n$41\r\n", []string{"Protocol error: invalid bulk length"}},
		{"long line", strings.Repeat("x", 65), []string{"Protocol error: too big inline request"}},
		{"long count", "*1\r\n$" + strings.Repeat("1", 64), []string{"Protocol error: too big bulk count string"}},
		{"many words", "1 2 3 4 5 6 7 8 9\r\n", []string{"Protocol error: invalid multibulk length"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for how, in := range map[string]io.Reader{"whole": strings.NewReader(c.text), "bytewise": iotest.OneByteReader(strings.NewReader(c.text))} {
				r := resp.NewReader(in, resp.Limits{Line: 64, Args: 8, Bytes: 100})
				var got []string
				for {
					args, err := r.Request()
					if err != nil {
						got = append(got, err.Error())
						break
					}
					got = append(got, fmt.Sprintf("%q", args))
				}
				if d := cmp.Diff(c.want, got); d != "" {
					t.Errorf("%s (-want +got):\n%s", how, d)
				}
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	write := func(version int) string {
		w := &resp.Writer{Version: version}
		w.Simple("OK\r\n+forged")
		w.Error("ERR no\nline")
		w.Int(-7)
		w.Bulk("a\r\nb")
		w.Null()
		w.NullArray()
		w.Bulks("x", "")
		w.Map(1)
		w.Push(2)
		w.Verbatim("hi")
		if w.Len() == 0 {
			t.Error("nothing gathered")
		}
		return string(w.Take(nil))
	}
	same := "+OK  +forged\r\n-ERR no line\r\n:-7\r\n$4\r\na\r\nb\r\n"
	want := map[int]string{
		2: same + "$-1\r\n*-1\r\n*2\r\n$1\r\nx\r\n$0\r\n\r\n*2\r\n*2\r\n$2\r\nhi\r\n",
		3: same + "_\r\n_\r\n*2\r\n$1\r\nx\r\n$0\r\n\r\n%1\r\n>2\r\n=6\r\ntxt:hi\r\n",
	}
	for version, want := range want {
		if d := cmp.Diff(want, write(version)); d != "" {
			t.Errorf("version %d (-want +got):\n%s", version, d)
		}
	}
}

// FuzzReader proves that nothing makes a reader fail otherwise than it says, and that what a
// client writes is read as it was meant.
func FuzzReader(f *testing.F) {
	for _, s := range []string{"*1\r\n$1\r\na\r\n", "PING \"x\\x41\" 'y'\r\n", "*-1\r\n", "$", "*1\r\n$1000000\r\n", "\"", "'\\''"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		lim := resp.Limits{Line: 64, Args: 8, Bytes: 100}
		r := resp.NewReader(bytes.NewReader(text), lim)
		for {
			args, err := r.Request()
			if err != nil {
				if _, wrong := errors.AsType[resp.ProtocolError](err); !wrong && err != io.EOF && err != io.ErrUnexpectedEOF {
					t.Fatalf("error %v", err)
				}
				return
			}
			size := 0
			for _, a := range args {
				size += len(a)
			}
			if len(args) == 0 || len(args) > lim.Args || size > lim.Bytes {
				t.Fatalf("%d arguments of %d bytes", len(args), size)
			}
			var w resp.Writer
			w.Bulks(args...)
			again, err := resp.NewReader(bytes.NewReader(w.Take(nil)), lim).Request()
			if d := cmp.Diff(args, again); d != "" || err != nil {
				t.Fatalf("read again: %v\n%s", err, d)
			}
		}
	})
}
