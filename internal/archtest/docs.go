package archtest

import (
	"fmt"
	"go/ast"
	"slices"
)

const docsWhy = "someone who opens only this package must understand it from its comments"

// docsRule wants a comment on every package and on every exported identifier.
func docsRule(t *Tree, report func(Finding)) {
	first := map[string]*file{} // a file of each package
	documented := map[string]bool{}
	for _, f := range t.files {
		if f.test {
			continue
		}
		if first[f.dir] == nil {
			first[f.dir] = f
		}
		documented[f.dir] = documented[f.dir] || f.syntax.Doc.Text() != ""
		if f.generated {
			continue
		}
		for _, d := range f.syntax.Decls {
			for _, id := range undocumented(d) {
				report(Finding{f.path, t.line(id.Pos()), "docs", fmt.Sprintf("exported %s has no comment", id.Name), docsWhy,
					"say what it takes and gives, units, ranges, errors, and which goroutine may use it; or do not export it"})
			}
		}
	}
	for dir, f := range first {
		if !documented[dir] {
			report(Finding{f.path, t.line(f.syntax.Package), "docs", fmt.Sprintf("package %s has no comment", dir), docsWhy,
				"write it above the package clause of one file, doc.go when it is long: purpose, nouns, who calls what, invariants, goroutines, locks"})
		}
	}
}

// undocumented lists the exported identifiers of a declaration that have no comment. In a group of
// constants or variables the comment of the group counts for all.
func undocumented(d ast.Decl) []*ast.Ident {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc.Text() == "" && exportedReceiver(d) {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		var ids []*ast.Ident
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				alone := !d.Lparen.IsValid() && d.Doc.Text() != ""
				if s.Name.IsExported() && s.Doc.Text() == "" && s.Comment.Text() == "" && !alone {
					ids = append(ids, s.Name)
				}
			case *ast.ValueSpec:
				if d.Doc.Text() == "" && s.Doc.Text() == "" && s.Comment.Text() == "" {
					ids = append(ids, slices.DeleteFunc(slices.Clone(s.Names), func(id *ast.Ident) bool { return !id.IsExported() })...)
				}
			}
		}
		return ids
	}
	return nil
}

// exportedReceiver reports whether a function has no receiver, or one whose type is exported.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}
