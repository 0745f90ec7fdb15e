package mvcc

// Damage is what a write transaction panics with when a row that it depends on cannot be read: the file is damaged,
// and a member that went on would come to differ from the others. Package apply, which runs the transactions, uses
// it for rows that it cannot decode, recovers it, and ends the state machine with its error.
type Damage struct{ Err error }

// Error is that of Err, which names the row and the next step.
func (d Damage) Error() string { return d.Err.Error() }

// Unwrap gives Err.
func (d Damage) Unwrap() error { return d.Err }

// Abandon lets go of what the open transaction, if there is one, holds. What it has changed stays in memory, so
// the store must not be published or committed any more, only closed. Writer only.
func (s *Store) Abandon() {
	if s.txn.open {
		s.txn.End()
	}
}
