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
			sim := build(t, dir)
			caught, took, how := run(sim)
			if caught {
				t.Logf("caught by the simulation in %.1f s: %s", took.Seconds(), how)
				return
			}
			t.Logf("not caught by the simulation in %.0f s: %s", took.Seconds(), how)
			caught, took, how = m.runOwn(dir)
			if !caught {
				t.Errorf("not caught by the tests of its package either: %s", how)
				return
			}
			t.Logf("caught by the tests of its package in %.1f s: %s", took.Seconds(), how)
		})
	}
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

// broken finds what a failed simulation says first.
var broken = regexp.MustCompile(`(?m)seed (\d+), \d+ members.*\n\s*\n\s*broken:\n\s*(.*)$|^(panic: .*)$`)

// run runs the simulation until a seed fails, and tells what it found.
func run(sim string) (caught bool, took time.Duration, how string) {
	begin := time.Now()
	limit := fmt.Sprintf("%ds", *seconds)
	cmd := exec.Command(sim, "-test.run", "^TestSeeds$", "-test.v", "-test.timeout", fmt.Sprintf("%ds", *seconds+300),
		"-sim.seed", "1", "-sim.n", fmt.Sprint(*seeds), "-sim.budget", limit, "-sim.shrink", "0")
	cmd.Dir = filepath.Dir(sim)
	text, err := cmd.CombinedOutput()
	took = time.Since(begin)
	if err == nil {
		return false, took, fmt.Sprintf("%d seeds passed as well", bytes.Count(text, []byte("PASS: TestSeeds/all/")))
	}
	if found := broken.FindSubmatch(text); found != nil && !bytes.HasPrefix(found[3], []byte("panic: test timed out")) {
		return true, took, fmt.Sprintf("seed %s: %s", found[1], strings.TrimSpace(string(found[2])+string(found[3])))
	}
	return false, took, "failed without saying what is broken: " + string(text[max(0, len(text)-2000):])
}

// failed finds the first test that failed.
var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// runOwn runs the tests of the mutated package: what needs too much bad luck for the simulation is held there.
func (m Mutation) runOwn(dir string) (caught bool, took time.Duration, how string) {
	begin := time.Now()
	cmd := exec.Command("go", "test", "-count", "1", "-timeout", "5m", "./"+path.Dir(m.File))
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	took = time.Since(begin)
	if found := failed.FindSubmatch(text); err != nil && found != nil {
		return true, took, string(found[1])
	}
	return false, took, string(text[max(0, len(text)-1000):])
}
