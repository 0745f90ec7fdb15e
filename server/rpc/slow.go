package rpc

import (
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/rpcpb"
)

// slowLog logs unary calls: slow ones as warnings, and all at level debug. Values, passwords and
// tokens never get into the log.
type slowLog struct {
	lg    *zap.Logger
	limit time.Duration // from which a call is slow; 0 or less: none is
}

// enabled reports whether any call may be logged, so that its time must be taken.
func (s *slowLog) enabled() bool { return s.limit > 0 || s.lg.Core().Enabled(zapcore.DebugLevel) }

// unary logs a call that took so long, if it should.
func (s *slowLog) unary(c *call, took time.Duration, reply any, err error) {
	level := zapcore.DebugLevel
	if s.limit > 0 && took > s.limit {
		level = zapcore.WarnLevel
	}
	entry := s.lg.Check(level, "request stats")
	if entry == nil {
		return
	}
	remote := "unknown"
	if p, ok := peer.FromContext(c.ctx); ok {
		remote = p.Addr.String()
	}
	entry.Write(
		zap.Time("start-time", c.begin), zap.Duration("time-spent", took), zap.String("remote", remote),
		zap.String("method", c.m.name), zap.Stringer("code", status.Code(err)),
		zap.Int("request-size", sizeOf(c.req)), zap.Int("response-size", sizeOf(reply)),
		zap.String("request-content", describe(c.req)),
	)
}

// sizeOf is the size of a message in bytes, -1 when that is not known any more.
func sizeOf(message any) int {
	if m, ok := message.(interface{ SizeVT() int }); ok {
		return m.SizeVT()
	}
	return -1
}

// maxDescribedOps is how many operations of a transaction are described.
const maxDescribedOps = 16

// describe tells what a request asks for, without values. Requests that might hold secrets are not described.
func describe(req any) string {
	switch r := req.(type) {
	case *rpcpb.RangeRequest:
		return "range(" + span(r.GetKey(), r.GetRangeEnd()) + fmt.Sprintf(" revision:%d limit:%d serializable:%t)", r.GetRevision(), r.GetLimit(), r.GetSerializable())
	case *rpcpb.PutRequest:
		return fmt.Sprintf("put(key:%q value_size:%d lease:%x)", r.GetKey(), len(r.GetValue()), uint64(r.GetLease()))
	case *rpcpb.DeleteRangeRequest:
		return "delete(" + span(r.GetKey(), r.GetRangeEnd()) + ")"
	case *rpcpb.TxnRequest:
		return describeTxn(r, 0)
	case *rpcpb.CompactionRequest:
		return fmt.Sprintf("compact(revision:%d physical:%t)", r.GetRevision(), r.GetPhysical())
	case interface{ GetID() int64 }: // about a lease
		return fmt.Sprintf("lease:%x", uint64(r.GetID()))
	}
	return ""
}

// span describes an interval of keys.
func span(key, end []byte) string {
	if len(end) == 0 {
		return fmt.Sprintf("key:%q", key)
	}
	return fmt.Sprintf("key:%q range_end:%q", key, end)
}

// describeTxn describes a transaction that is nested in depth others.
func describeTxn(r *rpcpb.TxnRequest, depth int) string {
	if depth > 2 {
		return "txn(...)"
	}
	var b strings.Builder
	b.WriteString("txn(compare:[")
	for i, c := range r.GetCompare() {
		if i == maxDescribedOps {
			b.WriteString(" ...")
			break
		}
		fmt.Fprintf(&b, " %s %s %s", c.GetTarget(), c.GetResult(), span(c.GetKey(), c.GetRangeEnd()))
	}
	b.WriteString(" ] success:[")
	describeOps(&b, r.GetSuccess(), depth)
	b.WriteString(" ] failure:[")
	describeOps(&b, r.GetFailure(), depth)
	b.WriteString(" ])")
	return b.String()
}

func describeOps(b *strings.Builder, ops []*rpcpb.RequestOp, depth int) {
	for i, op := range ops {
		if i == maxDescribedOps {
			b.WriteString(" ...")
			return
		}
		b.WriteByte(' ')
		switch r := op.GetRequest().(type) {
		case *rpcpb.RequestOp_RequestRange:
			b.WriteString(describe(r.RequestRange))
		case *rpcpb.RequestOp_RequestPut:
			b.WriteString(describe(r.RequestPut))
		case *rpcpb.RequestOp_RequestDeleteRange:
			b.WriteString(describe(r.RequestDeleteRange))
		case *rpcpb.RequestOp_RequestTxn:
			b.WriteString(describeTxn(r.RequestTxn, depth+1))
		}
	}
}
