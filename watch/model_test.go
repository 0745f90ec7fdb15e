package watch

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/kvpb"
)

// change is an event as the model knows it.
type change struct {
	rev        int64
	key, value string
	del        bool
	prev       string // value before the transaction …
	hasPrev    bool   // … if there was one and the event has to show it
}

// model is the plain truth: all events in a list.
type model struct {
	pairs     map[string]string
	events    []change
	rev       int64
	published int64
	compacted int64
}

// apply performs a transaction in which no key is touched twice, and returns the operations that count.
func (m *model) apply(ops []op) []op {
	touched := map[string]bool{}
	before := map[string]string{}
	for k, v := range m.pairs {
		before[k] = v
	}
	rev := m.rev + 1
	var done []op
	add := func(key, value string, del bool) {
		touched[key] = true
		prev, had := before[key]
		m.events = append(m.events, change{rev, key, value, del, prev, had})
		m.rev = rev
		if del {
			delete(m.pairs, key)
		} else {
			m.pairs[key] = value
		}
	}
	for _, o := range ops {
		if !o.del {
			if !touched[o.key] {
				add(o.key, o.value, false)
				done = append(done, o)
			}
			continue
		}
		var keys []string
		again := false
		for k := range m.pairs {
			if within(k, o.key, o.end) {
				keys = append(keys, k)
				again = again || touched[k]
			}
		}
		if again {
			continue
		}
		slices.Sort(keys)
		for _, k := range keys {
			add(k, "", true)
		}
		done = append(done, o)
	}
	return done
}

// within is the API's rule of key and range end.
func within(k, key, end string) bool {
	if key == "" {
		key = "\x00"
	}
	switch end {
	case "":
		return k == key
	case "\x00":
		return k >= key
	}
	return k >= key && k < end
}

// reader is a watcher as its client sees it.
type reader struct {
	o         CreateOptions
	id        int64
	start     int64
	at        int // events before this one of the model have been delivered or do not concern it
	fragments bool
	told      int64 // revision of the last progress notice
	dead      bool
}

// next returns the place of the reader's next event at or before revision rev, or -1.
func (r *reader) next(m *model, rev int64) int {
	for ; r.at < len(m.events); r.at++ {
		e := m.events[r.at]
		if e.rev < r.start || !within(e.key, string(r.o.Key), string(r.o.End)) || e.del && r.o.NoDelete || !e.del && r.o.NoPut {
			continue
		}
		if e.rev > rev {
			return -1
		}
		return r.at
	}
	return -1
}

// client is a stream as its client sees it.
type client struct {
	m       *model
	s       *Stream
	limit   int // FragmentBytes
	owed    []Response
	asked   map[int64]*reader // by the requests sent
	active  map[int64]*reader // by the answers received
	created []*reader         // not yet answered
}

// see checks one response against the truth.
func (c *client) see(r *Response) error {
	if r.Revision > c.m.published {
		return fmt.Errorf("%+v: header revision above the published %d", r, c.m.published)
	}
	if r.CompactRevision == 0 && (r.Created || r.Canceled || r.WatchID == NoID) {
		return c.seeAnswer(r)
	}
	w := c.active[r.WatchID]
	switch {
	case w == nil:
		return fmt.Errorf("%+v: there is no such watcher", r)
	case w.dead:
		return fmt.Errorf("%+v: the watcher was cancelled by compaction", r)
	case w.fragments && r.Len() == 0:
		return fmt.Errorf("%+v: breaks into fragments", r)
	case r.CompactRevision != 0:
		if !r.Canceled || r.Revision != 0 || r.Len() > 0 || w.start >= r.CompactRevision || r.CompactRevision > c.m.compacted {
			return fmt.Errorf("%+v: wrong end by compaction of a watcher from %d", r, w.start)
		}
		w.dead = true
		return nil
	case r.Progress():
		w.told = r.Revision
		return c.seeProgress(w, r.Revision)
	}
	return c.seeEvents(w, r)
}

func (c *client) seeAnswer(r *Response) error {
	if len(c.owed) == 0 {
		return fmt.Errorf("%+v: not asked for", r)
	}
	want := c.owed[0]
	c.owed = c.owed[1:]
	if r.WatchID != want.WatchID || r.Revision != want.Revision || r.Created != want.Created || r.Canceled != want.Canceled ||
		r.Reason != want.Reason || r.Len() != 0 {
		return fmt.Errorf("answer %+v, want %+v", r, want)
	}
	switch {
	case r.Created && !r.Canceled:
		c.active[r.WatchID], c.created = c.created[0], c.created[1:]
	case r.Canceled && !r.Created:
		delete(c.active, r.WatchID)
	case r.Progress():
		for _, w := range c.active {
			if w.dead {
				return fmt.Errorf("%+v: told of progress though a watcher is cancelled by compaction", r)
			}
			if err := c.seeProgress(w, r.Revision); err != nil {
				return err
			}
		}
	}
	return nil
}

// seeProgress checks that all events up to rev have been delivered.
func (c *client) seeProgress(w *reader, rev int64) error {
	if i := w.next(c.m, rev); i >= 0 {
		return fmt.Errorf("watcher %d is told of revision %d before %+v", w.id, rev, c.m.events[i])
	}
	if w.start > rev+1 {
		return fmt.Errorf("watcher %d from %d is told of revision %d", w.id, w.start, rev)
	}
	return nil
}

func (c *client) seeEvents(w *reader, r *Response) error {
	if r.Fragment && !w.o.Fragment {
		return fmt.Errorf("%+v: fragment for a watcher that does not want them", r)
	}
	if w.o.Fragment && r.Len() > 1 && r.WireSize() >= c.limit {
		return fmt.Errorf("watcher %d: %d bytes in one response, the limit is %d", w.id, r.WireSize(), c.limit)
	}
	evs, err := r.Events()
	if err != nil {
		return err
	}
	for _, e := range evs {
		i := w.next(c.m, r.Revision)
		if i < 0 {
			return fmt.Errorf("watcher %d: %v at header revision %d is not among its events", w.id, e, r.Revision)
		}
		if err := c.same(w, e, c.m.events[i]); err != nil {
			return fmt.Errorf("watcher %d: %w", w.id, err)
		}
		w.at++
	}
	if i := w.next(c.m, c.m.published); !r.Fragment && i >= 0 && c.m.events[i].rev == c.m.events[w.last(c.m)].rev {
		return fmt.Errorf("watcher %d: revision %d is delivered in part, without %+v", w.id, c.m.events[i].rev, c.m.events[i])
	}
	w.fragments = r.Fragment
	return nil
}

// last returns the place of the event delivered last.
func (r *reader) last(m *model) int {
	for i := r.at - 1; ; i-- {
		probe := reader{o: r.o, start: r.start, at: i}
		if probe.next(m, m.rev) == i {
			return i
		}
	}
}

// same checks one event.
func (c *client) same(w *reader, got *kvpb.Event, want change) error {
	del := got.GetType() == kvpb.Event_DELETE
	if del != want.del || string(got.GetKv().GetKey()) != want.key || got.GetKv().GetModRevision() != want.rev || string(got.GetKv().GetValue()) != want.value {
		return fmt.Errorf("event %v, want %+v", got, want)
	}
	switch p := got.GetPrevKv(); {
	case p == nil:
		if w.o.PrevKV && want.hasPrev && want.rev-1 >= c.m.compacted {
			return fmt.Errorf("event %v has no previous pair, want %+v", got, want)
		}
	case !w.o.PrevKV || !want.hasPrev || string(p.GetValue()) != want.prev || string(p.GetKey()) != want.key:
		return fmt.Errorf("event %v has the wrong previous pair, want %+v", got, want)
	}
	return nil
}

// read takes what waits, without blocking.
func (c *client) read() error {
	got, err := c.s.take()
	if err != nil {
		return err
	}
	for i := range got {
		if err := c.see(&got[i]); err != nil {
			return err
		}
	}
	return nil
}

// missing describes what is still to come, "" if nothing is.
func (c *client) missing() string {
	if len(c.owed) > 0 {
		return fmt.Sprintf("answer %+v", c.owed[0])
	}
	for id, w := range c.active {
		if i := w.next(c.m, c.m.published); i >= 0 && !w.dead {
			return fmt.Sprintf("watcher %d from %d: %+v", id, w.start, c.m.events[i])
		}
	}
	return ""
}

// drain reads until everything has come.
func (c *client) drain() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for c.missing() != "" {
		got, err := c.s.Next(ctx)
		if err != nil {
			return fmt.Errorf("%w; still waiting for %s", err, c.missing())
		}
		for i := range got {
			if err := c.see(&got[i]); err != nil {
				return err
			}
		}
	}
	return c.read()
}

// create draws a watcher, asks for it and notes what must come of it.
func (c *client) create(t *rapid.T) {
	key := func(label string) string { return rapid.StringMatching("[a-d]{0,2}").Draw(t, label) }
	o := CreateOptions{
		ID:  rapid.SampledFrom([]int64{0, 0, 0, 0, 1, 5}).Draw(t, "id"),
		Key: []byte(key("key")),
		End: []byte(rapid.OneOf(rapid.Just(""), rapid.Just("\x00"), rapid.StringMatching("[a-e]{1,2}")).Draw(t, "end")),
		Start: rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(max(1, c.m.compacted-2), max(1, c.m.published)),
			rapid.Int64Range(c.m.published, c.m.published+4), rapid.Int64Range(-1, 2)).Draw(t, "start"),
		PrevKV:   rapid.Bool().Draw(t, "prev"),
		NoPut:    rapid.IntRange(0, 5).Draw(t, "no puts") == 0,
		NoDelete: rapid.IntRange(0, 5).Draw(t, "no deletes") == 0,
		Progress: rapid.Bool().Draw(t, "progress"),
		Fragment: rapid.Bool().Draw(t, "fragment"),
	}
	id, err := c.s.Create(o)
	begin := string(o.Key)
	if begin == "" {
		begin = "\x00"
	}
	bad := o.Start < 0 || c.asked[o.ID] != nil && o.ID != 0 || len(o.End) > 0 && string(o.End) != "\x00" && string(o.End) <= begin
	if bad != (err != nil) {
		t.Fatalf("create %+v: error %v, want one: %v", o, err, bad)
	}
	if err != nil {
		c.s.Refuse(err.Error())
		c.owed = append(c.owed, Response{WatchID: NoID, Revision: c.m.published, Created: true, Canceled: true, Reason: err.Error()})
		return
	}
	if c.asked[id] != nil || o.ID != 0 && id != o.ID {
		t.Fatalf("create %+v got id %d", o, id)
	}
	w := &reader{o: o, id: id, start: o.Start}
	if o.Start == 0 {
		w.start = c.m.published + 1
	}
	c.asked[id] = w
	c.created = append(c.created, w)
	c.owed = append(c.owed, Response{WatchID: id, Revision: c.m.published, Created: true})
}

func (c *client) cancel(t *rapid.T) {
	id := rapid.Int64Range(0, 6).Draw(t, "id")
	if c.s.Cancel(id) != (c.asked[id] != nil) {
		t.Fatalf("cancel of %d: there is one: %v", id, c.asked[id] != nil)
	}
	if c.asked[id] != nil {
		delete(c.asked, id)
		c.owed = append(c.owed, Response{WatchID: id, Revision: c.m.published, Canceled: true})
	}
}

// TestModel drives a hub on a real store with random transactions, batches, compactions and snapshots, and random watchers on
// streams with tiny queues that read now and then, and compares what each watcher gets with a plain list.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "watch")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		limit := rapid.IntRange(headRoom+1, 600).Draw(t, "fragment bytes")
		d := openDB(t, dir, Options{
			RingBytes:     rapid.SampledFrom([]int{1, 400, 2000, 1 << 20}).Draw(t, "ring"),
			PassBytes:     rapid.SampledFrom([]int{1, 300, 1 << 20}).Draw(t, "pass"),
			FragmentBytes: limit,
		})
		defer d.close()
		m := &model{pairs: map[string]string{}, rev: 1, published: 1, compacted: -1}
		var clients []*client
		for range rapid.IntRange(1, 4).Draw(t, "streams") {
			s := d.hub.Open(StreamOptions{QueueBytes: rapid.SampledFrom([]int{1, 200, 1000, 1 << 20}).Draw(t, "queue")})
			defer s.Close()
			clients = append(clients, &client{m: m, s: s, limit: limit, asked: map[int64]*reader{}, active: map[int64]*reader{}})
		}
		one := func(t *rapid.T) *client { return clients[rapid.IntRange(0, len(clients)-1).Draw(t, "stream")] }
		write := func(t *rapid.T) { d.txn(m.apply(drawOps(t))...) }
		publish := func(*rapid.T) { m.published = m.rev; d.publish() }
		t.Repeat(map[string]func(*rapid.T){
			"write":  write,
			"write2": write,
			"publish": func(t *rapid.T) {
				write(t)
				publish(t)
			},
			"create": func(t *rapid.T) { one(t).create(t) },
			"cancel": func(t *rapid.T) { one(t).cancel(t) },
			"progress": func(t *rapid.T) {
				if c := one(t); c.s.RequestProgress() {
					c.owed = append(c.owed, Response{WatchID: NoID, Revision: m.published})
				}
			},
			"tick": func(t *rapid.T) { one(t).s.notify() },
			"read": func(t *rapid.T) {
				if err := one(t).read(); err != nil {
					t.Fatal(err)
				}
			},
			"compact": func(t *rapid.T) {
				if m.published <= max(m.compacted, 1) {
					t.Skip("nothing to compact")
				}
				publish(t)
				m.compacted = rapid.Int64Range(max(m.compacted, 0)+1, m.published).Draw(t, "revision")
				d.compact(t, m.compacted)
			},
			"remove": func(t *rapid.T) { d.step(rapid.IntRange(1, 20).Draw(t, "rows")) },
			"swap": func(*rapid.T) {
				m.published = m.rev
				d.swap()
			},
		})
		publish(t)
		for _, c := range clients {
			if err := c.drain(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func drawOps(t *rapid.T) []op {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
		key := rapid.StringMatching("[a-d]{1,2}").Draw(t, "key")
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			return op{key: key, del: true}
		case 1:
			return op{key: key, end: rapid.SampledFrom([]string{"\x00", "c", "d"}).Draw(t, "end"), del: true}
		}
		return op{key: key, value: rapid.StringMatching("[a-z]{0,40}").Draw(t, "value")}
	}), 1, 5).Draw(t, "ops")
}
