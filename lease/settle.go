package lease

import "time"

// settleStep is the drop of the time left that is worth a log entry when leadership is handed over:
// the resolution of a checkpoint.
const settleStep = time.Second

// Settle passes to propose, in batches of at most [MaxCheckpoints], every lease of which the log has more time left
// than there is, coarse steps or not. The server calls it before it hands leadership to another member, and hands over when
// the proposals are applied; so a planned change of leader adds no more to a lease than it takes. Leases that a client
// keeps alive are passed over as by [Expirer.Checkpoints], since each of them would cost another log entry at its next
// renewal. propose is called with the Expirer locked; see [Duties.Checkpoint] for what it may do.
func (e *Expirer) Settle(propose func(term uint64, cs []Checkpoint)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.primary {
		return
	}
	now := e.now()
	var due []Checkpoint
	for _, it := range e.items {
		left := it.deadline - now
		aged := it.logged - left
		if left <= 0 || aged < settleStep || it.renewed && it.logged == it.ttl && it.checkpointDue() > now {
			continue
		}
		due = append(due, e.handOut(it, left))
		if len(due) == MaxCheckpoints {
			propose(e.term, due)
			due = nil
		}
	}
	if len(due) > 0 {
		propose(e.term, due)
	}
}

// handOut makes the checkpoint of a lease that has left to live. The mutex is held.
func (e *Expirer) handOut(it *item, left time.Duration) Checkpoint {
	remaining := int64((left + time.Second - 1) / time.Second)
	it.logged = seconds(remaining)
	it.handed++
	if it.ttl >= minCheckpointTTL {
		e.checkpoints.put(it, it.checkpointDue())
	}
	return Checkpoint{ID: it.id, Remaining: remaining}
}
