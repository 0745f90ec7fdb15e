package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// module is the path of the root module.
const module = "github.com/coordd/coordd"

// Tree is everything in the repository that rules look at.
type Tree struct {
	fset  *token.FileSet
	files []*file  // all Go files that belong to packages
	texts []text   // all text files, Go files included
	inner []string // folders, below the root, of other modules
}

// file is a parsed Go file.
type file struct {
	path      string // from the root, with slashes
	dir       string // its folder, "." for the root
	syntax    *ast.File
	lines     int
	test      bool // its name ends in _test.go
	generated bool // a program wrote it
}

// text is the content of a file.
type text struct {
	path      string
	content   []byte
	generated bool
}

// Finding is one broken rule.
type Finding struct {
	Path string // file, or folder, from the root
	Line int    // 0 when it is about the whole
	Rule string // name of the rule
	What string // what is there
	Why  string // the reason for the rule
	Do   string // what to do about it
}

// String is the finding as people read it.
func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: [%s] %s\n\twhy: %s\n\tdo:  %s", f.Path, f.Line, f.Rule, f.What, f.Why, f.Do)
}

// Load reads the tree below the root of a repository. What Git does not track by the repository's
// .gitignore is left out, and so are this package's own fixtures.
func Load(root fs.FS) (*Tree, error) {
	t := &Tree{fset: token.NewFileSet()}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped(name):
			return fs.SkipDir
		case !d.Type().IsRegular() || strings.HasSuffix(name, ".test") || strings.HasSuffix(name, ".out"):
			return nil
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		return t.add(name, content)
	})
	return t, err
}

// skipped are the folders that are not looked at.
func skipped(dir string) bool {
	switch path.Base(dir) {
	case ".git", "bin", "coordd-data":
		return true
	}
	return dir == "internal/archtest/testdata"
}

// add takes in one file.
func (t *Tree) add(name string, content []byte) error {
	if path.Base(name) == "go.mod" && path.Dir(name) != "." {
		t.inner = append(t.inner, path.Dir(name))
	}
	if !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0 {
		return nil
	}
	// Like the go command, look for no packages in folders named testdata.
	isGo := path.Ext(name) == ".go" && !strings.Contains("/"+name, "/testdata/")
	if !isGo {
		t.texts = append(t.texts, text{path: name, content: content})
		return nil
	}
	syntax, err := parser.ParseFile(t.fset, name, content, parser.ParseComments)
	if err != nil {
		return err
	}
	f := &file{
		path: name, dir: path.Dir(name), syntax: syntax,
		lines:     bytes.Count(content, []byte("\n")),
		test:      strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(syntax) || strings.HasSuffix(name, ".pb.go") || strings.HasSuffix(name, ".pb.gw.go"),
	}
	t.files = append(t.files, f)
	t.texts = append(t.texts, text{path: name, content: content, generated: f.generated})
	return nil
}

// root reports whether the file belongs to the root module.
func (t *Tree) root(f *file) bool {
	return !slices.ContainsFunc(t.inner, func(dir string) bool { return within(f.dir, dir) })
}

// product reports whether the file belongs to the root module and not to its tests.
func (t *Tree) product(f *file) bool { return t.root(f) && !f.test }

func (t *Tree) line(p token.Pos) int { return t.fset.Position(p).Line }

// within reports whether the folder dir is top or lies below it.
func within(dir, top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }

// imported is one import of a file.
type imported struct {
	path string
	name string // under which the file knows it
	pos  token.Pos
}

// imports lists the imports of f. Where the file gives no name, the package is taken to be called
// like the last part of its path that is not a major version.
func (f *file) imports() []imported {
	var list []imported
	for _, spec := range f.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has checked it
		}
		name := path.Base(p)
		if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
			name = path.Base(path.Dir(p))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		list = append(list, imported{p, name, spec.Pos()})
	}
	return list
}

// uses calls visit for every name of an imported package that the file mentions, such as time and Now.
func (f *file) uses(visit func(pkg, name string, pos token.Pos)) {
	byName := map[string]string{}
	for _, i := range f.imports() {
		byName[i.name] = i.path
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		// An identifier that is declared in the file itself hides the package.
		if x, ok := sel.X.(*ast.Ident); ok && x.Obj == nil && byName[x.Name] != "" {
			visit(byName[x.Name], sel.Sel.Name, sel.Pos())
		}
		return true
	})
}
