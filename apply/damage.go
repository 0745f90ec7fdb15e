package apply

import (
	"fmt"

	"github.com/coordd/coordd/mvcc"
)

// damaged ends the state machine because of err: see [mvcc.Damage].
func damaged(err error) {
	panic(mvcc.Damage{Err: fmt.Errorf("the data file is damaged: %w; remove this member and add it again with an empty data directory", err)})
}

// contain is deferred around the work on an entry. It keeps the panic of a damaged file from ending the process: the
// machine takes no more entries and commits nothing, and says why ([Machine.Err]).
func (m *Machine) contain() {
	switch p := recover().(type) {
	case nil:
	case mvcc.Damage:
		m.broken = fmt.Errorf("apply: %w", p)
		m.KV.Abandon()
	default:
		panic(p)
	}
}

// Err is why the machine can go on no longer: a damaged data file, or one that cannot be written; nil while all is
// well. The apply loop asks after each entry, before it publishes anything. The entry at fault may be half applied
// in memory; none of it reaches the file, and the log has it.
func (m *Machine) Err() error {
	if m.broken != nil {
		return m.broken
	}
	return m.Backend.Err()
}
