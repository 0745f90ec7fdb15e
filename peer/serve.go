package peer

import (
	"context"
	"errors"
	"io"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/codec"
	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/pkg/raftcodec"
)

// handler answers other members: requests by the Service, streams itself.
type handler struct {
	Service
	services.UnsafePeerServer // a method that is added to the service must not compile unanswered
	t                         *Transport
}

func newServer(t *Transport) *grpc.Server {
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec.New()),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(connWindow),
		grpc.ReadBufferSize(ioBuffer), grpc.WriteBufferSize(ioBuffer),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		grpc.ConnectionTimeout(greetingTimeout),
		grpc.UnaryInterceptor(t.checkUnary),
	}
	if t.cfg.ServerTLS != nil {
		opts = append(opts, grpc.Creds(t.cfg.ServerTLS))
	}
	s := grpc.NewServer(opts...)
	services.RegisterPeerServer(s, handler{Service: t.cfg.Service, t: t})
	return s
}

// checkUnary lets only members of this cluster call, except for Info, which a
// member calls before it knows its cluster.
func (t *Transport) checkUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if info.FullMethod != services.Peer_Info_FullMethodName {
		if _, err := t.caller(ctx); err != nil {
			return nil, err
		}
	}
	return next(ctx, req)
}

// Stream takes another member's messages until it ends the stream.
func (h handler) Stream(s grpc.ClientStreamingServer[peerpb.Frame, peerpb.StreamAck]) error {
	from, err := h.t.caller(s.Context())
	if err != nil {
		return err
	}
	if err := s.SendHeader(h.t.welcome()); err != nil {
		return err
	}
	for {
		f, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(&peerpb.StreamAck{})
		}
		if err != nil {
			if b := h.t.cfg.Hooks.Broken; b != nil && h.t.ctx.Err() == nil {
				b(from)
			}
			return err
		}
		if h.t.cfg.Hooks.Received != nil {
			h.t.cfg.Hooks.Received(from, len(f.GetData()))
		}
		msgs, err := raftcodec.DecodeBatch(f.GetData())
		if err != nil {
			err = status.Errorf(codes.InvalidArgument, "peer: a frame of member %x is unreadable, do both run the same release? %v", from, err)
			h.t.logOnce(from, inbound, "refused a frame of another member", err)
			return err
		}
		h.t.cfg.Raft.Step(withoutSnapshots(msgs))
	}
}

// withoutSnapshots drops MsgSnap: raft may see it only when its file is
// stored, and here comes no file.
func withoutSnapshots(msgs []*raftpb.Message) []*raftpb.Message {
	keep := msgs[:0]
	for _, m := range msgs {
		if m.GetType() != raftpb.MsgSnap {
			keep = append(keep, m)
		}
	}
	return keep
}
