package raftnode

import (
	"fmt"

	"go.uber.org/zap"
)

// raftFailure is what raft's logger panics with when raft finds that its own
// state cannot be true, for example that a leader's commit index is beyond a
// log that was stored. Run recovers it and returns it as its error, so that
// the process that embeds the member lives on.
type raftFailure struct{ text string }

func (f raftFailure) Error() string {
	return "raftnode: raft cannot go on, this member's log contradicts the cluster: " + f.text +
		"; remove the member and add it anew with an empty data directory"
}

// raftLogger is raft.Logger on zap. raft tells routine matters at level info,
// such as each vote; they are debug here. Leader changes are logged by the Node.
type raftLogger struct{ log *zap.SugaredLogger }

func (l raftLogger) Debug(v ...any)                 { l.log.Debug(v...) }
func (l raftLogger) Debugf(format string, v ...any) { l.log.Debugf(format, v...) }
func (l raftLogger) Info(v ...any)                  { l.log.Debug(v...) }
func (l raftLogger) Infof(format string, v ...any)  { l.log.Debugf(format, v...) }

func (l raftLogger) Warning(v ...any)                 { l.log.Warn(v...) }
func (l raftLogger) Warningf(format string, v ...any) { l.log.Warnf(format, v...) }
func (l raftLogger) Error(v ...any)                   { l.log.Error(v...) }
func (l raftLogger) Errorf(format string, v ...any)   { l.log.Errorf(format, v...) }

func (l raftLogger) Fatal(v ...any)                 { panic(raftFailure{fmt.Sprint(v...)}) }
func (l raftLogger) Fatalf(format string, v ...any) { panic(raftFailure{fmt.Sprintf(format, v...)}) }
func (l raftLogger) Panic(v ...any)                 { panic(raftFailure{fmt.Sprint(v...)}) }
func (l raftLogger) Panicf(format string, v ...any) { panic(raftFailure{fmt.Sprintf(format, v...)}) }
