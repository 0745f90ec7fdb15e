package sim

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// spoiltSeries runs three seeds, one at a time and a few seconds of faults; the process of the second gets further arguments.
func spoiltSeries(out *bytes.Buffer, args ...string) *series {
	return &series{first: 11, count: 3, atOnce: 1, limit: time.Minute, out: out, process: func(seed uint64, dir string) *exec.Cmd {
		cmd := process(seed, dir)
		cmd.Args = append(cmd.Args, "-sim.length=15s", "-sim.shrink=1")
		if seed == 12 {
			cmd.Args = append(cmd.Args, args...)
		}
		return cmd
	}}
}

// lastLine is the last line written, and must be the sum.
func lastLine(t *testing.T, out *bytes.Buffer) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	last := lines[len(lines)-1]
	if !strings.Contains(last, " seeds from 11 on in ") {
		t.Errorf("no sum at the end of:\n%s", out)
	}
	return last
}

// TestSeriesReports has the process of one seed find something, die, hang, or do nothing: it must be reported with the seed and with
// what the process has said, and no further seed begins.
func TestSeriesReports(t *testing.T) {
	for name, c := range map[string]struct {
		args, says []string
	}{
		"broken":       {[]string{"-sim.spoil=break"}, []string{"seed 12 failed: exit status 1\n", "seed 12, ", "0.0000s spoilt", " faults break it, found in 1 runs", "seed-12-run.html"}},
		"dies":         {[]string{"-sim.spoil=die"}, []string{"seed 12 failed: exit status 2\n", "panic: spoilt"}},
		"hangs":        {[]string{"-sim.spoil=hang", "-test.timeout=2s"}, []string{"seed 12 failed: exit status 2\n", "panic: test timed out", "runSeed"}},
		"does not run": {[]string{"-test.run=^$"}, []string{"seed 12 failed: open ", "testing: warning: no tests to run"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir()) // for the pages
			var out bytes.Buffer
			if spoiltSeries(&out, c.args...).run(t.Context()) {
				t.Error("it has passed")
			}
			for _, text := range append(c.says, "make sim SEED=12 N=1\n") {
				if !strings.Contains(out.String(), text) {
					t.Errorf("it does not say %q", text)
				}
			}
			if last := lastLine(t, &out); !strings.HasPrefix(last, "2 seeds ") || !strings.HasSuffix(last, ", 1 broken: [12]") {
				t.Errorf("the sum: %s", last)
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
	}
}

// TestSeriesGoesOn: with goOn a failure ends nothing, and the sum has what the other seeds did.
func TestSeriesGoesOn(t *testing.T) {
	var out bytes.Buffer
	s := spoiltSeries(&out, "-sim.spoil=die")
	s.goOn, s.atOnce = true, 2
	passed := s.run(t.Context())
	last := lastLine(t, &out)
	if passed || !strings.HasPrefix(last, "3 seeds ") || !strings.HasSuffix(last, ", 1 broken: [12]") {
		t.Errorf("passed: %v, the sum: %s", passed, last)
	}
	if s.sum.Runs != 2 || s.sum.Virtual < 2*15*time.Second || s.sum.Ops == 0 {
		t.Errorf("two runs add up to %+v", s.sum)
	}
}

// TestSeriesIsInterrupted while a process hangs: that is stopped, the series has not passed, and the sum is still written.
func TestSeriesIsInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	var out bytes.Buffer
	s := spoiltSeries(&out, "-sim.spoil=hang", "-test.timeout=0")
	begin := s.process
	s.process = func(seed uint64, dir string) *exec.Cmd {
		if seed == 12 {
			interrupt()
		}
		return begin(seed, dir)
	}
	if s.run(ctx) {
		t.Error("it has passed")
	}
	if last := lastLine(t, &out); !strings.HasPrefix(last, "1 seeds ") || !strings.HasSuffix(last, ", 0 broken") {
		t.Errorf("the sum: %s", last)
	}
}

// TestSeriesKillsWhatHangs where a process does not even keep its own limit.
func TestSeriesKillsWhatHangs(t *testing.T) {
	cmd := process(1, t.TempDir())
	cmd.Args = append(cmd.Args, "-sim.spoil=hang", "-test.timeout=0")
	if _, err := runProcess(t.Context(), 100*time.Millisecond, cmd); err == nil || !strings.Contains(err.Error(), "no end after 100ms\nsignal: killed") {
		t.Errorf("it ended with: %v", err)
	}
}

// TestSeriesTakesItsTime: no seed begins after the budget, and a series of no seed has not passed.
func TestSeriesTakesItsTime(t *testing.T) {
	var out bytes.Buffer
	s := spoiltSeries(&out)
	s.budget = time.Nanosecond
	if s.run(t.Context()) {
		t.Error("it has passed")
	}
	if last := lastLine(t, &out); !strings.HasPrefix(last, "0 seeds ") {
		t.Errorf("the sum: %s", last)
	}
}

func TestProgress(t *testing.T) {
	s := &series{count: 10000, done: 480, broken: []uint64{7}}
	if got, want := s.progress(2*time.Minute), "after 2m0s: 480 of 10000 seeds, 1 broken, 4.0 seeds/s, about 39m40s left"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	s.budget = 10 * time.Minute
	if got := s.progress(2 * time.Minute); !strings.HasSuffix(got, ", about 8m0s left") {
		t.Error(got)
	}
	s.done = 0
	if got, want := s.progress(2*time.Minute), "after 2m0s: 0 of 10000 seeds, 1 broken, 0.0 seeds/s"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
