package archtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/tools/txtar"
)

// TestRepository holds this repository to the rules.
func TestRepository(t *testing.T) {
	tree, err := Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(tree.files, func(f *file) bool { return f.path == "internal/archtest/rules.go" }) {
		t.Fatalf("read %d files, and this package is not among them: the root of the repository is elsewhere", len(tree.files))
	}
	for _, f := range Check(tree) {
		t.Error(f)
	}
}

// TestFixtures holds each tree in testdata to the rules; the findings must be those its head lists,
// each line being: want, path:line, rule, and a part of the message.
func TestFixtures(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			root, err := txtar.FS(a)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, root, wanted(string(a.Comment)))
		})
	}
}

// wanted takes the want lines out of the head of a fixture.
func wanted(head string) [][3]string {
	var want [][3]string
	for line := range strings.Lines(head) {
		if w, ok := strings.CutPrefix(strings.TrimSpace(line), "want "); ok {
			parts := strings.SplitN(w, " ", 3)
			want = append(want, [3]string(parts))
		}
	}
	return want
}

// compare runs the rules over a tree and fails unless each finding is wanted and each wanted one is
// found.
func compare(t *testing.T, root fs.FS, want [][3]string) {
	t.Helper()
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Check(tree) {
		place := fmt.Sprintf("%s:%d", f.Path, f.Line)
		i := slices.IndexFunc(want, func(w [3]string) bool {
			return w[0] == place && w[1] == f.Rule && strings.Contains(f.String(), w[2])
		})
		if i < 0 {
			t.Errorf("not wanted: %s", f)
			continue
		}
		want = slices.Delete(want, i, i+1)
		if f.What == "" || f.Why == "" || f.Do == "" {
			t.Errorf("a message lacks something: %s", f)
		}
	}
	for _, w := range want {
		t.Errorf("not found: %v", w)
	}
}

// function is the source of a function with so many lines.
func function(name string, lines int) string {
	return "func " + name + "() {\n" + strings.Repeat("\tx()\n", lines-2) + "}\n"
}

func TestSize(t *testing.T) {
	source := "// Package wal is a fixture.\npackage wal\n\n"
	long := strings.Repeat("\n", maxFile)
	root := fstest.MapFS{
		"wal/fits.go":       {Data: []byte(source + function("fits", maxFunction) + function("tooLong", maxFunction+1))},
		"wal/long.go":       {Data: []byte("package wal\n" + long)},
		"wal/long_test.go":  {Data: []byte("package wal\n" + long + function("f", maxFunction+1))},
		"wal/long.pb.go":    {Data: []byte("package wal\n" + long + function("g", maxFunction+1))},
		"wal/justfits.go":   {Data: []byte("package wal\n" + long[1:])},
		"wal/exceptions.go": {Data: []byte("package wal\n" + function("excepted", maxFunction+9) + function("shrunk", 5))},
	}
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	run := func(long map[string]string) {
		got = nil
		sizeRule(long)(tree, func(f Finding) { got = append(got, fmt.Sprintf("%s:%d %s", f.Path, f.Line, f.What)) })
		slices.Sort(got)
	}
	run(map[string]string{"wal/exceptions.go excepted": "a fixture", "wal/exceptions.go shrunk": "a fixture", "wal/gone.go f": "a fixture"})
	want := []string{
		"wal/exceptions.go:81 an exception for func shrunk, which has 5 lines",
		"wal/fits.go:74 func tooLong has 71 lines",
		"wal/long.go:601 601 lines",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	run(map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"})
	if !slices.Contains(got, "internal/archtest/declarations.go:0 4 exceptions for long functions") {
		t.Errorf("four exceptions passed: %q", got)
	}
}

// TestTables checks the tables of the rules: every exception and every line has a reason.
func TestTables(t *testing.T) {
	for name, table := range map[string]map[string]string{
		"pureExceptions": pureExceptions, "longFunctions": longFunctions, "sleepAllowed": sleepAllowed,
		"packagesNamed": packagesNamed, "foreign": foreign,
	} {
		for entry, reason := range table {
			if len(reason) < 15 {
				t.Errorf("%s: %s has the reason %q", name, entry, reason)
			}
		}
	}
	seen := map[string]bool{}
	for _, l := range layers {
		if l.why == "" || seen[l.path] {
			t.Errorf("layer %s has no reason or is there twice", l.path)
		}
		seen[l.path] = true
	}
	for _, e := range slices.Concat(never, only, alsoAllowed) {
		if e.why == "" || len(e.from) == 0 || len(e.to) == 0 {
			t.Errorf("an edge from %v has no reason or end", e.from)
		}
	}
	for pkg, g := range globalUses {
		if g.why == "" || g.do == "" || (g.names == nil) == (g.but == nil) {
			t.Errorf("globalUses of %s are incomplete", pkg)
		}
	}
}

// TestBrokenSource: a file that cannot be parsed fails with its name.
func TestBrokenSource(t *testing.T) {
	_, err := Load(fstest.MapFS{"wal/a.go": {Data: []byte("package wal\nfunc {")}})
	if err == nil || !strings.Contains(err.Error(), "wal/a.go:2") {
		t.Errorf("error %v", err)
	}
}

func TestWords(t *testing.T) {
	for name, want := range map[string]string{
		"newHTTPServer_test": "new http server test",
		"WatchManager":       "watch manager",
		"utilX":              "util x",
		"_":                  "",
		"ID":                 "id",
		"aB":                 "a b",
	} {
		if got := strings.Join(words(name), " "); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
