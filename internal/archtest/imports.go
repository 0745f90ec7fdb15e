package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// has reports whether the edge goes from the folder from to the folder to.
func (e edge) has(from, to string) bool { return e.leaves(from) && e.reaches(to) }

func (e edge) leaves(dir string) bool {
	return slices.ContainsFunc(e.from, func(top string) bool { return within(dir, top) })
}

func (e edge) reaches(dir string) bool {
	return slices.ContainsFunc(e.to, func(top string) bool { return dir == top || !e.exact && within(dir, top) })
}

// layersRule holds every import of the root module against the table. Tests may import any layer,
// but nothing foreign.
func layersRule(t *Tree, report func(Finding)) {
	unknown := map[string]bool{}
	for _, f := range t.files {
		if !t.root(f) {
			continue
		}
		for _, i := range f.imports() {
			for prefix, why := range foreign {
				if strings.HasPrefix(i.path, prefix) {
					report(Finding{f.path, t.line(i.pos), "layers", fmt.Sprintf("%s imports %s", f.dir, i.path), why,
						"write it in our own words, or move the test that needs it to tests/"})
				}
			}
		}
		if f.test {
			continue
		}
		if _, ok := layerOf(f.dir); !ok {
			if !unknown[f.dir] {
				report(Finding{f.dir, 0, "layers", fmt.Sprintf("package %s has no layer", f.dir),
					"every package has a place in the import order, or the order is none",
					"give it a line in layers in internal/archtest/layers.go, with the reason, and a row in the table of docs/architecture.md; or move it below a folder that is there"})
			}
			unknown[f.dir] = true
			continue
		}
		for _, i := range f.imports() {
			if why, do := wrongImport(f.dir, i.path); why != "" {
				report(Finding{f.path, t.line(i.pos), "layers", fmt.Sprintf("%s imports %s", f.dir, i.path), why, do})
			}
		}
	}
}

// wrongImport says why the package in dir must not import a path, and what to do; empty when it may.
func wrongImport(dir, path string) (why, do string) {
	to, ok := strings.CutPrefix(path, module+"/")
	if !ok {
		return "", ""
	}
	for _, e := range never {
		if e.has(dir, to) {
			return e.why, "pass what is needed as an argument, or do the work in a package above both"
		}
	}
	for _, e := range only {
		if e.leaves(dir) && !e.reaches(to) {
			return e.why, "import only " + strings.Join(e.to, ", ")
		}
	}
	from, _ := layerOf(dir)
	place, ok := layerOf(to)
	if !ok || place.n < from.n || place.path == from.path {
		return "", "" // a package without a layer is reported by itself
	}
	for _, e := range alsoAllowed {
		if e.has(dir, to) {
			return "", ""
		}
	}
	return fmt.Sprintf("%s is in layer %d (%s), %s in layer %d (%s): imports go down only", from.path, from.n, from.why, place.path, place.n, place.why),
		"move the shared part to a lower layer, or declare the interface you need where you use it"
}
