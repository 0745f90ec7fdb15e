package rpc

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

const (
	// keepAliveQueue is how many renewals of a stream are taken in before the client has to wait for answers.
	keepAliveQueue = 1024
	// keepAliveBatch is how many renewals of a stream are under way to the leader at once.
	keepAliveBatch = 256
)

// LeaseKeepAlive renews leases, as many as the client asks for before it waits for answers, and answers in order. A
// lease that does not exist has TTL 0; any other error ends the stream.
//
// Renewals are received by a goroutine of their own, which ends with the stream. On the leader they are local and done one after
// another; otherwise all that have arrived go to the leader together.
func (s *LeaseService) LeaseKeepAlive(stream services.Lease_LeaseKeepAliveServer) error {
	k := &keepAlive{
		service: s, stream: stream,
		ids: make(chan int64, keepAliveQueue), failed: make(chan error, 1),
		response: rpcpb.LeaseKeepAliveResponse{Header: new(rpcpb.ResponseHeader)},
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go k.receive(ctx)
	err := k.answer(ctx)
	if cause := context.Cause(stream.Context()); cause != nil {
		return cause
	}
	return err
}

// keepAlive is one stream.
type keepAlive struct {
	service *LeaseService
	stream  services.Lease_LeaseKeepAliveServer
	ids     chan int64 // leases to renew; closed when the client sends no more
	failed  chan error // why receiving failed
	batch   []renewal
	// response is the one that is sent again and again: sending encodes it before it returns.
	response rpcpb.LeaseKeepAliveResponse
}

// renewal is a lease to be renewed, and then what came of it.
type renewal struct {
	id, revision, ttl int64
	err               error
}

// receive passes on the client's requests until ctx ends or there are no more.
func (k *keepAlive) receive(ctx context.Context) {
	var r rpcpb.LeaseKeepAliveRequest // the same for all: receiving resets it
	for {
		if err := k.stream.RecvMsg(&r); err != nil {
			if !errors.Is(err, io.EOF) {
				k.failed <- err
				return
			}
			close(k.ids)
			return
		}
		select {
		case k.ids <- r.ID:
		case <-ctx.Done():
			return
		}
	}
}

// answer renews and answers until the client sends no more or something fails.
func (k *keepAlive) answer(ctx context.Context) error {
	for {
		select {
		case id, more := <-k.ids:
			if !more {
				return nil
			}
			if err := k.renew(ctx, id); err != nil {
				return err
			}
		case err := <-k.failed:
			if k.stream.Context().Err() == nil {
				k.service.onFail(false)
			}
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// renew renews a lease and those that are queued behind it.
func (k *keepAlive) renew(ctx context.Context, id int64) error {
	k.batch = k.take(append(k.batch[:0], renewal{id: id}))
	leading := k.service.state.Leader() == k.service.id.ID()
	if !leading {
		k.renewTogether(ctx)
	}
	for i := range k.batch {
		r := &k.batch[i]
		if leading {
			k.renewOne(ctx, r)
		}
		if r.err != nil && !errors.Is(r.err, errs.ErrLeaseNotFound) {
			return r.err
		}
		if err := k.send(r); err != nil {
			if k.stream.Context().Err() == nil {
				k.service.onFail(true)
			}
			return err
		}
	}
	return nil
}

// take adds the renewals that are queued, up to a full batch.
func (k *keepAlive) take(batch []renewal) []renewal {
	for len(batch) < keepAliveBatch {
		select {
		case id, more := <-k.ids:
			if !more {
				return batch
			}
			batch = append(batch, renewal{id: id})
		default:
			return batch
		}
	}
	return batch
}

// renewTogether renews all leases of the batch at the same time: the node sends to the leader in one
// message what is asked of it meanwhile.
func (k *keepAlive) renewTogether(ctx context.Context) {
	if len(k.batch) == 1 {
		k.renewOne(ctx, &k.batch[0])
		return
	}
	var wg sync.WaitGroup
	for i := range k.batch {
		wg.Go(func() { k.renewOne(ctx, &k.batch[i]) })
	}
	wg.Wait()
}

// renewOne renews one lease. The revision is read before, so that who finds a lease gone can see from
// which revision on to look for what became of its keys.
func (k *keepAlive) renewOne(ctx context.Context, r *renewal) {
	r.revision = k.service.id.Revision()
	r.ttl, r.err = k.service.leases.LeaseRenew(ctx, r.id)
}

// send answers one renewal.
func (k *keepAlive) send(r *renewal) error {
	h := k.response.Header
	h.ClusterId, h.MemberId, h.RaftTerm, h.Revision = k.service.id.ClusterID(), k.service.id.ID(), k.service.id.Term(), r.revision
	k.response.ID, k.response.TTL = r.id, r.ttl
	if r.err != nil {
		k.response.TTL = 0
	}
	return k.stream.Send(&k.response)
}
