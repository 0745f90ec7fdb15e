package archtest

import (
	"bytes"
	"fmt"
	"go/token"
	"path"
	"regexp"
	"slices"
)

// sleepAllowed are folders whose tests may sleep, with the reason.
var sleepAllowed = map[string]string{
	"tests": "they watch real processes, whose state can only be asked for again and again",
}

// sleepRule forbids time.Sleep in tests. A file that uses testing/synctest may have it, as there it
// moves a virtual clock.
func sleepRule(t *Tree, report func(Finding)) {
	for _, f := range t.files {
		virtual := slices.ContainsFunc(f.imports(), func(i imported) bool { return i.path == "testing/synctest" })
		if !f.test || virtual || sleepsAllowed(f.dir) {
			continue
		}
		f.uses(func(pkg, name string, pos token.Pos) {
			if pkg == "time" && name == "Sleep" {
				report(Finding{f.path, t.line(pos), "sleep", "time.Sleep in a test",
					"a sleep is too short on a busy machine and too long on all others",
					"wait for the condition itself, or run the test in testing/synctest"})
			}
		})
	}
}

func sleepsAllowed(dir string) bool {
	for top := range sleepAllowed {
		if within(dir, top) {
			return true
		}
	}
	return false
}

// The patterns are put together so that they do not match themselves.
var (
	marksPattern = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`)
	pathsPattern = regexp.MustCompile(`(^|[^\w./-])(/(work|tmp|root|home)/)`)
)

// marksRule forbids marks of unfinished work in any text.
func marksRule(t *Tree, report func(Finding)) {
	t.match(marksPattern, 1, func(path, found string, line int) {
		report(Finding{path, line, "marks", found, "work left behind in a comment is done by nobody", "do it now, or open an issue"})
	})
}

// pathsRule forbids absolute paths of one machine in any text.
func pathsRule(t *Tree, report func(Finding)) {
	t.match(pathsPattern, 2, func(path, found string, line int) {
		report(Finding{path, line, "paths", fmt.Sprintf("the absolute path %s…", found), "the repository works on every machine, from any folder",
			"use a path relative to the repository, t.TempDir, or mktemp"})
	})
}

// match visits the first match in every line of the texts that people write; group is the part of
// the pattern to show.
func (t *Tree) match(pattern *regexp.Regexp, group int, visit func(path, found string, line int)) {
	for _, x := range t.texts {
		if x.generated || path.Base(x.path) == "go.sum" {
			continue
		}
		n := 0
		for line := range bytes.Lines(x.content) {
			n++
			if m := pattern.FindSubmatch(line); m != nil {
				visit(x.path, string(m[group]), n)
			}
		}
	}
}
