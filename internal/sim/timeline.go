package sim

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"
)

// timeline is what happened, in virtual time.
type timeline struct {
	begun time.Time
	mu    sync.Mutex // guards lines
	lines []moment
}

type moment struct {
	at        time.Duration
	who, what string
}

// add notes what happened now.
func (t *timeline) add(who, format string, args ...any) {
	what := format
	if len(args) > 0 {
		what = fmt.Sprintf(format, args...)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, moment{time.Since(t.begun), who, what})
}

// between is the part of the timeline within some time, at most so many lines of its end.
func (t *timeline) between(from, to time.Duration, most int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, m := range t.lines {
		if m.at >= from && m.at <= to {
			out = append(out, fmt.Sprintf("%9.4fs %-7s %s\n", m.at.Seconds(), m.who, m.what))
		}
	}
	return strings.Join(out[max(0, len(out)-most):], "")
}

// logCore takes a member's log into the timeline.
type logCore struct {
	t      *timeline
	who    string
	onLine func(message string) // told of each line
	fields []zapcore.Field
}

var _ zapcore.Core = (*logCore)(nil)

// Enabled leaves out what is for debugging.
func (c *logCore) Enabled(l zapcore.Level) bool { return l >= zapcore.InfoLevel }

// With adds fields.
func (c *logCore) With(f []zapcore.Field) zapcore.Core {
	return &logCore{c.t, c.who, c.onLine, append(c.fields[:len(c.fields):len(c.fields)], f...)}
}

// Check adds the core to entries it takes.
func (c *logCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write notes an entry.
func (c *logCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range c.fields {
		f.AddTo(enc)
	}
	for _, f := range fields {
		f.AddTo(enc)
	}
	what := e.Message
	if len(enc.Fields) > 0 {
		what += fmt.Sprint(" ", enc.Fields)
	}
	c.t.add(c.who, "%s", what)
	c.onLine(e.Message)
	return nil
}

// Sync does nothing.
func (c *logCore) Sync() error { return nil }
