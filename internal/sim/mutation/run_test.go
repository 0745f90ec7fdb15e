//go:build mutate

package mutation

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
)

var (
	only    = flag.String("mutate.only", "", "run mutations whose names match this pattern only")
	seeds   = flag.Int("mutate.seeds", 200, "how many seeds each may take")
	seconds = flag.Int("mutate.seconds", 180, "for how long each may run, without compiling")
)

// TestCaught puts each mutation into a copy of the module and expects the simulation to fail there.
func TestCaught(t *testing.T) {
	pattern, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := copyModule(dir); err != nil {
		t.Fatal(err)
	}
	var rows []row
	for _, m := range Mutations() {
		if !pattern.MatchString(m.Name) {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			undo, err := m.apply(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer undo()
			r := m.catch(t, dir)
			t.Log(r)
			rows = append(rows, r)
		})
	}
	fmt.Fprint(t.Output(), table(rows))
}

// catch runs the simulation with the mutation, and the tests of the mutated package if the simulation notices nothing.
func (m Mutation) catch(t *testing.T, dir string) row {
	caught, r := run(build(t, dir))
	r.bug = m.Name
	if caught {
		return r
	}
	t.Logf("not caught by the simulation in %.0f s: %s", r.took.Seconds(), r.saw)
	bySimulation := r.saw
	caught, r = m.runOwn(dir)
	r.bug = m.Name
	if !caught {
		t.Errorf("not caught by the tests of its package either: %s", r.saw)
		return row{bug: m.Name, by: "nobody", took: r.took}
	}
	r.saw = "by the simulation: " + bySimulation
	return r
}

// copyModule copies the Go files of the module.
func copyModule(dir string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		top, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
		switch {
		case top == "tests" || top == "tools" || top == "bin" || strings.HasPrefix(top, ".") && top != ".":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(dir, rel), 0o755)
		case !strings.HasSuffix(rel, ".go") && top != "go.mod" && top != "go.sum":
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, rel), data, 0o644)
	})
}

// apply makes the change in a copy of the module.
func (m Mutation) apply(dir string) (undo func(), err error) {
	path := filepath.Join(dir, filepath.FromSlash(m.File))
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(data, []byte(m.Old)); n != 1 {
		return nil, fmt.Errorf("the old text is %d times in %s", n, m.File)
	}
	changed := bytes.Replace(data, []byte(m.Old), []byte(m.New), 1)
	return func() { _ = os.WriteFile(path, data, 0o644) }, os.WriteFile(path, changed, 0o644)
}

// build compiles the simulation.
func build(t *testing.T, dir string) string {
	t.Helper()
	out := filepath.Join(dir, "sim.test")
	cmd := exec.Command("go", "test", "-c", "-o", out, "./internal/sim")
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the mutated module does not compile: %v\n%s", err, text)
	}
	return out
}

// What a failed simulation says of a seed: that it failed, and how; then what is broken, or how its process ended.
var (
	failedSeed = regexp.MustCompile(`(?m)^\s*seed (\d+) failed: (.*)$`)
	broken     = regexp.MustCompile(`(?m)^\s*broken:\n\s*(.*)$|^\s*((?:panic|fatal error): .*)$`)
	sum        = regexp.MustCompile(`(?m)^\s*(\d+) seeds from .*$`)
)

// run runs the simulation until a seed fails, and tells what it found. A seed that hangs has failed, too.
func run(sim string) (caught bool, r row) {
	begin := time.Now()
	cmd := exec.Command(sim, "-test.run", "^TestSeeds$", "-test.v", "-test.timeout", "0", "-sim.limit", "1m",
		"-sim.seed", "1", "-sim.n", fmt.Sprint(*seeds), "-sim.budget", fmt.Sprintf("%ds", *seconds), "-sim.shrink", "0")
	cmd.Dir = filepath.Dir(sim)
	text, err := cmd.CombinedOutput()
	r.by, r.took = "simulation", time.Since(begin)
	found := failedSeed.FindSubmatchIndex(text)
	switch {
	case err == nil:
		r.saw = "no failure"
		if all := sum.FindSubmatch(text); all != nil {
			r.saw = fmt.Sprintf("%s seeds passed", all[1])
		}
		return false, r
	case found == nil:
		r.saw = "failed without naming a seed: " + string(text[max(0, len(text)-2000):])
		return false, r
	}
	r.seed, r.saw = string(text[found[2]:found[3]]), string(text[found[4]:found[5]])
	if what := broken.FindSubmatch(text[found[1]:]); what != nil {
		r.saw = string(what[1]) + string(what[2])
	}
	return true, r
}

// failed finds the first test that failed.
var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// runOwn runs the tests of the mutated package: what needs too much bad luck for the simulation is held there.
func (m Mutation) runOwn(dir string) (caught bool, r row) {
	begin := time.Now()
	pkg := path.Dir(m.File)
	cmd := exec.Command("go", "test", "-count", "1", "-timeout", "5m", "./"+pkg)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	r.took = time.Since(begin)
	if found := failed.FindSubmatch(text); err != nil && found != nil {
		r.by = fmt.Sprintf("`%s` of `%s`", found[1], pkg)
		return true, r
	}
	r.saw = string(text[max(0, len(text)-1000):])
	return false, r
}

// row is what came of a mutation.
type row struct {
	bug, by, seed, saw string
	took               time.Duration // without compiling, as far as the simulation caught it
}

// folder is where the simulation keeps the files of a run, different each time.
var folder = regexp.MustCompile(`/\S*/run-\d+/`)

// String is the row of a table in Markdown.
func (r row) String() string {
	saw := []rune(folder.ReplaceAllString(r.saw, ""))
	for i, c := range saw {
		if !unicode.IsPrint(c) || c == '|' {
			saw[i] = '·' // it would end the line or the cell, or not be seen
		}
	}
	if len(saw) > 120 {
		saw = append(saw[:120], '…')
	}
	return fmt.Sprintf("| `%s` | %s | %s | %.1f | %s |", r.bug, r.by, r.seed, r.took.Seconds(), string(saw))
}

// table is for docs/testing.md.
func table(rows []row) string {
	var b strings.Builder
	b.WriteString("\n| bug | caught by | seed | seconds | what was seen first |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintln(&b, r)
	}
	return b.String()
}
