package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"strings"
	"unicode"
)

// initRule forbids init functions, in tests too.
func initRule(t *Tree, report func(Finding)) {
	for _, f := range t.files {
		if f.generated {
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				report(Finding{f.path, t.line(fn.Pos()), "init", "func init",
					"what runs before main runs for everybody who imports the package, in an order nobody sees",
					"do it in a constructor, or write the table as a literal"})
			}
		}
	}
}

// globalsRule forbids package variables without a value: they wait for somebody to assign them.
// Those of commands may be set by the linker, go:embed fills its own, and an array without a value
// is a table of zeros.
func globalsRule(t *Tree, report func(Finding)) {
	for _, f := range t.files {
		if l, _ := layerOf(f.dir); !t.product(f) || f.generated || l.n >= toolsLayer {
			continue
		}
		for _, d := range f.syntax.Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, s := range gen.Specs {
				v := s.(*ast.ValueSpec)
				a, isArray := v.Type.(*ast.ArrayType)
				zeros := isArray && a.Len != nil
				if len(v.Values) == 0 && !zeros && v.Names[0].Name != "_" && !embedded(gen.Doc) && !embedded(v.Doc) {
					report(Finding{f.path, t.line(v.Pos()), "globals", "package variable " + v.Names[0].Name + " without a value",
						"package variables are for sentinel errors, tables and compile-time checks; state in them is shared by all servers of a process",
						"move it into the struct that owns it"})
				}
			}
		}
	}
}

func embedded(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		if strings.HasPrefix(c.Text, "//go:embed ") {
			return true
		}
	}
	return false
}

// namesForbidden are words that name nothing, with what they hide.
var namesForbidden = []string{"manager", "helper", "util"}

// packagesNamed are packages whose names have such a word for a reason.
var packagesNamed = map[string]string{
	"pkg/idutil": "the name that users of etcd's packages know",
}

const (
	namesWhy = "the word says nothing about what the thing is or does, so anything ends up in it"
	namesDo  = "name it after what it does, or split it by what its parts do"
)

// namesRule forbids empty words in the names of packages, files and everything declared.
func namesRule(t *Tree, report func(Finding)) {
	dirs := map[string]bool{}
	for _, f := range t.files {
		if f.generated {
			continue
		}
		if !dirs[f.dir] && packagesNamed[f.dir] == "" {
			for _, bad := range namesForbidden {
				if strings.Contains(path.Base(f.dir), bad) {
					report(Finding{f.dir, 0, "names", "package " + f.dir, namesWhy, namesDo})
				}
			}
		}
		dirs[f.dir] = true
		if emptyWord(strings.TrimSuffix(path.Base(f.path), ".go")) {
			report(Finding{f.path, 0, "names", "file " + f.path, namesWhy, namesDo})
		}
		for _, id := range declared(f.syntax) {
			if emptyWord(id.Name) && !(f.test && id.Name == "Helper") { // what stands in for testing.TB has this method
				report(Finding{f.path, t.line(id.Pos()), "names", "the name " + id.Name, namesWhy, namesDo})
			}
		}
	}
}

// declared lists the identifiers that a file declares, at any depth.
func declared(syntax *ast.File) []*ast.Ident {
	var ids []*ast.Ident
	ast.Inspect(syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			ids = append(ids, n.Name)
		case *ast.TypeSpec:
			ids = append(ids, n.Name)
		case *ast.ValueSpec:
			ids = append(ids, n.Names...)
		case *ast.Field:
			ids = append(ids, n.Names...)
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					ids = append(ids, id)
				}
			}
		}
		return true
	})
	return ids
}

// emptyWord reports whether one of the words of a name, which begin with capitals or behind
// underscores, is one of namesForbidden, in singular or plural.
func emptyWord(name string) bool {
	for _, w := range words(name) {
		for _, bad := range namesForbidden {
			if w == bad || w == bad+"s" {
				return true
			}
		}
	}
	return false
}

// words takes a name apart, in lower case: newHTTPServer_test is new, http, server and test.
func words(name string) []string {
	var list []string
	rs := []rune(name)
	start := 0
	cut := func(end int) {
		if end > start {
			list = append(list, strings.ToLower(string(rs[start:end])))
		}
		start = end
	}
	for i, r := range rs {
		switch {
		case r == '_':
			cut(i)
			start = i + 1
		case unicode.IsUpper(r) && i > 0 && (unicode.IsLower(rs[i-1]) || i+1 < len(rs) && unicode.IsLower(rs[i+1])):
			cut(i)
		}
	}
	cut(len(rs))
	return list
}

// longFunctions are the functions above the limit, as "path name", with the reason. Three at most.
var longFunctions = map[string]string{}

const (
	maxFile     = 600 // lines
	maxFunction = 70  // lines, from func to the closing brace
	maxLong     = 3   // entries in longFunctions
)

// sizeRule bounds the length of files and functions that people write, tests apart.
func sizeRule(long map[string]string) rule {
	return func(t *Tree, report func(Finding)) {
		if len(long) > maxLong {
			report(Finding{"internal/archtest/declarations.go", 0, "size", fmt.Sprintf("%d exceptions for long functions", len(long)),
				"exceptions are for the few places where the rule makes code worse", fmt.Sprintf("keep %d at most", maxLong)})
		}
		for _, f := range t.files {
			if f.test || f.generated {
				continue
			}
			if f.lines > maxFile {
				report(Finding{f.path, maxFile + 1, "size", fmt.Sprintf("%d lines", f.lines),
					"a file holds one idea, and one idea fits in 300 lines, or in 600 if it must", "split it by idea"})
			}
			for _, d := range f.syntax.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					checkFunction(t, f, fn, long, report)
				}
			}
		}
	}
}

func checkFunction(t *Tree, f *file, fn *ast.FuncDecl, long map[string]string, report func(Finding)) {
	lines := t.line(fn.End()) - t.line(fn.Pos()) + 1
	_, excepted := long[f.path+" "+fn.Name.Name]
	switch {
	case excepted && lines <= maxFunction:
		report(Finding{f.path, t.line(fn.Pos()), "size", fmt.Sprintf("an exception for func %s, which has %d lines", fn.Name.Name, lines),
			"exceptions that are not needed hide those that are", "remove it from longFunctions in internal/archtest/declarations.go"})
	case !excepted && lines > maxFunction:
		report(Finding{f.path, t.line(fn.Pos()), "size", fmt.Sprintf("func %s has %d lines", fn.Name.Name, lines),
			"a function that does not fit on a screen is not understood at a glance; aim at 40 lines, stop at 70", "split it by step"})
	}
}
