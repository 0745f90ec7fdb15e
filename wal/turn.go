package wal

// turn is a mutex for what is held while the disk works: who waits for it waits on a channel. Virtual time
// (testing/synctest) goes on meanwhile, so that a simulation can make disks slow; for a sync.Mutex it would stand still.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// Lock waits until nobody has it, and takes it.
func (t turn) Lock() { t <- struct{}{} }

// Unlock gives it to the next who waits.
func (t turn) Unlock() { <-t }
