package lease

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// world is a cluster reduced to what matters for leases: a log, one table, the leader's expirer,
// proposals on their way to the log, and a client that believes what it is told.
type world struct {
	t      *rapid.T
	table  *Table
	e      *Expirer
	term   uint64
	queue  []proposal // of the present leader, in order
	ttl    map[ID]time.Duration
	told   map[ID]time.Time // until when the client believes it holds the lease
	nextID ID
}

type proposal struct {
	apply func()
	ack   func() // what a client hears when it has been applied; nil for nobody
}

func (w *world) grant() {
	w.nextID++
	id, ttl := w.nextID, rapid.Int64Range(20, 120).Draw(w.t, "ttl")
	w.queue = append(w.queue, proposal{
		apply: func() {
			c, err := w.table.Grant(id, ttl)
			if err != nil {
				w.t.Fatal(err)
			}
			w.e.Observe(c)
			w.ttl[id] = time.Duration(ttl) * time.Second
		},
		ack: func() { w.told[id] = time.Now().Add(w.ttl[id]) },
	})
}

func (w *world) renew(id ID) {
	sent := time.Now()
	r, err := w.e.Renew(id)
	if err != nil {
		return
	}
	ack := func() { // a client may count from when it asked at the earliest
		if until := sent.Add(w.ttl[id]); until.After(w.told[id]) {
			w.told[id] = until
		}
	}
	if !r.Reset {
		ack()
		return
	}
	w.queue = append(w.queue, proposal{apply: func() { w.checkpoint(id, 0) }, ack: ack})
}

func (w *world) checkpoint(id ID, remaining int64) {
	if c, ok := w.table.Checkpoint(id, remaining); ok {
		w.e.Observe(c)
	}
}

// scan does what Run does at this moment.
func (w *world) scan() {
	for _, id := range w.e.Expired(MaxRevokes).IDs {
		if until := w.told[id]; time.Now().Before(until) {
			w.t.Fatalf("lease %d with TTL %v is expired %v early in term %d", id, w.ttl[id], time.Until(until), w.term)
		}
		w.queue = append(w.queue, proposal{apply: func() {
			if c, err := w.table.Revoke(id); err == nil {
				w.e.Observe(c)
				delete(w.told, id)
			}
		}})
	}
	w.e.Checkpoints(MaxCheckpoints, w.propose)
}

// propose queues checkpoints.
func (w *world) propose(_ uint64, cs []Checkpoint) {
	w.queue = append(w.queue, proposal{apply: func() {
		for _, c := range cs {
			w.checkpoint(c.ID, c.Remaining)
		}
	}})
}

// commit applies the oldest proposals; each may be lost on the way, or its answer may.
func (w *world) commit(n int) {
	for ; n > 0 && len(w.queue) > 0; n-- {
		p := w.queue[0]
		w.queue = w.queue[1:]
		switch rapid.SampledFrom([]string{"ok", "ok", "ok", "ok", "ok", "ok", "lost", "silent"}).Draw(w.t, "fate") {
		case "ok":
			p.apply()
			if p.ack != nil {
				p.ack()
			}
		case "silent":
			p.apply()
		}
	}
}

// lead makes another member the leader: some of what is queued gets into the log, the rest is
// fenced off by its term.
func (w *world) lead() {
	w.commit(rapid.IntRange(0, len(w.queue)).Draw(w.t, "survivors"))
	w.queue = nil
	w.term++
	w.e.Demote()
	w.e = NewExpirer()
	w.e.Promote(w.term, w.table, rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(w.t, "extend"))
}

// bubbleTB hides from rapid that a test has a deadline, which may not be asked for in a bubble.
type bubbleTB struct{ rapid.TB }

func TestNeverEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := openTable(t)
		rapid.Check(bubbleTB{t}, func(rt *rapid.T) {
			for _, l := range table.List() {
				if _, err := table.Revoke(l.ID); err != nil {
					rt.Fatal(err)
				}
			}
			w := &world{t: rt, table: table, e: NewExpirer(), ttl: make(map[ID]time.Duration), told: make(map[ID]time.Time)}
			w.lead()
			steps := []string{"renew", "renew", "commit", "commit", "scan", "scan", "time", "time", "lead", "settle"}
			for i := range 1000 {
				if i%60 == 0 {
					w.grant()
				}
				switch rapid.SampledFrom(steps).Draw(rt, "step") {
				case "renew":
					w.renew(w.nextID)
				case "commit":
					w.commit(rapid.IntRange(1, 3).Draw(rt, "n"))
				case "scan":
					w.scan()
				case "time":
					pass(time.Duration(rapid.IntRange(1, 25_000).Draw(rt, "ms")) * time.Millisecond)
				case "lead":
					w.lead()
				case "settle":
					w.e.Settle(w.propose)
				}
			}
			w.settle()
		})
	})
}

// settle lets time pass under the present leader without loss: every lease must end, no later
// than one TTL and the extension from now.
func (w *world) settle() {
	w.queue = nil
	w.lead()
	pass(122 * time.Second)
	for _, id := range w.e.Expired(MaxRevokes).IDs {
		if _, err := w.table.Revoke(id); err != nil {
			w.t.Fatal(err)
		}
	}
	if n := w.table.Len(); n != 0 {
		w.t.Fatalf("%d leases never end", n)
	}
	if _, err := w.e.Renew(0); errors.Is(err, ErrExpired) {
		w.t.Fatal("lease 0 exists")
	}
}
