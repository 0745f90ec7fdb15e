package client

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// scanPage is how many pairs a page has where the server cannot stream.
const scanPage = 1000

// Scan is a read of many keys that does not hold all of them in memory. It is for one goroutine.
type Scan struct {
	c      *Client
	ctx    context.Context
	req    *rpcpb.RangeRequest
	header *rpcpb.ResponseHeader
	count  int64
	left   int64 // of the limit; 0 is no limit
	done   bool
	paged  bool // the server cannot stream
	token  string
}

// Scan begins to read keys in their order, all at one revision: the one of WithRev or else the current one.
// It asks for that revision and the number of keys at once; the pairs come while they are read. Should the endpoint
// fail meanwhile the scan goes on at another one after the last key. WithSort (other than by key, ascending), and the
// filters by revision, are not possible.
func (c *Client) Scan(ctx context.Context, key string, opts ...GetOption) (*Scan, error) {
	req := newRange(key, opts)
	if req.SortOrder != SortNone || req.SortTarget != SortByKey {
		return nil, errors.New("client: a scan is in the order of the keys; use Get to sort otherwise")
	}
	if req.MinModRevision|req.MaxModRevision|req.MinCreateRevision|req.MaxCreateRevision != 0 {
		return nil, errors.New("client: a scan cannot filter by revision; use Get")
	}
	count := &rpcpb.RangeRequest{Key: req.Key, RangeEnd: req.RangeEnd, Revision: req.Revision, Serializable: req.Serializable, CountOnly: true}
	resp := new(rpcpb.RangeResponse)
	if err := c.invoke(ctx, rangeCall(count), count, resp); err != nil {
		return nil, err
	}
	s := &Scan{c: c, ctx: ctx, req: req, header: resp.Header, count: resp.Count, left: req.Limit}
	if req.Revision <= 0 {
		req.Revision = resp.GetHeader().GetRevision()
	}
	// The revision is fixed and known to exist, so any member may answer once it has it. A member that is behind
	// says that the revision is in the future, hence a scan asked to be linearizable stays so.
	s.done = req.CountOnly || resp.Count == 0
	return s, nil
}

// Revision is the revision the pairs are read at.
func (s *Scan) Revision() int64 { return s.req.Revision }

// Count is how many keys there are, whatever the limit.
func (s *Scan) Count() int64 { return s.count }

// Header is the header of the first answer.
func (s *Scan) Header() *rpcpb.ResponseHeader { return s.header }

// All gives the pairs once. After an error, which comes with no pair, there is nothing more.
func (s *Scan) All() iter.Seq2[*kvpb.KeyValue, error] {
	return func(yield func(*kvpb.KeyValue, error) bool) {
		var avoid *endpoint
		for failures := 0; !s.done; {
			before := len(s.req.Key)
			first := string(s.req.Key)
			e, err := s.c.pool.pick(avoid)
			if err == nil {
				err = s.from(e, yield)
				s.c.pool.release(e)
			}
			if err == nil {
				continue
			}
			if before != len(s.req.Key) || first != string(s.req.Key) {
				failures = 0
			}
			failures++
			if err = s.failed(e, err, failures); err != nil {
				s.done = true
				yield(nil, err)
				return
			}
			avoid = e
		}
	}
}

// from reads from one endpoint until the end, a failure, or until the consumer has enough.
func (s *Scan) from(e *endpoint, yield func(*kvpb.KeyValue, error) bool) error {
	if s.paged {
		return s.page(e, yield)
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	defer s.c.pool.track(e, cancel)()
	ctx, err := s.c.outgoing(ctx, call{local: s.req.Serializable})
	if err != nil {
		return err
	}
	s.token, s.req.Limit = sentToken(ctx), s.left
	stream, err := e.conn.NewStream(ctx, &services.KV_ServiceDesc.Streams[0], services.KV_RangeStream_FullMethodName)
	if err != nil {
		return err
	}
	g := grpc.GenericClientStream[rpcpb.RangeRequest, rpcpb.RangeStreamResponse]{ClientStream: stream}
	if err := g.Send(s.req); err != nil && err != io.EOF {
		return err
	}
	if err := g.CloseSend(); err != nil {
		return err
	}
	for {
		m, err := g.Recv()
		if err == io.EOF {
			s.done = true
			return nil
		}
		if err != nil {
			return err
		}
		if !s.take(m.GetRangeResponse().GetKvs(), yield) {
			return nil
		}
	}
}

// page reads one page.
func (s *Scan) page(e *endpoint, yield func(*kvpb.KeyValue, error) bool) error {
	s.req.Limit = scanPage
	if s.left > 0 {
		s.req.Limit = min(s.left, scanPage)
	}
	resp := new(rpcpb.RangeResponse)
	a := s.c.try(s.ctx, e, rangeCall(s.req), s.req, resp, 0)
	s.token = a.token
	if a.err != nil {
		return a.err
	}
	if s.take(resp.Kvs, yield) && !resp.More {
		s.done = true
	}
	return nil
}

// take hands pairs on, remembers where to go on, and tells whether more are wanted.
func (s *Scan) take(kvs []*kvpb.KeyValue, yield func(*kvpb.KeyValue, error) bool) bool {
	limited := s.left > 0
	for _, kv := range kvs {
		// The next key in order is this one with a zero byte at its end.
		s.req.Key = append(append(make([]byte, 0, len(kv.Key)+1), kv.Key...), 0)
		if limited {
			s.left--
		}
		if len(s.req.RangeEnd) == 0 || limited && s.left == 0 {
			s.done = true
		}
		if !yield(kv, nil) {
			s.done = true
		}
		if s.done {
			return false
		}
	}
	return true
}

// failed decides about a failure: nil means to try again, which it has waited for.
func (s *Scan) failed(e *endpoint, err error, failures int) error {
	k := call{method: services.KV_RangeStream_FullMethodName, idempotent: true}
	if e == nil {
		return err
	}
	if s.ctx.Err() != nil {
		return &CallError{Method: k.method, Endpoint: e.name, Err: s.ctx.Err()}
	}
	if _, known := grpcerr.FromStatus(err).(*errs.Error); !known && status.Code(err) == codes.Unimplemented && !s.paged {
		s.paged = true
		return nil
	}
	v := s.c.judge(k, attempt{err: err})
	if v.renew && failures < 3 {
		s.c.tokens.expire(s.token)
		return nil
	}
	if v.err == errs.ErrNotSupportedForLearner && s.req.Serializable && !s.paged {
		s.paged = true // a learner does not stream, but reads
		return nil
	}
	if v.trouble {
		s.c.pool.setAside(e, err, false)
	}
	limit := s.c.opts.retry.MaxAttempts
	if !v.again || limit > 0 && failures >= limit {
		return conclude(k, e, v)
	}
	if !sleep(s.ctx, s.c.opts.retry.pause(failures, s.c.pool.size())) {
		return &CallError{Method: k.method, Endpoint: e.name, Err: s.ctx.Err(), Last: v.err}
	}
	return nil
}
