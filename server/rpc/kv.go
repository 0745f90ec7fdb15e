package rpc

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coordd/coordd/api/codec"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/apply/check"
	"github.com/coordd/coordd/mvcc/query"
)

// Keys reads and writes the key space. Requests have passed package apply/check. Of the headers of
// answers only the revision is set. Any goroutine may call it.
type Keys interface {
	// Range reads; visit gets each row, an encoded kvpb.KeyValue that is valid during the call only.
	Range(ctx context.Context, r *rpcpb.RangeRequest, visit func(row []byte) error) (query.Result, error)
	Put(ctx context.Context, r *rpcpb.PutRequest) (*rpcpb.PutResponse, error)
	DeleteRange(ctx context.Context, r *rpcpb.DeleteRangeRequest) (*rpcpb.DeleteRangeResponse, error)
	Txn(ctx context.Context, r *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error)
	// TxnLater is Txn for a caller who gains nothing by a quick answer.
	TxnLater(ctx context.Context, r *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error)
	Compact(ctx context.Context, r *rpcpb.CompactionRequest) (*rpcpb.CompactionResponse, error)
}

// KVService is the KV service of the API. Its methods may be called by any goroutine, also without gRPC.
type KVService struct {
	services.UnimplementedKVServer
	keys      Keys
	id        Identity
	maxTxnOps int
	chunk     int // bytes that a message of a RangeStream should have, about
	pieces    piecePool
	buffers   sync.Pool // of *rowBuffer
}

var _ services.KVServer = (*KVService)(nil)

// NewKV returns the service. maxTxnOps bounds the operations of a transaction; chunkBytes is the size that the
// messages of a RangeStream are kept near to.
func NewKV(keys Keys, id Identity, maxTxnOps, chunkBytes int) *KVService {
	return &KVService{keys: keys, id: id, maxTxnOps: maxTxnOps, chunk: chunkBytes}
}

// buffer gives a rowBuffer without rows, for a call with this context.
func (s *KVService) buffer(ctx context.Context) *rowBuffer {
	b, ok := s.buffers.Get().(*rowBuffer)
	if !ok {
		b = &rowBuffer{pieces: &s.pieces}
		b.add = b.addRow
	}
	b.ctx, b.rows, b.keep = ctx, 0, false
	return b
}

// release takes a rowBuffer back, whatever is in it.
func (s *KVService) release(b *rowBuffer) {
	b.discard()
	b.ctx = nil
	s.buffers.Put(b)
}

// Range reads the keys of an interval and gives them decoded, for callers in this process. Over
// gRPC [KVService.rangeEncoded] answers.
func (s *KVService) Range(ctx context.Context, r *rpcpb.RangeRequest) (*rpcpb.RangeResponse, error) {
	if err := check.Range(r); err != nil {
		return nil, err
	}
	resp := new(rpcpb.RangeResponse)
	res, err := s.keys.Range(ctx, r, func(row []byte) error {
		kv := new(kvpb.KeyValue)
		resp.Kvs = append(resp.Kvs, kv)
		return kv.UnmarshalVTUnsafe(slices.Clone(row))
	})
	if err != nil {
		return nil, err
	}
	resp.Header = headerAt(s.id, res.Rev)
	resp.Count, resp.More = res.Count, res.More
	return resp, nil
}

// The numbers of the fields of rpcpb.RangeResponse besides fieldKvs.
const (
	fieldRangeHeader = 1
	fieldMore        = 3
	fieldCount       = 4
)

// rangeEncoded is Range with the answer encoded, made of the rows as they are stored.
func (s *KVService) rangeEncoded(ctx context.Context, r *rpcpb.RangeRequest) (codec.Encoded, error) {
	if err := check.Range(r); err != nil {
		return nil, err
	}
	b := s.buffer(ctx)
	defer s.release(b)
	res, err := s.keys.Range(ctx, r, b.add)
	if err != nil {
		return nil, err
	}
	head := appendHeader(b.head[:0], fieldRangeHeader, s.id, res.Rev)
	return b.message(head, appendRangeTail(b.tail[:0], res.More, res.Count)), nil
}

// appendRangeTail appends the fields of a rpcpb.RangeResponse that come after the rows.
func appendRangeTail(dst []byte, more bool, count int64) []byte {
	return appendVarintField(appendVarintField(dst, fieldMore, protowire.EncodeBool(more)), fieldCount, uint64(count))
}

// rangeHandler is the handler of KV.Range for gRPC.
func rangeHandler(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	r := new(rpcpb.RangeRequest)
	if err := dec(r); err != nil {
		return nil, err
	}
	s := srv.(*KVService)
	if interceptor == nil {
		return s.rangeEncoded(ctx, r)
	}
	info := &grpc.UnaryServerInfo{Server: srv, FullMethod: services.KV_Range_FullMethodName}
	return interceptor(ctx, r, info, func(ctx context.Context, req any) (any, error) {
		return s.rangeEncoded(ctx, req.(*rpcpb.RangeRequest))
	})
}

// kvDesc is the description of service KV with Range answered by rangeHandler.
func kvDesc() *grpc.ServiceDesc {
	d := services.KV_ServiceDesc
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		if d.Methods[i].MethodName == "Range" {
			d.Methods[i].Handler = rangeHandler
		}
	}
	return &d
}

// Put writes one key.
func (s *KVService) Put(ctx context.Context, r *rpcpb.PutRequest) (*rpcpb.PutResponse, error) {
	if err := check.Put(r); err != nil {
		return nil, err
	}
	resp, err := s.keys.Put(ctx, r)
	if err != nil {
		return nil, err
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}

// DeleteRange deletes the keys of an interval.
func (s *KVService) DeleteRange(ctx context.Context, r *rpcpb.DeleteRangeRequest) (*rpcpb.DeleteRangeResponse, error) {
	if err := check.DeleteRange(r); err != nil {
		return nil, err
	}
	resp, err := s.keys.DeleteRange(ctx, r)
	if err != nil {
		return nil, err
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}

// Txn runs a transaction. The headers of the answers in it stay as the node made them.
func (s *KVService) Txn(ctx context.Context, r *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error) {
	if err := check.Txn(r, s.maxTxnOps); err != nil {
		return nil, err
	}
	resp, err := s.keys.Txn(ctx, r)
	if err != nil {
		return nil, err
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}

// Compact gives up history.
func (s *KVService) Compact(ctx context.Context, r *rpcpb.CompactionRequest) (*rpcpb.CompactionResponse, error) {
	resp, err := s.keys.Compact(ctx, r)
	if err != nil {
		return nil, err
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}
