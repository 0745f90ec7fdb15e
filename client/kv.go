package client

import (
	"context"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// Get reads one key, or several with WithPrefix, WithRange or WithFromKey. Without WithSerializable it sees
// every write finished before it began. A key that does not exist is an answer without pairs, not an error.
// Errors: errs.ErrCompacted and errs.ErrFutureRev for a revision that cannot be read.
func (c *Client) Get(ctx context.Context, key string, opts ...GetOption) (*rpcpb.RangeResponse, error) {
	req, resp := newRange(key, opts), new(rpcpb.RangeResponse)
	if err := c.invoke(ctx, rangeCall(req), req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// rangeCall gives how a range may be called.
func rangeCall(req *rpcpb.RangeRequest) call {
	return call{method: services.KV_Range_FullMethodName, idempotent: true, local: req.Serializable}
}

// newRange builds a request.
func newRange(key string, opts []GetOption) *rpcpb.RangeRequest {
	req := &rpcpb.RangeRequest{Key: []byte(key)}
	for _, o := range opts {
		o.applyGet(req)
	}
	return req
}

// Put writes a key. It runs at most once; see ErrUnknownOutcome.
func (c *Client) Put(ctx context.Context, key, value string, opts ...PutOption) (*rpcpb.PutResponse, error) {
	resp := new(rpcpb.PutResponse)
	if err := c.invoke(ctx, call{method: services.KV_Put_FullMethodName}, newPut(key, value, opts), resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// newPut builds a request.
func newPut(key, value string, opts []PutOption) *rpcpb.PutRequest {
	req := &rpcpb.PutRequest{Key: []byte(key), Value: []byte(value)}
	for _, o := range opts {
		o.applyPut(req)
	}
	return req
}

// Delete removes one key, or several with WithPrefix, WithRange or WithFromKey; the answer tells how many. It runs at
// most once; see ErrUnknownOutcome.
func (c *Client) Delete(ctx context.Context, key string, opts ...DeleteOption) (*rpcpb.DeleteRangeResponse, error) {
	resp := new(rpcpb.DeleteRangeResponse)
	err := c.invoke(ctx, call{method: services.KV_DeleteRange_FullMethodName}, newDelete(key, opts), resp)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// newDelete builds a request.
func newDelete(key string, opts []DeleteOption) *rpcpb.DeleteRangeRequest {
	req := &rpcpb.DeleteRangeRequest{Key: []byte(key)}
	for _, o := range opts {
		o.applyDelete(req)
	}
	return req
}

// Compact forgets the revisions before rev, but for the newest version of each key. It runs at most once; a second
// one at the same revision is errs.ErrCompacted.
func (c *Client) Compact(ctx context.Context, rev int64, opts ...CompactOption) (*rpcpb.CompactionResponse, error) {
	req, resp := &rpcpb.CompactionRequest{Revision: rev}, new(rpcpb.CompactionResponse)
	for _, o := range opts {
		o.applyCompact(req)
	}
	if err := c.invoke(ctx, call{method: services.KV_Compact_FullMethodName}, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}
