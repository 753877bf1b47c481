package docs_test

import (
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// pages are all that people read, by path from this folder.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	add := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[path] = string(text)
	}
	for _, folder := range []string{".", "../examples"} {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".md") {
				add(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, top := range []string{"../README.md", "../CHANGELOG.md", "../CONTRIBUTING.md", "../SECURITY.md"} {
		add(top)
	}
	return out
}

var (
	fences  = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
	inlines = regexp.MustCompile("`[^`\n]+`")
	links   = regexp.MustCompile(`\]\(([^()\s]+(?:\([^()]*\))?)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	marked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// TestLinks follows every relative link, and looks for the heading that it names.
func TestLinks(t *testing.T) {
	t.Parallel()
	checked := 0
	for page, text := range pages(t) {
		n, wrong := broken(t, page, text)
		checked += n
		for _, w := range wrong {
			t.Errorf("%s: %s", page, w)
		}
	}
	if checked < 100 {
		t.Errorf("only %d links were found", checked)
	}
	n, wrong := broken(t, "README.md", "[a](#start-here) [b](none.md) [c](elect.md#none) `[d](none.md)` [e](https://example.org/)\n```\n[f](none.md)\n```\n")
	if n != 3 || len(wrong) != 2 {
		t.Errorf("%d links, of which these are wrong: %q; want 3 and 2", n, wrong)
	}
}

// broken are the relative links of a page that lead nowhere, of how many.
func broken(t *testing.T, page, text string) (checked int, wrong []string) {
	t.Helper()
	for _, m := range links.FindAllStringSubmatch(inlines.ReplaceAllString(fences.ReplaceAllString(text, ""), ""), -1) {
		target, err := url.Parse(m[1])
		if err == nil && (target.Scheme != "" || target.Host != "") {
			continue
		}
		checked++
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		path := page
		if target.Path != "" {
			path = filepath.Join(filepath.Dir(page), target.Path)
		}
		if _, err := os.Stat(path); err != nil {
			wrong = append(wrong, "the link "+m[1]+" leads nowhere")
		} else if target.Fragment != "" && strings.HasSuffix(path, ".md") && !slices.Contains(anchors(t, path), target.Fragment) {
			wrong = append(wrong, "the link "+m[1]+": there is no such heading")
		}
	}
	return checked, wrong
}

// anchors are the names that headings have in links.
func anchors(t *testing.T, path string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(fences.ReplaceAllString(string(text), ""), -1) {
		a := anchor(m[1])
		if n := seen[a]; n > 0 {
			out = append(out, a+"-"+strconv.Itoa(n))
		} else {
			out = append(out, a)
		}
		seen[a]++
	}
	return out
}

func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, marked.ReplaceAllString(title, "$1"))
}

// command is understudy where a shell would run it, up to what is the shell's or another program's again.
var command = regexp.MustCompile("(?m)(?:^[ \t]*(?:\\$ |- |@)?|[;|&(\"=`] ?|\\b(?:do|until|if|while|time|exec|then|else|sudo|!|-r) )(?:[a-z./]*/)?understudy ((?:[^\n|;&`)>]|\\\\\n)*)")

// commandsExist looks for every command of the pages in the program's own help, with its flags.
func commandsExist(t *testing.T, program string) {
	help := helps{program: program, texts: map[string]string{}}
	checked := 0
	for page, text := range pages(t) {
		code := strings.Join(append(fences.FindAllString(text, -1), inlines.FindAllString(fences.ReplaceAllString(text, ""), -1)...), "\n")
		for _, m := range command.FindAllStringSubmatch(code, -1) {
			checked++
			if problem := help.problem(strings.ReplaceAll(m[1], "\\\n", " ")); problem != "" {
				t.Errorf("%s: understudy %s: %s", page, m[1], problem)
			}
		}
	}
	if checked < 200 {
		t.Errorf("only %d commands were found", checked)
	}
	for _, wrong := range []string{"role whom x", "rule run", "role run --nmae x", "queue wait --exce -- --x"} {
		if help.problem(wrong) == "" {
			t.Errorf("understudy %s was found right", wrong)
		}
	}
}

// helps has what --help says, by the words of the command.
type helps struct {
	program string
	texts   map[string]string
}

func (h helps) of(words ...string) string {
	key := strings.Join(words, " ")
	if _, ok := h.texts[key]; !ok {
		out, err := exec.Command(h.program, append(slices.Clone(words), "--help")...).CombinedOutput()
		if err != nil {
			out = nil
		}
		h.texts[key] = string(out)
	}
	return h.texts[key]
}

var (
	subcommand = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*)(?: {2,}\S| [A-Z])`) // the longest name has one space after it
	word       = regexp.MustCompile(`^[a-z][a-z-]*$`)
	flag       = regexp.MustCompile(`(?:^|\s)(--[a-z][a-z-]*)`)
)

// problem tells what is wrong with a command; "" if nothing is.
func (h helps) problem(line string) string {
	line, _, _ = strings.Cut(line+" ", " -- ")
	line, _, _ = strings.Cut(line, " #")
	var words []string
	for w := range strings.FieldsSeq(line) {
		known := h.below(words)
		if len(known) == 0 || !word.MatchString(w) {
			break
		}
		if !slices.Contains(known, w) {
			return "there is no " + strconv.Quote(w) + "; there is " + strings.Join(known, ", ")
		}
		words = append(words, w)
	}
	text := h.of(words...)
	for _, m := range flag.FindAllStringSubmatch(line, -1) {
		if !regexp.MustCompile(regexp.QuoteMeta(m[1]) + `\b`).MatchString(text) {
			return "there is no " + m[1]
		}
	}
	return ""
}

// below are the commands below one.
func (h helps) below(words []string) (out []string) {
	_, list, ok := strings.Cut(h.of(words...), "Available Commands:\n")
	if !ok {
		return nil
	}
	list, _, _ = strings.Cut(list, "\n\n")
	for _, m := range subcommand.FindAllStringSubmatch(list, -1) {
		out = append(out, m[1])
	}
	if len(words) == 0 {
		out = append(out, "help")
	}
	return out
}

var module = regexp.MustCompile(`(?m)^\t(\S+) v\S+`)

// TestDependencies wants a reason and a licence for each module.
func TestDependencies(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	found := module.FindAllStringSubmatch(string(mod), -1)
	if len(found) < 10 {
		t.Fatalf("only %d modules were found", len(found))
	}
	page := pages(t)["dependencies.md"]
	for _, m := range found {
		if !strings.Contains(page, "`"+m[1]+"`") {
			t.Errorf("dependencies.md does not say why %s is there, and under which licence", m[1])
		}
	}
}

// TestTables wants a header over each table, and as many cells in each row: a line that was lost or added
// in the middle of a table leaves rows that readers see as text with bars.
func TestTables(t *testing.T) {
	t.Parallel()
	checked := 0
	for page, text := range pages(t) {
		n, wrong := misshapen(text)
		checked += n
		for _, w := range wrong {
			t.Errorf("%s: this row does not fit its table: %s", page, w)
		}
	}
	if checked < 500 {
		t.Errorf("only %d rows were found", checked)
	}
	for broken, want := range map[string]int{"|a|b|\n|-|-|\n|c|d|\n": 0, "|a|b|\n|-|-|\n\n|c|d|\n": 1, "|a|b|\n|-|-|\n|c|\n": 1, "|a|b|\n": 1} {
		if _, wrong := misshapen(broken); len(wrong) != want {
			t.Errorf("%q: %q is wrong, want %d", broken, wrong, want)
		}
	}
}

var (
	rule = regexp.MustCompile(`^\|[-|: ]+\|$`)
	bar  = regexp.MustCompile("`[^`]*`|\\\\\\|")
)

// misshapen are rows of tables without a header, or with another number of cells than it has.
func misshapen(text string) (checked int, wrong []string) {
	lines := strings.Split(fences.ReplaceAllString(text, ""), "\n")
	cells := 0 // of the table that the line is in; 0: it is in none
	for i, line := range lines {
		if !strings.HasPrefix(line, "|") {
			cells = 0
			continue
		}
		checked++
		here := strings.Count(bar.ReplaceAllString(line, ""), "|")
		if cells == 0 && i+1 < len(lines) && rule.MatchString(lines[i+1]) {
			cells = here
		}
		if cells != here {
			wrong = append(wrong, line)
		}
	}
	return checked, wrong
}
