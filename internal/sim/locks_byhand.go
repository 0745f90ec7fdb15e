package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// This file takes locks with transactions and reads only, in the queues and with the keys of package concurrency of the client (and of
// etcd's), so that both kinds of askers meet at one lock.

// askByHand queues up and looks until its place is the first, or the contender's patience is over.
func (k *contender) askByHand(x *claim) {
	s, ok := k.c.pickLocks(k.rng)
	if !ok {
		x.call, x.err = k.c.now(), "no member runs"
		return
	}
	x.member = s.i
	ctx, cancel := within(k.c.stop, s.life, 300*time.Millisecond+k.upTo(4*time.Second))
	defer cancel()
	x.key = fmt.Sprintf("%s/%x", x.name, k.own.id)
	k.book.claim(x)
	k.c.awake(ctx, s.i)
	err := k.queueUp(ctx, s, x)
	for err == nil && !x.held {
		k.c.awake(ctx, s.i)
		if err = k.lookAtFirst(ctx, s, x); err == nil && !x.held {
			pause(ctx, 20*time.Millisecond+k.upTo(150*time.Millisecond))
			err = ctx.Err()
		}
	}
	k.book.change(func() {
		x.back, x.store, x.known = k.c.now(), s.node.Revision(), err == nil && ctx.Err() == nil
		if err != nil {
			x.err = err.Error()
		} else if ctx.Err() != nil {
			x.err = "the answer came too late"
		}
	})
	if x.known {
		return
	}
	x.left = x.back
	if s, ok := k.c.pickLocks(k.rng); ok && x.token > 0 { // give up the place; the lease does it if this fails
		ctx, cancel := within(k.c.stop, s.life, time.Second)
		defer cancel()
		rel := k.book.release(k.name, s.i, x, x.token)
		k.c.awake(ctx, s.i)
		rev, err := deleteIf(ctx, s, x)
		if err == nil {
			err = ctx.Err()
		}
		k.book.done(rel, rev, err)
	}
}

// queueUp puts the key unless it is there.
func (k *contender) queueUp(ctx context.Context, s served, x *claim) error {
	key := []byte(x.key)
	r, err := s.node.Txn(ctx, &rpcpb.TxnRequest{
		Compare: []*rpcpb.Compare{{Key: key, Target: rpcpb.Compare_CREATE, TargetUnion: &rpcpb.Compare_CreateRevision{}}},
		Success: []*rpcpb.RequestOp{{Request: &rpcpb.RequestOp_RequestPut{RequestPut: &rpcpb.PutRequest{Key: key, Lease: x.bond.id}}}},
		Failure: []*rpcpb.RequestOp{{Request: &rpcpb.RequestOp_RequestRange{RequestRange: &rpcpb.RangeRequest{Key: key}}}},
	})
	switch {
	case err != nil:
		return err
	case r.Succeeded:
		x.token = r.Header.Revision
	default:
		x.token = r.Responses[0].GetResponseRange().Kvs[0].CreateRevision
	}
	return nil
}

// lookAtFirst reads who is first.
func (k *contender) lookAtFirst(ctx context.Context, s served, x *claim) error {
	first, own := int64(0), false
	r, err := s.node.Range(ctx, &rpcpb.RangeRequest{Key: []byte(x.name + "/"), RangeEnd: []byte(x.name + "0")}, func(row []byte) error {
		kv := &kvpb.KeyValue{}
		err := kv.UnmarshalVT(row)
		if first == 0 || kv.CreateRevision < first {
			first = kv.CreateRevision
		}
		own = own || kv.CreateRevision == x.token
		return err
	})
	if err == nil && !own {
		err = errors.New("the place is gone")
	}
	if err == nil && first == x.token {
		k.c.awake(ctx, s.i)
		k.book.change(func() { x.held, x.heldAt, x.rev = true, k.c.now(), r.Rev })
	}
	return err
}

// deleteIf deletes the key of a claim if it still is that claim's place.
func deleteIf(ctx context.Context, s served, x *claim) (int64, error) {
	key := []byte(x.key)
	r, err := s.node.Txn(ctx, &rpcpb.TxnRequest{
		Compare: []*rpcpb.Compare{{Key: key, Target: rpcpb.Compare_CREATE, TargetUnion: &rpcpb.Compare_CreateRevision{CreateRevision: x.token}}},
		Success: []*rpcpb.RequestOp{{Request: &rpcpb.RequestOp_RequestDeleteRange{RequestDeleteRange: &rpcpb.DeleteRangeRequest{Key: key}}}},
	})
	if err != nil {
		return 0, err
	}
	return r.Header.Revision, nil
}
