package lock

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
)

// cleanTimeout bounds how long a member tries to take a key out of a queue whose asker is gone.
const cleanTimeout = time.Minute

// enqueue puts the key of a place into its queue, unless it is there, and reports whether it is the only one: then it holds the lock.
// It is one log entry. With two keys at most it reads as much of the queue as it must know, however long that is.
//
// A key that is there is written again if another call for it is under way at this member. So a call that gives up can tell a key that stands
// for itself alone, which it made and nobody has written since, from one that the other call relies on, and leaves that alone (abandon).
//
// The write does not end with the caller: of a write with an unknown outcome nobody could say whether a key that is there afterwards is its
// own or that of the next call. Such a key, after a leader was lost, stays; the next call with the lease takes it over, or it ends with the lease.
func (s *Service) enqueue(ctx context.Context, a *ask, p *place) (alone bool, err error) {
	p.value = a.value
	if !a.election {
		p.value = a.mode.value()
	}
	some := opRange(&rpcpb.RangeRequest{Key: prefixOf(a.name), RangeEnd: endOf(a.name), Limit: 2, KeysOnly: true})
	put := []*rpcpb.RequestOp{opPut(&rpcpb.PutRequest{Key: p.key, Value: p.value, Lease: p.lease}), some}
	if p.guard != nil {
		g := mode{shared: a.mode.shared, limit: a.mode.limit, guards: p.lease}
		put = append(put, opPut(&rpcpb.PutRequest{Key: keyOf(a.name, p.guard.id), Value: g.value(), Lease: p.guard.id}))
	}
	found := []*rpcpb.RequestOp{opRange(&rpcpb.RangeRequest{Key: p.key}), some}
	if again := s.again(a, p); again != nil {
		found = append(found, opTxn(again))
	}
	resp, err := s.writer(a)(context.WithoutCancel(ctx), &rpcpb.TxnRequest{
		Compare: []*rpcpb.Compare{ifCreate(p.key, 0)}, Success: put, Failure: found,
	})
	if err != nil {
		return false, err
	}
	p.rev = resp.GetHeader().GetRevision()
	alone = len(resp.GetResponses()[1].GetResponseRange().GetKvs()) == 1
	if resp.GetSucceeded() {
		p.made, p.create = true, p.rev
		return alone, nil
	}
	own := resp.GetResponses()[0].GetResponseRange().GetKvs()[0]
	if own.GetLease() != p.lease {
		return false, errs.ErrNotLock
	}
	if !a.election && !parseMode(own.GetValue()).same(a.mode) { // left by a call whose outcome was not known, perhaps; it would hold together with others
		return false, errs.ErrOtherMode
	}
	p.create = own.GetCreateRevision()
	s.dropGuard(p)
	return alone, nil
}

// again is what writes a key that is there: the new value of a candidate, or, if other calls for it are under way, the same value once more.
func (s *Service) again(a *ask, p *place) *rpcpb.TxnRequest {
	put := &rpcpb.PutRequest{Key: p.key, IgnoreValue: true, IgnoreLease: true}
	if a.election {
		put = &rpcpb.PutRequest{Key: p.key, Value: a.value, IgnoreLease: true}
	}
	when := []*rpcpb.Compare{ifLease(p.key, p.lease)}
	switch {
	case s.asks(p.key, 0) > 1:
	case a.election:
		when = append(when, ifOtherValue(p.key, a.value))
	default:
		return nil
	}
	return &rpcpb.TxnRequest{Compare: when, Success: []*rpcpb.RequestOp{opPut(put)}}
}

// asks changes the number of calls for a key that are under way, their cleaning up included, and returns it.
func (s *Service) asks(key []byte, by int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.asking[string(key)] + by
	s.asking[string(key)] = n
	if n == 0 {
		delete(s.asking, string(key))
	}
	return n
}

// longQueue is the length from which on an asker need not be quick to be in the queue: before it could be its turn, as many must leave
// as this member cannot have missed, unless it is far behind the leader; and each that leaves takes along who waits to be written.
const longQueue = 3

// writer is what writes an asker's key: where the queue is long, together with the next release, so that a hand-over in a busy queue
// costs one flush of the log on each member and not two, and no release has to wait for the flush of an arrival.
func (s *Service) writer(a *ask) func(context.Context, *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lines[string(a.name)]; !a.try && l != nil && len(l.queue.entries) >= longQueue {
		return s.store.TxnLater
	}
	return s.store.Txn
}

// abandon gives up a place: its asker has failed, or is gone.
func (s *Service) abandon(p *place) {
	s.dropGuard(p)
	switch {
	case p.session != nil:
		p.session.end(false)
	case p.made:
		s.clean(p)
	}
}

// clean deletes the key that a call made if nobody has written it since. The caller's context may have ended; it tries until the key is gone or
// its lease is about to take it.
func (s *Service) clean(p *place) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanTimeout)
	defer cancel()
	err := persist(ctx, func(ctx context.Context) error {
		_, err := s.store.Txn(ctx, &rpcpb.TxnRequest{
			Compare: []*rpcpb.Compare{ifMod(p.key, p.create), ifLease(p.key, p.lease)},
			Success: []*rpcpb.RequestOp{opDelete(p.key)},
		})
		return err
	})
	if err != nil {
		s.lg.Warn("could not take a waiter that gave up out of its queue; its lease will", zap.ByteString("key", p.key), zap.Error(err))
	}
}

// timeToLive asks what is left of a lease: whole seconds, rounded down, less what asking took; and what it was granted with.
// errs.ErrLeaseNotFound when it has ended.
func (s *Service) timeToLive(ctx context.Context, id int64) (left, granted time.Duration, err error) {
	begin := time.Now()
	resp, err := s.store.LeaseTimeToLive(ctx, &rpcpb.LeaseTimeToLiveRequest{ID: id})
	if err != nil {
		return 0, 0, err
	}
	if resp.GetTTL() < 0 {
		return 0, 0, errs.ErrLeaseNotFound
	}
	left = time.Duration(resp.GetTTL())*time.Second - time.Since(begin)
	return max(left, 0), time.Duration(resp.GetGrantedTTL()) * time.Second, nil
}

// proclaim gives a key a new value if it is the one with that create revision, and lease if that is not 0;
// errs.ErrElectionNotLeader otherwise. The key keeps its lease.
func (s *Service) proclaim(ctx context.Context, key []byte, create, lease int64, value []byte) (rev int64, err error) {
	if create <= 0 || len(key) == 0 {
		return 0, errs.ErrElectionNotLeader
	}
	when := []*rpcpb.Compare{ifCreate(key, create)}
	if lease != 0 {
		when = append(when, ifLease(key, lease))
	}
	resp, err := s.store.Txn(ctx, &rpcpb.TxnRequest{
		Compare: when,
		Success: []*rpcpb.RequestOp{opPut(&rpcpb.PutRequest{Key: key, Value: value, IgnoreLease: true})},
	})
	if err != nil {
		return 0, err
	}
	if !resp.GetSucceeded() {
		return 0, errs.ErrElectionNotLeader
	}
	return resp.GetHeader().GetRevision(), nil
}

// release deletes a key that is the place of its lease in a queue, with the create revision if that is not 0. Anything else stays:
// gone tells that there was nothing to delete, errs.ErrNotLock that the key is something else.
func (s *Service) release(ctx context.Context, key []byte, create, lease int64) (rev int64, err error) {
	_, id, ok := leaseOf(key)
	if !ok {
		kv, rev, err := s.get(ctx, key, false)
		if err == nil && kv != nil {
			err = errs.ErrNotLock
		}
		return rev, err
	}
	when := []*rpcpb.Compare{ifLease(key, id)}
	if create != 0 {
		when = append(when, ifCreate(key, create))
	}
	if lease != 0 && lease != id {
		return s.store.Revision(), nil // it is not that ownership, whatever it is
	}
	resp, err := s.store.Txn(ctx, &rpcpb.TxnRequest{
		Compare: when,
		Success: []*rpcpb.RequestOp{opDelete(key)},
		Failure: []*rpcpb.RequestOp{opRange(&rpcpb.RangeRequest{Key: key})},
	})
	if err != nil {
		return 0, err
	}
	rev = resp.GetHeader().GetRevision()
	if !resp.GetSucceeded() {
		if kvs := resp.GetResponses()[0].GetResponseRange().GetKvs(); len(kvs) > 0 && kvs[0].GetLease() != id {
			return rev, errs.ErrNotLock
		}
		return rev, nil
	}
	s.released(ctx, id, resp.GetResponses()[0].GetResponseDeleteRange().GetPrevKvs()[0].GetValue())
	return rev, nil
}

// released ends what was made for an ownership that has been given back: its session, and its guard, which must not delay the next.
func (s *Service) released(ctx context.Context, lease int64, value []byte) {
	s.mu.Lock()
	own := s.sessions[lease]
	s.mu.Unlock()
	if own != nil {
		own.end(true)
	}
	if id := parseMode(value).guard; id != 0 {
		if _, err := s.store.LeaseRevoke(ctx, &rpcpb.LeaseRevokeRequest{ID: id}); err != nil && !errors.Is(err, errs.ErrLeaseNotFound) {
			s.lg.Info("could not end the guard of a lock that was given back; the next holder has to wait for it", zap.Error(err))
		}
	}
}
