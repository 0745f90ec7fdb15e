// Package schedule runs jobs one after another on a goroutine of its own, in the order in which
// they were handed in. It is for work that must keep its order but must not hold up the caller:
// applying, compacting.
//
// # Behaviour
//
//   - The queue is bounded. [FIFO.Schedule] blocks while it is full, until there is room, the caller's context
//     ends, or the queue is stopped. So a slow consumer slows its producer; memory does not grow.
//   - [FIFO.Stop] cancels the context that the running job was given, waits for that job to return, and
//     drops the jobs that have not begun. Dropped jobs are never called: who needs every job done waits
//     with [FIFO.WaitFinish] first.
//   - A job that panics ends the process, like a panic on any goroutine. The queue does not recover: a panic
//     here means a broken invariant, and the jobs behind it would run on a state that nobody understands.
//
// # Goroutines and locks
//
// [New] starts the one goroutine, owned by the FIFO; it blocks on the queue's condition or inside a
// job, and ends with Stop. One mutex guards the queue and the counters; it is never held while a
// job runs.
package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrStopped is returned for a job handed to a stopped FIFO, and to those who waited for more jobs
// than were finished when it stopped.
var ErrStopped = errors.New("schedule: the queue is stopped")

// Job is one piece of work.
type Job struct {
	// Name says what the job does, in a word or two; for logs and debugging.
	Name string
	// Do does it. Its context ends when the FIFO is stopped; a long job should heed it. Do must not
	// call Stop or WaitFinish of its own FIFO, which wait for it.
	Do func(ctx context.Context)
}

// FIFO is a queue of jobs with one worker. Make one with [New] and end it with [FIFO.Stop]. All
// methods may be called from any goroutine.
type FIFO struct {
	slots  chan struct{} // one token for each job in the queue; full means the queue is full
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when the worker has ended

	mu       sync.Mutex
	changed  sync.Cond // of mu: a job was queued or finished, or the queue was stopped
	queue    []Job     // guarded by mu; accepted, not begun
	running  string    // guarded by mu; name of the job being run, "" when idle
	busy     bool      // guarded by mu; a job is being run
	finished int       // guarded by mu; jobs that have returned
	stopped  bool      // guarded by mu
}

// New makes a FIFO that holds up to capacity jobs besides the running one, and starts its goroutine. A
// capacity below 1 is taken as 1.
func New(capacity int) *FIFO {
	f := &FIFO{slots: make(chan struct{}, max(capacity, 1)), done: make(chan struct{})}
	f.changed.L = &f.mu
	f.ctx, f.cancel = context.WithCancel(context.Background())
	go f.work()
	return f
}

// Schedule hands in a job behind all others. It blocks while the queue is full. Nil means that the
// job will run unless the queue is stopped first; otherwise it will not run, and the error is
// [ErrStopped] or says that ctx ended.
func (f *FIFO) Schedule(ctx context.Context, j Job) error {
	select {
	case f.slots <- struct{}{}:
	case <-f.ctx.Done():
		return ErrStopped
	case <-ctx.Done():
		return fmt.Errorf("schedule: job %q found the queue full (%d jobs, running %q): %w", j.Name, cap(f.slots), f.Running(), ctx.Err())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return ErrStopped
	}
	f.queue = append(f.queue, j)
	f.changed.Broadcast()
	return nil
}

// Pending counts the jobs that were accepted and have not returned, the running one included. Jobs
// dropped by Stop are not pending.
func (f *FIFO) Pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.queue)
	if f.busy {
		n++
	}
	return n
}

// Finished counts the jobs that have returned since New.
func (f *FIFO) Finished() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.finished
}

// Running names the job being run; "" while idle.
func (f *FIFO) Running() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running
}

// WaitFinish blocks until n jobs have returned since New. It returns [ErrStopped] if the queue was
// stopped before it came to that.
func (f *FIFO) WaitFinish(n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.finished < n {
		if f.stopped && !f.busy {
			return ErrStopped
		}
		f.changed.Wait()
	}
	return nil
}

// Stop ends the queue: the running job's context is cancelled, queued jobs are dropped, and Stop
// returns when the running job has. Stopping twice, or at once from several goroutines, is fine;
// each call waits.
func (f *FIFO) Stop() {
	f.mu.Lock()
	f.stopped = true
	f.queue = nil
	f.changed.Broadcast()
	f.mu.Unlock()
	f.cancel()
	<-f.done
}

// work is the goroutine: it runs jobs until the queue is stopped.
func (f *FIFO) work() {
	defer close(f.done)
	for {
		j, ok := f.next()
		if !ok {
			return
		}
		j.Do(f.ctx)
		f.finish()
	}
}

// next blocks for the oldest job and marks it running. False when the queue is stopped.
func (f *FIFO) next() (Job, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) == 0 && !f.stopped {
		f.changed.Wait()
	}
	if f.stopped {
		return Job{}, false
	}
	j := f.queue[0]
	f.queue[0] = Job{} // let go of what the job holds; append moves the slice on to a new array in time
	f.queue = f.queue[1:]
	f.running, f.busy = j.Name, true
	<-f.slots
	return j, true
}

// finish marks the running job as returned.
func (f *FIFO) finish() {
	f.mu.Lock()
	f.running, f.busy = "", false
	f.finished++
	f.changed.Broadcast()
	f.mu.Unlock()
}
