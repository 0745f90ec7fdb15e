package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// series runs seeds, each in a process of its own, some at once, and adds up what came of them. A process that dies or does not
// end takes nothing with it but its seed, whose failure it is.
type series struct {
	first   uint64
	count   int           // seeds at most
	budget  time.Duration // begin no further seed after it; 0 = no limit
	goOn    bool          // after a failure, which else stops what runs
	atOnce  int
	limit   time.Duration // a process ends itself after it; if it cannot, it is killed soon after
	process func(seed uint64, dir string) *exec.Cmd
	begin   time.Time
	stop    context.CancelFunc // ends all that runs

	mu     sync.Mutex // guards all below
	out    io.Writer
	given  int
	done   int
	broken []uint64
	unsure []uint64 // porcupine did not come to an end; all else held
	sum    Stats
}

// counted is what a process leaves in its folder, in a file called countedName.
type counted struct {
	Stats  Stats
	Broken bool
	Unsure bool
}

const countedName = "counted.json"

// grace is what a process has, after its limit, to say where it hangs.
const grace = 30 * time.Second

// run runs all seeds and tells whether there was one, all have passed, and ctx has not ended. The last line it writes is the sum.
func (s *series) run(ctx context.Context) bool {
	s.begin = time.Now()
	work, stop := context.WithCancel(ctx)
	defer stop()
	s.stop = stop
	s.say("seeds from %d on, %d at most, %d at once", s.first, s.count, s.atOnce)
	var wg sync.WaitGroup
	for range s.atOnce {
		wg.Go(func() {
			for seed, ok := s.next(work); ok; seed, ok = s.next(work) {
				s.one(work, seed)
			}
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	s.report(ended)
	return s.end(ctx)
}

// report writes a line about progress each minute.
func (s *series) report(ended <-chan struct{}) {
	minute := time.NewTicker(time.Minute)
	defer minute.Stop()
	for {
		select {
		case <-ended:
			return
		case <-minute.C:
			s.say("%s", s.progress(time.Since(s.begin)))
		}
	}
}

// progress tells somebody who waits how far it is, and how long it will take at this rate.
func (s *series) progress(took time.Duration) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf("after %v: %d of %d seeds, %d broken, %.1f seeds/s", took.Round(time.Second), s.done, s.count, len(s.broken), float64(s.done)/took.Seconds())
	if s.done == 0 {
		return line
	}
	left := took / time.Duration(s.done) * time.Duration(s.count-s.done)
	if s.budget > 0 {
		left = max(0, min(left, s.budget-took))
	}
	return fmt.Sprintf("%s, about %v left", line, left.Round(time.Second))
}

// next is a seed to run; ok is false when there is none, or no time left for one.
func (s *series) next(ctx context.Context) (seed uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := s.budget > 0 && time.Since(s.begin) >= s.budget
	if s.given >= s.count || late || ctx.Err() != nil {
		return 0, false
	}
	s.given++
	return s.first + uint64(s.given-1), true
}

// one runs a seed to its end, or until ctx ends.
func (s *series) one(ctx context.Context, seed uint64) {
	dir, remove, err := TempDir()
	if err != nil {
		s.judge(seed, counted{}, nil, err)
		return
	}
	defer remove()
	text, err := runProcess(ctx, s.limit+grace, s.process(seed, dir))
	c, readErr := readCounted(dir)
	if ctx.Err() != nil && !c.Broken {
		return // it was stopped, which is no failure, and it may be too early to call it passed
	}
	if err == nil {
		err = readErr // it has passed without having done anything
	}
	s.judge(seed, c, text, err)
}

func readCounted(dir string) (c counted, err error) {
	data, err := os.ReadFile(filepath.Join(dir, countedName))
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(data, &c)
}

// runProcess runs a process until it ends, which it must do within limit, or ctx does, and returns all it has written.
func runProcess(ctx context.Context, limit time.Duration, cmd *exec.Cmd) (_ []byte, err error) {
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = errors.Join(ctx.Err(), cmd.Process.Kill(), <-ended)
	case <-late.C:
		err = errors.Join(fmt.Errorf("no end after %v", limit), cmd.Process.Kill(), <-ended)
	}
	return text.Bytes(), err
}

// judge counts what came of a seed, and reports it if it failed: with its process, or because of what that has found.
func (s *series) judge(seed uint64, c counted, text []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done++
	s.sum.Add(c.Stats)
	if c.Unsure {
		s.unsure = append(s.unsure, seed)
	}
	if err != nil {
		s.broken = append(s.broken, seed)
		if !s.goOn {
			s.stop()
		}
		fmt.Fprintf(s.out, "seed %d failed: %v\n%s\nrun it again, with the same SIMFLAGS: make sim SEED=%d N=1\n", seed, err, bytes.TrimSpace(text), seed)
	}
}

// end writes the sum. What an interrupt has stopped has not passed.
func (s *series) end(ctx context.Context) (passed bool) {
	if ctx.Err() != nil {
		s.say("interrupted")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "counted: %+v\n", s.sum)
	if len(s.unsure) > 0 {
		fmt.Fprintf(s.out, "porcupine gave up on seeds %v; the ledger holds\n", s.unsure)
	}
	took := time.Since(s.begin)
	line := fmt.Sprintf("%d seeds from %d on in %v (%.1f/s): %.2f virtual hours, %d faults, %d operations, %d starts, %d broken", s.done, s.first,
		took.Round(time.Second), float64(s.done)/took.Seconds(), s.sum.Virtual.Hours(), s.sum.Faults, s.sum.Ops, s.sum.Starts, len(s.broken))
	if len(s.broken) > 0 {
		line = fmt.Sprint(line, ": ", s.broken)
	}
	fmt.Fprintln(s.out, line)
	return s.done > 0 && len(s.broken) == 0 && ctx.Err() == nil
}

func (s *series) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}
