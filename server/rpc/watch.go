package rpc

import (
	"context"
	"errors"
	"io"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/watch"
)

// WatchOptions are what the Watch service works with. Hub and Header are required.
type WatchOptions struct {
	Hub *watch.Hub
	// Header returns the header of a response: this member's ids and term, and exactly the revision given, also if that
	// is 0. Any goroutine may call it.
	Header func(revision int64) *rpcpb.ResponseHeader
	// Authorize reports whether the caller of a stream may read all keys from key to end, which are as in the API, but
	// key is never empty. It is called for each create; its error is the reason the client is told. nil = everybody may.
	Authorize func(ctx context.Context, key, end []byte) error
	// OnSend, if not nil, is told of each response: its events, 0 for an answer or notice, and how long sending took,
	// which is long when the client is slow.
	OnSend func(events int, progress bool, took time.Duration)
	// OnFail, if not nil, is told when a stream ends because receiving or sending failed, other than by the client's wish.
	OnFail func(sending bool)
	Logger *zap.Logger // nil = none
}

// WatchService is the Watch service of the API. One stream takes two goroutines: its handler, which sends, and one that
// receives; both end with the stream.
type WatchService struct {
	services.UnimplementedWatchServer
	o WatchOptions
}

var _ services.WatchServer = (*WatchService)(nil)

// NewWatch returns the service.
func NewWatch(o WatchOptions) *WatchService {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return &WatchService{o: o}
}

// Watch serves one stream until its client cancels it, its context ends, or the member stops. A client that only closes its
// sending side goes on receiving: that is what the HTTP gateway does with a watch.
func (s *WatchService) Watch(stream services.Watch_WatchServer) error {
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	ws := s.o.Hub.Open(watch.StreamOptions{})
	defer ws.Close()
	go s.receive(ctx, end, stream, ws)
	sender := watchSender{stream: stream, header: s.o.Header, onSend: s.o.OnSend}
	err, sending := sender.run(ctx, ws)
	err = endOfWatch(stream.Context(), ctx, err)
	if s.o.OnFail != nil && !errors.Is(err, errs.ErrWatchCanceled) && !errors.Is(err, errs.ErrStopped) {
		s.o.OnFail(sending)
	}
	return err
}

// endOfWatch translates what ended a stream. outer is the stream's context; the receiver may have ended ctx below it.
func endOfWatch(outer, ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if outer.Err() != nil {
		err = context.Cause(outer)
	}
	_, isStatus := status.FromError(err)
	switch {
	case errors.Is(err, context.Canceled), isStatus && status.Code(err) == codes.Canceled:
		return errs.ErrWatchCanceled
	case errors.Is(err, watch.ErrHubClosed), errors.Is(err, watch.ErrClosed):
		return errs.ErrStopped
	}
	var known *errs.Error
	if isStatus || errors.As(err, &known) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	// The member's own trouble, such as a file it cannot read. The client does best to go on elsewhere.
	return status.Error(codes.Unavailable, err.Error())
}

// receive handles the client's requests in order, until it sends no more or the stream ends.
func (s *WatchService) receive(ctx context.Context, end context.CancelCauseFunc, stream services.Watch_WatchServer, ws *watch.Stream) {
	for {
		ws.WaitRoom(ctx)
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			end(err)
			return
		}
		switch r := req.GetRequestUnion().(type) {
		case *rpcpb.WatchRequest_CreateRequest:
			s.create(ctx, ws, r.CreateRequest)
		case *rpcpb.WatchRequest_CancelRequest:
			ws.Cancel(r.CancelRequest.GetWatchId())
		case *rpcpb.WatchRequest_ProgressRequest:
			ws.RequestProgress()
		default:
			s.o.Logger.Debug("ignoring a watch request of a kind this server does not know")
		}
	}
}

// create makes a watcher or refuses it; either way there will be one answer.
func (s *WatchService) create(ctx context.Context, ws *watch.Stream, r *rpcpb.WatchCreateRequest) {
	o := watch.CreateOptions{
		ID: r.GetWatchId(), Key: r.GetKey(), End: r.GetRangeEnd(), Start: r.GetStartRevision(),
		PrevKV: r.GetPrevKv(), Progress: r.GetProgressNotify(), Fragment: r.GetFragment(),
	}
	if len(o.Key) == 0 {
		o.Key = []byte{0}
	}
	for _, f := range r.GetFilters() {
		switch f {
		case rpcpb.WatchCreateRequest_NOPUT:
			o.NoPut = true
		case rpcpb.WatchCreateRequest_NODELETE:
			o.NoDelete = true
		}
	}
	if s.o.Authorize != nil {
		if err := s.o.Authorize(ctx, o.Key, o.End); err != nil {
			// Clients know these reasons by the text that a status error prints as, unlike the ones below.
			ws.Refuse(grpcerr.ToStatus(err).Error())
			return
		}
	}
	if _, err := ws.Create(o); err != nil {
		ws.Refuse(err.Error())
	}
}
