package lock

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/lockpb"
)

func newKV(key string, create, mod int64) *kvpb.KeyValue {
	return &kvpb.KeyValue{Key: []byte(key), CreateRevision: create, ModRevision: mod}
}

// holders is who holds a queue, by the definition: an entry does if it is compatible with every one before it, guards that idle aside.
func holders(kvs []*kvpb.KeyValue) (out []string) {
	living := func(lease, create int64) bool {
		return slices.ContainsFunc(kvs, func(kv *kvpb.KeyValue) bool {
			return parseMode(kv.GetValue()).guards == 0 && kv.GetLease() == lease && kv.GetCreateRevision() == create
		})
	}
	var before []mode
	for _, kv := range kvs {
		m := parseMode(kv.GetValue())
		if m.guards != 0 && living(m.guards, kv.GetCreateRevision()) {
			continue
		}
		ok := len(before) == 0
		if m.shared {
			ok = !slices.ContainsFunc(before, func(b mode) bool { return !b.shared })
		}
		if m.limit > 0 {
			ok = int64(len(before)) < m.limit && !slices.ContainsFunc(before, func(b mode) bool { return b.limit != m.limit })
		}
		if ok {
			out = append(out, string(kv.GetKey()))
		}
		before = append(before, m)
	}
	return out
}

// ahead counts those before a key that are no idle guards.
func ahead(q *queue, key string) (n int64) {
	for _, e := range q.entries {
		if string(e.kv.GetKey()) == key {
			break
		}
		if !q.idle(e) {
			n++
		}
	}
	return n
}

// With ten thousand who count, a release tells few of them, and each is told few numbers until its turn comes.
func TestCountingIsBounded(t *testing.T) {
	const n = 10_000
	s := New(Options{})
	l := &line{queue: newQueue(nil), tickets: map[string][]*ticket{}, observers: map[*observer]struct{}{}}
	tickets := make([]*ticket, n)
	rows := make([]*kvpb.KeyValue, n)
	for i := range n {
		key := fmt.Sprintf("n/%x", i)
		rows[i] = newKV(key, int64(i+1), int64(i+1))
		tickets[i] = s.follow(l, []byte(key), int64(i+1), true)
	}
	l.reset(rows, n)
	numbers := make([]int, n)
	for i := range n {
		woken := 0
		for j := i; j < n; j++ {
			if c := tickets[j].ahead; len(c) > 0 {
				<-c
				woken++
				numbers[j]++
			}
		}
		if woken > 2*nearFront+6 {
			t.Fatalf("release %d told %d waiters", i, woken)
		}
		l.apply([]*kvpb.Event{{Type: kvpb.Event_DELETE, Kv: newKV(tickets[i].key, 0, int64(n+i+1))}})
		if i >= 200 { // the pattern repeats
			break
		}
	}
	for j, got := range numbers {
		if got > 22 {
			t.Fatalf("waiter %d was told %d numbers", j, got)
		}
	}
}

// Random changes to a line, against the definition. Tickets are told what they must be, once.
func TestLineAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(Options{})
		l := &line{queue: newQueue(nil), tickets: map[string][]*ticket{}, observers: map[*observer]struct{}{}}
		var model []*kvpb.KeyValue // in order
		var rev int64
		type watched struct {
			*ticket
			held, gone bool
		}
		var tickets []*watched
		modes := []mode{{}, {}, {shared: true}, {shared: true}, {limit: 3}, {limit: 3}, {limit: 2}}
		find := func(key string) int {
			return slices.IndexFunc(model, func(kv *kvpb.KeyValue) bool { return string(kv.GetKey()) == key })
		}
		check := func() {
			want := holders(model)
			var got []string
			for _, e := range l.queue.entries[:l.front] {
				if !l.queue.idle(e) {
					got = append(got, string(e.kv.GetKey()))
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("holders %q, want %q", got, want)
			}
			if !slices.EqualFunc(l.queue.entries, model, func(e *entry, kv *kvpb.KeyValue) bool { return e.kv == kv }) {
				t.Fatalf("queue %v, want %v", l.queue.entries, model)
			}
			for _, w := range tickets {
				for len(w.news) > 0 {
					v := <-w.news
					if v.held && (w.held || w.gone) || !v.held && w.gone {
						t.Fatalf("told twice: %+v", v)
					}
					w.held, w.gone = w.held || v.held, w.gone || !v.held
				}
				i := find(w.key)
				there := i >= 0 && model[i].GetCreateRevision() == w.create
				if there == w.gone {
					t.Fatalf("ticket of %s at %d: gone %v, but there %v", w.key, w.create, w.gone, there)
				}
				if there && w.held != slices.Contains(want, w.key) {
					t.Fatalf("ticket of %s: held %v, holders %q", w.key, w.held, want)
				}
				if there && !w.held && w.ahead != nil {
					if n := ahead(l.queue, w.key); milestone(n) && w.told != n {
						t.Fatalf("ticket of %s was told of %d ahead, there are %d", w.key, w.told, n)
					}
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"come": func(t *rapid.T) {
				key := fmt.Sprintf("n/%d", rapid.IntRange(0, 12).Draw(t, "key"))
				if find(key) >= 0 {
					return
				}
				rev++
				m := rapid.SampledFrom(modes).Draw(t, "mode")
				lease := rapid.Int64Range(1, 5).Draw(t, "lease")
				kv := newKV(key, rev, rev)
				kv.Value, kv.Lease = m.value(), lease
				model = append(model, kv)
				events := []*kvpb.Event{{Kv: kv}}
				guard := "n/1g"
				if rapid.IntRange(0, 3).Draw(t, "guard") == 0 && find(guard) < 0 {
					m.guards = lease
					g := newKV(guard, rev, rev)
					g.Value = m.value()
					events = append(events, &kvpb.Event{Kv: g})
					model = append(model, g)
					slices.SortStableFunc(model, func(a, b *kvpb.KeyValue) int {
						return cmp.Or(cmp.Compare(a.GetCreateRevision(), b.GetCreateRevision()), bytes.Compare(a.GetKey(), b.GetKey()))
					})
				}
				counts := rapid.Bool().Draw(t, "counts")
				early := rapid.Bool().Draw(t, "ticket before the event")
				if early {
					tickets = append(tickets, &watched{ticket: s.follow(l, []byte(key), rev, counts)})
				}
				l.apply(events)
				if !early {
					tickets = append(tickets, &watched{ticket: s.follow(l, []byte(key), rev, counts)})
					s.ahead(tickets[len(tickets)-1].ticket)
				}
			},
			"go": func(t *rapid.T) {
				if len(model) == 0 {
					return
				}
				i := rapid.IntRange(0, len(model)-1).Draw(t, "who")
				rev++
				kv := model[i]
				model = slices.Delete(model, i, i+1)
				l.apply([]*kvpb.Event{{Type: kvpb.Event_DELETE, Kv: newKV(string(kv.GetKey()), 0, rev)}})
			},
			"miss": func(t *rapid.T) { // events that the line does not get
				n := rapid.IntRange(0, len(model)).Draw(t, "gone")
				rev += int64(n)
				model = slices.Clone(model[n:])
				rows := slices.Clone(model)
				slices.SortFunc(rows, func(a, b *kvpb.KeyValue) int { return bytes.Compare(a.GetKey(), b.GetKey()) })
				l.reset(rows, rev)
			},
			"forget": func(t *rapid.T) {
				if len(tickets) == 0 {
					return
				}
				i := rapid.IntRange(0, len(tickets)-1).Draw(t, "ticket")
				check()
				s.forget(tickets[i].ticket)
				tickets = slices.Delete(tickets, i, i+1)
			},
		})
	})
}

func TestModeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := mode{shared: rapid.Bool().Draw(t, "shared"), guard: rapid.Int64().Draw(t, "guard"), guards: rapid.Int64().Draw(t, "guards")}
		if rapid.Bool().Draw(t, "semaphore") {
			m.limit = rapid.Int64Range(2, 1<<62).Draw(t, "limit")
		}
		if got := parseMode(m.value()); got != m {
			t.Fatalf("%+v, want %+v", got, m)
		}
	})
	if (mode{}).value() != nil {
		t.Error("an ordinary lock has a value, which etcd's have not")
	}
}

func TestKeyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SliceOf(rapid.Byte()).Draw(t, "name")
		lease := rapid.Int64().Filter(func(v int64) bool { return v != 0 }).Draw(t, "lease")
		key := keyOf(name, lease)
		n, l, ok := leaseOf(key)
		if !ok || !bytes.Equal(n, name) || l != lease || string(key) != fmt.Sprintf("%s/%x", name, uint64(lease)) {
			t.Fatalf("%q: %q %d %v", key, n, l, ok)
		}
	})
}

func FuzzKeyAndMode(f *testing.F) {
	f.Add([]byte("a/1f"))
	f.Add([]byte(lockpb.ModeMark + " shared limit=3 guard=1f"))
	f.Add([]byte(lockpb.ModeMark + " limit=x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if name, lease, ok := leaseOf(b); ok && !bytes.Equal(keyOf(name, lease), b) {
			t.Errorf("%q is taken for the key of %q and %x", b, name, lease)
		}
		if m := parseMode(b); parseMode(m.value()) != m {
			t.Errorf("%q: %+v does not survive", b, m)
		}
	})
}
