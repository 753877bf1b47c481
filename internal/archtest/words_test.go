package archtest_test

import (
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNoBuiltinIsShadowed: after `new := …`, new is not what the reader knows. A method may have such a name: it is
// called through its receiver.
func TestNoBuiltinIsShadowed(t *testing.T) {
	for _, f := range sources(t) {
		for _, id := range declared(f.ast) {
			if types.Universe.Lookup(id.Name) != nil {
				t.Errorf("%s:%d declares %s, which is a builtin", f.path, f.set.Position(id.Pos()).Line, id.Name)
			}
		}
	}
}

// declared returns the names that a file declares, but for fields and methods.
func declared(file *ast.File) (names []*ast.Ident) {
	add := func(exprs ...ast.Expr) {
		for _, e := range exprs {
			if id, ok := e.(*ast.Ident); ok {
				names = append(names, id)
			}
		}
	}
	fields := func(l *ast.FieldList) {
		if l == nil {
			return
		}
		for _, f := range l.List {
			names = append(names, f.Names...)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil {
				names = append(names, n.Name)
			}
			fields(n.Recv)
			fields(n.Type.Params)
			fields(n.Type.Results)
		case *ast.FuncLit:
			fields(n.Type.Params)
			fields(n.Type.Results)
		case *ast.AssignStmt:
			if n.Tok.String() == ":=" {
				add(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok.String() == ":=" {
				add(n.Key, n.Value)
			}
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		}
		return true
	})
	return names
}

// nanoseconds lists where JSON has durations in nanoseconds: formats that stores and agents keep and older versions read.
// The API has milliseconds.
var nanoseconds = []string{"shard/", "history/event.go"}

var inNanoseconds = regexp.MustCompile(`json:"[a-z_]*_ns[",]`)

// TestOneUnitOfDurations: durations in JSON are milliseconds, and their names end in _ms.
func TestOneUnitOfDurations(t *testing.T) {
	for _, f := range sources(t) {
		listed := slices.ContainsFunc(nanoseconds, func(p string) bool { return strings.HasPrefix(f.path, p) })
		if f.test() || f.support() || listed {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok && field.Tag != nil && inNanoseconds.MatchString(field.Tag.Value) {
				t.Errorf("%s:%d: %s: durations in JSON are milliseconds, _ms", f.path, f.set.Position(field.Pos()).Line, field.Tag.Value)
			}
			return true
		})
	}
}
