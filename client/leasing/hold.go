package leasing

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/client"
)

// revoked is the value of a leasing key that its holder is asked to give up.
const revoked = "REVOKE"

// hold is a key that this KV holds.
type hold struct {
	key     string
	session *session
	rev     int64              // create revision of the leasing key
	stop    context.CancelFunc // has the goroutine guard give the key up

	// The rest is guarded by KV.mu.

	pair *kvpb.KeyValue // nil: the key does not exist; never changed in place
	at   int64          // the revision pair was read at
	// writing counts our own writes of the key under way. What the key is meanwhile is not known.
	writing int
}

// leasing gives the leasing key of a key.
func (kv *KV) leasing(key string) string { return kv.prefix + key }

// take begins to take the hold on a key, or joins those who do. The channel is closed when that is over, whatever came of it. It is
// nil if the key is not to be taken now.
func (kv *KV) take(key string) <-chan struct{} {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if done := kv.taking[key]; done != nil {
		return done
	}
	if kv.session == nil || kv.held[key] != nil || kv.resting[key] || strings.HasPrefix(key, kv.prefix) {
		return nil
	}
	if len(kv.held)+len(kv.taking) >= kv.maxKeys {
		for _, h := range kv.held { // the order of a map is random
			kv.dropLocked(h)
			break
		}
	}
	s, done := kv.session, make(chan struct{})
	kv.taking[key] = done
	kv.wg.Go(func() {
		kv.acquire(s, key)
		kv.mu.Lock()
		defer kv.mu.Unlock()
		delete(kv.taking, key)
		close(done)
	})
	return done
}

// acquire takes the hold on a key that nobody has.
func (kv *KV) acquire(s *session, key string) {
	r, err := kv.c.Txn(s.ctx).
		If(client.KeyMissing(kv.leasing(key)), client.LeaseOf(key).Equal(0)).
		Then(client.OpPut(kv.leasing(key), "", client.WithLease(s.lease)), client.OpGet(key)).Commit()
	if errors.Is(err, client.ErrUnknownOutcome) {
		s.end() // see the package comment
		return
	}
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.sawLocked(r.GetHeader())
	if err != nil || !r.Succeeded {
		kv.restLocked(key)
		return
	}
	if kv.session != s {
		return // its lease is being revoked
	}
	ctx, stop := context.WithCancel(s.ctx)
	h := &hold{key: key, session: s, rev: r.Header.Revision, stop: stop, at: r.Header.Revision}
	if kvs := r.Responses[1].GetResponseRange().GetKvs(); len(kvs) > 0 {
		h.pair = kvs[0]
	}
	kv.held[key] = h
	kv.wg.Go(func() { kv.guard(ctx, h) })
}

// guard waits until a hold is asked for, lost or not wanted any more, and gives it up.
func (kv *KV) guard(ctx context.Context, h *hold) {
	defer h.stop()
	gone := kv.waitAsked(ctx, h)
	kv.mu.Lock()
	kv.dropLocked(h)
	kv.mu.Unlock()
	for n := 0; !gone && h.session.ctx.Err() == nil; n++ {
		_, err := kv.c.Txn(h.session.ctx).If(client.CreateRevision(kv.leasing(h.key)).Equal(h.rev)).
			Then(client.OpDelete(kv.leasing(h.key))).Commit()
		if gone = err == nil; !gone {
			pause(h.session.ctx, n) // doing it again does no harm
		}
	}
}

// waitAsked waits until the leasing key of a hold has changed, or ctx ends, and tells whether it is gone.
func (kv *KV) waitAsked(ctx context.Context, h *hold) (gone bool) {
	w := kv.c.Watch(ctx, kv.leasing(h.key), client.WithRev(h.rev+1))
	defer w.Close()
	for r, err := range w.All() {
		if err != nil {
			return false // without a watch nobody could ask for the key: it is given up
		}
		for _, e := range r.Events {
			return e.Type == kvpb.Event_DELETE
		}
	}
	return false // not reached: the last pair has an error
}

// dropLocked forgets a hold. Its goroutine gives it up.
func (kv *KV) dropLocked(h *hold) {
	h.stop()
	if kv.held[h.key] == h {
		delete(kv.held, h.key)
		kv.restLocked(h.key)
	}
}

// restLocked leaves a key alone for a while.
func (kv *KV) restLocked(key string) {
	if kv.resting[key] || kv.rest <= 0 {
		return
	}
	kv.resting[key] = true
	time.AfterFunc(kv.rest, func() {
		kv.mu.Lock()
		defer kv.mu.Unlock()
		delete(kv.resting, key)
	})
}
