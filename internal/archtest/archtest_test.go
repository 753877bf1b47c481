package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/understudy-ha/understudy"

// Limits in lines.
const (
	maxFile     = 400
	maxTestFile = 900
	maxFunc     = 70
)

// arrows tells what production code in a folder may import from this module. A
// folder without an entry takes that of its parent. "std" means nothing else at
// all: a package that declares a port imports only the standard library and what
// is listed.
var arrows = []struct {
	folder  string
	std     bool
	allow   []string
	foreign []string // what std lets in nevertheless
}{
	{folder: "lease", std: true, allow: []string{"history"}},
	{folder: "lease/leasetest", allow: []string{"lease", "history", "store"}},
	{folder: "history", std: true},
	{folder: "access", std: true, allow: []string{"lease", "history"}},
	{folder: "access/accesstest", allow: []string{"access", "lease", "history"}},
	{folder: "elect", std: true, allow: []string{"lease", "history"}},
	{folder: "claim", std: true, allow: []string{"lease", "history"}},
	{folder: "claim/claimtest", allow: []string{"claim", "lease", "lease/leasetest", "history"}},
	{folder: "dispatch", std: true, allow: []string{"lease", "history", "claim"}},
	{folder: "dispatch/target", allow: []string{"dispatch", "lease", "internal"}},
	{folder: "dispatch/front", allow: []string{"dispatch", "lease", "internal"}},
	{folder: "dispatch/dispatchtest", allow: []string{"dispatch", "claim", "claim/claimtest", "lease", "lease/leasetest", "history"}},
	{folder: "shard", std: true, allow: []string{"lease", "history"}},
	{folder: "shard/agent", std: true, allow: []string{"shard", "history", "lease", "internal/flock"}},
	{folder: "shard/catalog", std: true, allow: []string{"shard", "lease"}},
	{folder: "shard/shardtest", allow: []string{"shard", "lease", "lease/leasetest", "history"}},
	{folder: "shard/engine/wire", std: true, allow: []string{"shard", "internal/resp"}},
	{folder: "shard/engine/redis", allow: []string{"shard", "shard/engine/wire", "lease"}},
	{folder: "shard/engine/sabledb", allow: []string{"shard", "shard/engine/wire", "lease", "internal"}},
	{folder: "shard/node", allow: []string{"shard", "lease", "internal"}},
	{folder: "shard/sentinel", std: true, allow: []string{"shard", "shard/catalog", "lease", "internal"}},
	{folder: "shard/checks", std: true, allow: []string{"shard", "lease"}},
	{folder: "shard/proxy", std: true, allow: []string{"shard", "shard/catalog", "lease", "internal/connlimit"}},
	{folder: "monitor", std: true, allow: []string{"lease", "history", "claim", "dispatch", "schedule"}},
	{folder: "schedule", std: true},
	{folder: "job", std: true, allow: []string{"lease", "history", "elect", "schedule"}},
	{folder: "job/jobtest", allow: []string{"job", "lease", "history", "schedule"}},
	{folder: "monitor/intake", std: true, allow: []string{"monitor", "lease", "internal"}},
	{folder: "monitor/sink", allow: []string{"monitor", "monitor/onap", "dispatch", "dispatch/target", "lease", "internal"}},
	{folder: "monitor/onap", std: true, allow: []string{"monitor", "lease", "internal"}},
	{folder: "monitor/monitortest", allow: []string{"monitor", "claim", "lease", "lease/leasetest", "history"}},
	{folder: "cache", std: true, allow: []string{"lease"}},
	{folder: "cache/protocol", std: true},
	{folder: "cache/wire", std: true, allow: []string{"cache/protocol"}},
	{folder: "cache/zmtp", std: true, allow: []string{"internal/connlimit"}, foreign: []string{"golang.org/x/crypto/"}},
	{folder: "cache/client", std: true, allow: []string{"cache/protocol", "cache/wire", "cache/zmtp"}},
	{folder: "cache/disk", allow: []string{"internal/flock", "cache", "cache/protocol", "lease"}},
	{folder: "cache/origin", std: true, allow: []string{"cache", "lease", "internal"}},
	{folder: "cache/cachetest", allow: []string{"cache", "cache/protocol"}},
	{folder: "resolve", std: true, allow: []string{"api/apitype", "internal/lru", "lease", "history", "elect", "shard", "shard/catalog"}},
	{folder: "resolve/dns", std: true, allow: []string{"internal/connlimit", "internal/ratelimit", "resolve", "lease"}, foreign: []string{"github.com/miekg/dns"}},
	{folder: "store", std: true, allow: []string{"access", "lease", "history", "claim", "dispatch", "monitor", "shard", "job"}},
	{folder: "store/memory", std: true, allow: []string{"access", "lease", "history", "claim", "dispatch", "monitor", "shard", "job", "store", "internal/memstore/queues", "internal/memstore/checks"}},
	{folder: "internal/memstore", std: true, allow: []string{"lease", "history", "claim", "dispatch", "monitor", "internal/memstore/claims"}},
	{folder: "store/sqlite", allow: []string{"access", "lease", "history", "claim", "dispatch", "monitor", "shard", "job", "store", "internal"}},
	{folder: "store/postgres", allow: []string{"access", "lease", "history", "claim", "dispatch", "monitor", "shard", "job", "store", "internal"}},
	{folder: "store/redis", allow: []string{"access", "lease", "history", "shard", "job", "store", "internal"}},
	{folder: "store/sabledb", allow: []string{"access", "lease", "history", "shard", "store", "store/memory", "internal/resp"}},
	{folder: "store/open", allow: []string{"lease", "history", "store", "store/sqlite", "store/postgres", "store/redis", "store/sabledb"}},
	{folder: "api", allow: []string{"access", "job", "api/apitype", "lease", "history", "elect", "claim", "dispatch", "dispatch/front", "cache", "cache/protocol", "monitor", "monitor/intake", "shard", "shard/catalog", "store", "web", "internal"}},
	{folder: "api/apitype", std: true},
	{folder: "api/client", std: true, allow: []string{"api/apitype"}},
	{folder: "web", std: true},
	{folder: "web/webtest", std: true, allow: []string{"internal/testkit/realserver"}},
	{folder: "internal", allow: []string{"internal", "lease"}},
	{folder: "internal/strictyaml", std: true, allow: []string{"internal/termtext", "internal/usererr"}, foreign: []string{"go.yaml.in/yaml/", "github.com/spf13/pflag"}},
	{folder: "internal/connlimit", std: true, allow: []string{"internal/ratelimit"}},
	{folder: "internal/startlistener", std: true, allow: []string{"api", "api/apitype", "internal/connlimit", "internal/usererr"}},
	{folder: "internal/jobalarm", allow: []string{"dispatch", "job", "monitor", "monitor/sink", "store"}},
	{folder: "internal/instance", allow: []string{"elect", "job", "lease", "monitor", "store", "store/open", "internal/guard", "internal/secret", "internal/termtext", "internal/usererr"}},
	{folder: "internal/shardagent", allow: []string{"api", "api/apitype", "cache/origin", "lease", "shard", "shard/agent", "shard/checks", "shard/engine/redis", "shard/engine/sabledb", "shard/node", "shard/sentinel", "store", "internal/startlistener", "internal/instance", "internal/podlabel", "internal/termtext", "internal/sdnotify", "internal/strictyaml", "internal/usererr"}},
	{folder: "internal/podlabel", std: true, allow: []string{"internal/backoff", "internal/usererr"}},
	{folder: "internal/settings", allow: []string{"access", "api", "cache", "cache/protocol", "cache/origin", "cache/zmtp", "claim", "dispatch", "dispatch/front", "dispatch/target", "elect", "job", "lease", "monitor", "monitor/intake", "monitor/onap", "monitor/sink", "resolve", "resolve/dns", "shard", "store", "store/open", "internal/shardagent", "internal/instance", "internal/secret", "internal/termtext", "internal/strictyaml", "internal/usererr"}},
	{folder: "internal/server", allow: []string{"api", "cache", "cache/disk", "claim", "dispatch", "elect", "history", "job", "lease", "monitor", "monitor/intake", "resolve", "resolve/dns", "shard", "shard/catalog", "shard/sentinel", "store", "internal/shardagent", "internal/backoff", "internal/startlistener", "internal/glob", "internal/guard", "internal/instance", "internal/jobalarm", "internal/memtrim", "internal/termtext", "internal/sdnotify", "internal/settings", "internal/strictyaml", "internal/usererr"}},
	{folder: "internal/attention", std: true, allow: []string{"api/apitype", "elect", "job", "monitor", "shard", "internal/termtext"}},
	{folder: "internal/backoff", std: true},
	{folder: "internal/headers", std: true},
	{folder: "internal/termtext", std: true},
	{folder: "internal/memtrim", std: true},
	{folder: "internal/flock", std: true},
	{folder: "internal/glob", std: true},
	{folder: "internal/lru", std: true},
	{folder: "internal/outagelog", std: true, allow: []string{"lease"}},
	{folder: "internal/prometheus", std: true},
	{folder: "internal/ratelimit", std: true, allow: []string{"internal/lru"}},
	{folder: "internal/secret", std: true},
	{folder: "internal/usererr", std: true},
	{folder: "internal/demo", allow: []string{"api", "api/apitype", "api/client", "claim", "dispatch", "elect", "lease", "monitor", "shard/engine/redis", "store", "internal/termtext", "internal/resp", "internal/usererr"}},
	{folder: "internal/doctor", allow: []string{"api", "api/apitype", "api/client", "dispatch", "elect", "job", "lease", "monitor", "shard", "store", "internal/attention", "internal/secret", "internal/termtext", "internal/usererr"}},
	{folder: "cmd", allow: []string{"access", "job", "api", "api/apitype", "api/client", "cache", "cache/client", "cache/protocol", "cache/origin", "cache/zmtp", "claim", "dispatch", "elect", "history", "lease", "monitor", "shard", "shard/catalog", "shard/proxy", "store", "store/open", "internal"}},
	{folder: "sim", allow: []string{"job", "job/jobtest", "shard", "shard/agent", "shard/shardtest", "monitor", "monitor/monitortest", "cache/protocol", "cache/cachetest", "lease", "lease/leasetest", "history", "elect", "claim", "dispatch", "dispatch/dispatchtest", "internal/memstore/checks", "internal/memstore/queues", "store", "store/memory", "store/sqlite"}},
	{folder: "examples", allow: []string{"cache", "cache/protocol", "elect", "lease", "store/postgres"}},
	{folder: "fault", allow: []string{"job", "job/jobtest", "shard", "shard/engine/redis", "shard/node", "shard/sentinel", "monitor", "monitor/intake", "monitor/sink", "cache", "cache/protocol", "cache/wire", "cache/zmtp", "cache/client", "cache/origin", "lease", "lease/leasetest", "history", "elect", "claim", "dispatch", "dispatch/target", "dispatch/target/targettest", "store", "store/open", "store/postgres", "store/sqlite", "internal"}},
}

// only tells which folders alone, but for what serves tests, may import a foreign
// package.
var only = map[string][]string{
	"github.com/jackc/pgx/":       {"store/postgres", "examples"},
	"modernc.org/sqlite":          {"store/sqlite", "cache/disk"},
	"golang.org/x/crypto/":        {"cache/zmtp"},
	"google.golang.org/protobuf/": {"internal/sawtooth"},
	"github.com/decred/":          {"internal/sawtooth"},
	"github.com/spf13/cobra":      {"cmd"},
	"github.com/spf13/pflag":      {"cmd", "internal/strictyaml", "internal/shardagent"},
	"go.yaml.in/yaml/":            {"cmd", "internal/strictyaml", "internal/settings", "internal/demo"},
	"golang.org/x/sys/":           {"internal/guard", "internal/sdnotify", "shard/node", "store/sqlite"},
	"github.com/miekg/dns":        {"resolve/dns"},
	"github.com/DataDog/":         {"monitor/sink"},
	// These call methods by name: the linker would keep each exported method of the program.
	"text/template": {},
	"html/template": {},
	// For tests.
	"github.com/redis/go-redis/":        {},
	"github.com/anishathalye/porcupine": {},
	"github.com/google/go-cmp/":         {},
	"github.com/rogpeppe/go-internal/":  {},
	"go.uber.org/goleak":                {},
	"github.com/standard-webhooks/":     {},
}

type file struct {
	path string // slash-separated, from the root of the repository
	ast  *ast.File
	set  *token.FileSet
}

func (f file) folder() string { return path.Dir(f.path) }
func (f file) test() bool     { return strings.HasSuffix(f.path, "_test.go") }

// support tells packages that exist for tests, where the limits of tests hold.
func (f file) support() bool {
	return strings.HasSuffix(f.folder(), "test") || strings.HasPrefix(f.path, "sim/") ||
		strings.HasPrefix(f.path, "fault/") || strings.HasPrefix(f.path, "internal/testkit/")
}

func sources(t *testing.T) []file {
	t.Helper()
	root := filepath.Join("..", "..")
	var out []file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		rel = filepath.ToSlash(rel)
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && rel != "." || rel == "adapters" || rel == "bench" || rel == "tools" || rel == "bin") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(rel, ".go") {
			return nil
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, p, nil, parser.ParseComments)
		out = append(out, file{rel, parsed, set})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("only %d source files found", len(out))
	}
	return out
}

func TestArrows(t *testing.T) {
	for _, f := range sources(t) {
		if f.test() {
			continue
		}
		std, foreign, allow, ok := rule(f.folder())
		if !ok {
			t.Errorf("%s: folder %s has no arrows; decide what it may import, in archtest_test.go", f.path, f.folder())
			continue
		}
		for _, spec := range f.ast.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			if own, inside := strings.CutPrefix(imported, module+"/"); inside {
				if !allowed(own, f.folder(), allow) {
					t.Errorf("%s imports %s: the arrows of %s do not point there", f.path, own, f.folder())
				}
				continue
			}
			outside := strings.Contains(strings.Split(imported, "/")[0], ".")
			if outside && std && !slices.ContainsFunc(foreign, func(p string) bool { return strings.HasPrefix(imported, p) }) {
				t.Errorf("%s imports %s: %s declares a port and stands on the standard library alone", f.path, imported, f.folder())
			}
			for prefix, folders := range only {
				within := func(folder string) bool { return f.folder() == folder || strings.HasPrefix(f.folder(), folder+"/") }
				if strings.HasPrefix(imported, prefix) && !f.support() && !slices.ContainsFunc(folders, within) {
					t.Errorf("%s imports %s: only %s may", f.path, imported, strings.Join(folders, " and "))
				}
			}
		}
	}
}

// rule finds the arrows of a folder or the nearest one above it.
func rule(folder string) (std bool, foreign, allow []string, ok bool) {
	for at := folder; at != "."; at = path.Dir(at) {
		for _, a := range arrows {
			if a.folder == at {
				return a.std, a.foreign, a.allow, true
			}
		}
	}
	return false, nil, nil, false
}

func allowed(imported, folder string, allow []string) bool {
	if imported == "internal/backoff" { // it imports nothing itself, and whoever asks others needs it
		return true
	}
	for _, a := range allow {
		if imported == a || a == "internal" && strings.HasPrefix(imported, "internal/") {
			return true
		}
	}
	return strings.HasPrefix(imported, folder+"/")
}

func TestArrowsCatch(t *testing.T) {
	for _, c := range []struct {
		folder, imported string
		want             bool
	}{
		{"lease", "store", false},
		{"elect", "store/memory", false},
		{"elect", "lease", true},
		{"store/sqlite", "store/postgres", false},
		{"store/sqlite", "internal/backoff", true},
		{"api", "store/open", false},
		{"cache/protocol", "lease", false},
		{"cache/protocol", "internal/backoff", true},
		{"cache/client", "cache", false},
		{"cache", "cache/zmtp", true},
		{"cache", "store", false},
		{"internal/strictyaml", "lease", false},
		{"internal/settings", "internal/server", false},
		{"internal/demo", "internal/server", false},
		{"cmd/understudy", "store/sqlite", false},
		{"cmd/understudy", "internal/server", true},
	} {
		_, _, allow, _ := rule(c.folder)
		if got := allowed(c.imported, c.folder, allow); got != c.want {
			t.Errorf("may %s import %s? %t, want %t", c.folder, c.imported, got, c.want)
		}
	}
}

func TestPackageDocs(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range sources(t) {
		if f.test() {
			continue
		}
		has := f.ast.Doc != nil && len(f.ast.Doc.Text()) > 40
		documented[f.folder()] = documented[f.folder()] || has
	}
	for folder, ok := range documented {
		if !ok {
			t.Errorf("package %s has no package comment: say what it promises and what not, in doc.go", folder)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, f := range sources(t) {
		limit := maxFile
		if f.test() {
			limit = maxTestFile
		}
		if lines := f.set.File(f.ast.Pos()).LineCount(); lines > limit {
			t.Errorf("%s has %d lines; %d are allowed: which two subjects live in it?", f.path, lines, limit)
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if fn.Name.Name == "init" && fn.Recv == nil {
				t.Errorf("%s has an init function", f.path)
			}
			if f.test() || f.support() {
				continue
			}
			lines := f.set.Position(fn.End()).Line - f.set.Position(fn.Pos()).Line + 1
			if lines > maxFunc {
				t.Errorf("%s: %s has %d lines; %d are allowed", f.path, fn.Name.Name, lines, maxFunc)
			}
		}
	}
}

// TestNoSleep keeps tests from waiting for time instead of for what they want:
// outside a synctest bubble, wait for a signal or poll with a deadline.
func TestNoSleep(t *testing.T) {
	for _, f := range sources(t) {
		if !f.test() && !f.support() || imports(f, "testing/synctest") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Sleep" {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" {
					t.Errorf("%s sleeps at line %d", f.path, f.set.Position(n.Pos()).Line)
				}
			}
			return true
		})
	}
}

func imports(f file, path string) bool {
	for _, spec := range f.ast.Imports {
		if spec.Path.Value == strconv.Quote(path) {
			return true
		}
	}
	return false
}
