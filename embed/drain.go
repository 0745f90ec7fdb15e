package embed

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/coordd/coordd/api/errs"
)

// drain ends streams when a node closes: a watch never ends by itself, and would hold up an orderly end. The
// clients are told that the server stops, and go on elsewhere.
//
// mu guards streams and ended; it is a leaf.
type drain struct {
	mu      sync.Mutex
	ended   bool
	streams map[*drained]struct{}
}

// drained is a stream whose context the drain can end.
type drained struct {
	grpc.ServerStream
	ctx context.Context
	end context.CancelCauseFunc
}

// Context ends with the stream, or when the node closes.
func (s *drained) Context() context.Context { return s.ctx }

// intercept is the interceptor of all streams.
func (d *drain) intercept(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	s := &drained{ServerStream: ss}
	s.ctx, s.end = context.WithCancelCause(ss.Context())
	defer s.end(nil)
	d.add(s)
	defer d.remove(s)
	return handler(srv, s)
}

func (d *drain) add(s *drained) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		s.end(errs.ErrStopped)
		return
	}
	if d.streams == nil {
		d.streams = map[*drained]struct{}{}
	}
	d.streams[s] = struct{}{}
}

func (d *drain) remove(s *drained) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.streams, s)
}

// run ends all streams, and those that come later.
func (d *drain) run() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	for s := range d.streams {
		s.end(errs.ErrStopped)
	}
}
