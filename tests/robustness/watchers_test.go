package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/tests/history"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watcher makes one watch after the other. What each is told is checked at once as far as one watch can see, and against the ledger
// when that is complete.
type watcher struct {
	r        *run
	name     string
	rng      *rand.Rand
	scribe   bool // it writes the ledger
	prefixes []string
	etcd     *clientv3.Client // or
	native   *client.Client

	next int64 // a scribe's next revision
}

// sessionLimit is the longest that a watch goes on before another begins, so that what is told is soon checked.
const sessionLimit = 8 * time.Second

// watch starts the scribes, and watchers of some prefixes.
func (r *run) watch(prefixes ...string) {
	all := []*watcher{
		{name: "scribe at m1", etcd: r.etcd("scribe1", 0), scribe: true}, {name: "scribe at m2", etcd: r.etcd("scribe2", 1), scribe: true},
		{name: "scribe at m3", etcd: r.etcd("scribe3", 2), scribe: true}, {name: "scribe at any, our client", native: r.native("scribe4"), scribe: true},
		{name: "watcher at m1", etcd: r.etcd("watcher1", 0)}, {name: "watcher at m2", etcd: r.etcd("watcher2", 1)},
		{name: "watcher at m3", etcd: r.etcd("watcher3", 2)}, {name: "watcher at any", etcd: r.etcd("watcher4")},
		{name: "watcher at any, our client", native: r.native("watcher5")},
	}
	for i, w := range all {
		w.r, w.rng, w.next = r, r.rand(uint64(1000+i)), history.FirstRevision
		w.prefixes = append([]string{""}, prefixes...)
		r.watches.Go(func() {
			for r.watchCtx.Err() == nil {
				w.one()
			}
		})
	}
	r.watches.Go(func() { // checks what has ended
		for r.watchCtx.Err() == nil {
			r.drain()
			select {
			case <-r.watchCtx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
}

// one is one watch.
func (w *watcher) one() {
	s := &history.Session{Name: w.name, PrevKV: w.rng.IntN(2) == 0, Lax: w.etcd != nil, From: w.next}
	if !w.scribe {
		s.Prefix = w.prefixes[w.rng.IntN(len(w.prefixes))]
		s.From = 0
		if w.rng.IntN(3) != 0 { // any of the past, or of the future
			s.From = max(1, w.r.ledger.Complete()-int64(w.rng.IntN(400))+20)
		}
	}
	limit := sessionLimit
	if !w.scribe {
		limit = time.Duration(100+w.rng.IntN(int(sessionLimit/time.Millisecond))) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(w.r.watchCtx, limit)
	var err error
	if w.etcd != nil {
		err = w.watchEtcd(ctx, s)
	} else {
		err = w.watchNative(ctx, s)
	}
	cancel()
	if err != nil {
		w.r.violate("%s, from revision %d, having seen %d: %v", w.name, s.From, s.Seen(), err)
		return
	}
	if w.scribe && s.Seen() >= w.next {
		w.next = s.Seen() + 1
	}
	w.r.count("watches", 1)
	w.r.count("events", s.Count())
	w.r.mu.Lock()
	w.r.sessions = append(w.r.sessions, s)
	w.r.mu.Unlock()
	select { // a member that does not run refuses at once
	case <-w.r.watchCtx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}

// watchEtcd takes what etcd's client tells until ctx or the watch ends.
func (w *watcher) watchEtcd(ctx context.Context, s *history.Session) error {
	ctx = clientv3.WithRequireLeader(ctx)
	opts := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCreatedNotify(), clientv3.WithRev(s.From)}
	if s.PrevKV {
		opts = append(opts, clientv3.WithPrevKV())
	}
	if w.rng.IntN(2) == 0 {
		opts = append(opts, clientv3.WithProgressNotify())
	}
	if w.rng.IntN(2) == 0 {
		opts = append(opts, clientv3.WithFragment())
	}
	responses := w.etcd.Watch(ctx, s.Prefix, opts...)
	ask := time.NewTicker(time.Duration(50+w.rng.IntN(800)) * time.Millisecond)
	defer ask.Stop()
	for {
		select {
		case <-ask.C:
			_ = w.etcd.RequestProgress(ctx) // without a member there is none
		case r, ok := <-responses:
			switch {
			case !ok:
				return nil
			case r.CompactRevision != 0:
				w.next = max(w.next, r.CompactRevision)
				return s.Compacted(r.CompactRevision)
			case r.Err() != nil:
				return nil
			}
			if err := w.take(s, r.Created, r.IsProgressNotify(), r.Header.Revision, told(r.Events, etcdPair, w.r.site.Now())); err != nil {
				return err
			}
		}
	}
}

// watchNative does the same with our client.
func (w *watcher) watchNative(ctx context.Context, s *history.Session) error {
	opts := []client.WatchOption{client.WithPrefix(), client.WithCreatedNotify(), client.WithRev(s.From), client.WithProgressNotify()}
	if s.PrevKV {
		opts = append(opts, client.WithPrevKV())
	}
	watch := w.native.Watch(ctx, s.Prefix, opts...)
	defer watch.Close()
	for {
		if w.rng.IntN(20) == 0 {
			watch.RequestProgress()
		}
		r, err := watch.Next(ctx)
		var compacted *client.CompactedError
		if errors.As(err, &compacted) {
			w.next = max(w.next, compacted.CompactRevision)
			return s.Compacted(compacted.CompactRevision)
		}
		if err != nil {
			return nil
		}
		header := r.Revision
		if len(r.Events) > 0 {
			header = r.Header.GetRevision()
		}
		if err := w.take(s, r.Created, r.IsProgress(), header, told(r.Events, nativePair, w.r.site.Now())); err != nil {
			return err
		}
	}
}

// take checks one response.
func (w *watcher) take(s *history.Session, created, progress bool, header int64, events []history.Told) error {
	switch {
	case created:
		return s.Create(header)
	case progress:
		w.r.count("notices", 1)
		return s.Progress(header)
	}
	if err := s.Take(header, events); err != nil || !w.scribe {
		return err
	}
	for i := 0; i < len(events); {
		var changes []history.Change
		rev := events[i].Mod
		for ; i < len(events) && events[i].Mod == rev; i++ {
			changes = append(changes, events[i].Change)
		}
		if err := w.r.ledger.Add(rev, changes, w.r.site.Now(), w.name); err != nil {
			return err
		}
	}
	return nil
}

// told gives events of any client in the form of the checks.
func told[E any](events []E, pair func(E) (kv, prev *history.Change), now time.Duration) []history.Told {
	var all []history.Told
	for _, e := range events {
		kv, prev := pair(e)
		t := history.Told{Change: *kv, When: now}
		if prev != nil {
			t.Prev, t.HasPrev = prev.Pair, true
		}
		all = append(all, t)
	}
	return all
}

func etcdPair(e *clientv3.Event) (kv, prev *history.Change) {
	one := func(kv *mvccpb.KeyValue) *history.Change {
		return &history.Change{Key: string(kv.Key), Pair: history.Pair{Value: string(kv.Value), Create: kv.CreateRevision, Mod: kv.ModRevision, Version: kv.Version, Lease: kv.Lease}}
	}
	kv = one(e.Kv)
	kv.Deleted = e.Type == clientv3.EventTypeDelete
	if e.PrevKv != nil {
		prev = one(e.PrevKv)
	}
	return kv, prev
}

func nativePair(e *kvpb.Event) (kv, prev *history.Change) {
	one := func(kv *kvpb.KeyValue) *history.Change {
		return &history.Change{Key: string(kv.Key), Pair: history.Pair{Value: string(kv.Value), Create: kv.CreateRevision, Mod: kv.ModRevision, Version: kv.Version, Lease: kv.Lease}}
	}
	kv = one(e.Kv)
	kv.Deleted = e.Type == kvpb.Event_DELETE
	if e.PrevKv != nil {
		prev = one(e.PrevKv)
	}
	return kv, prev
}

// drain checks the watches that have ended and whose revisions the ledger has.
func (r *run) drain() {
	r.mu.Lock()
	all, complete := r.sessions, r.ledger.Complete()
	r.sessions = nil
	r.mu.Unlock()
	for _, s := range all {
		if s.Seen() < s.From { // it was told nothing
			continue
		}
		if s.Seen() > complete {
			r.mu.Lock()
			r.sessions = append(r.sessions, s)
			r.mu.Unlock()
			continue
		}
		r.check(s.Check(r.ledger, r.compacted), "watch")
	}
}

// ledgerUpTo waits until the ledger is complete up to a revision, and ends the watches.
func (r *run) ledgerUpTo(rev int64) {
	for end := time.Now().Add(settle); r.ledger.Complete() < rev; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.violate("the watches are at revision %d, %v after the store was at %d", r.ledger.Complete(), settle, rev)
			break
		}
	}
	r.endWatches()
	r.watches.Wait()
	r.drain()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions { // they are told of no revision that does not exist
		r.broken = append(r.broken, fmt.Sprintf("%s has seen revision %d, the store is at %d", s.Name, s.Seen(), rev))
	}
}
