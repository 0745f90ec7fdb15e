package rpc

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coordd/coordd/api/rpcpb"
)

// Identity is what answers say about the member that gives them. All methods are cheap and may be
// called by any goroutine.
type Identity interface {
	ID() uint64        // of this member
	ClusterID() uint64 // of its cluster
	Term() uint64      // raft's, as this member knows it
	Revision() int64   // of the store, as readers see it
}

// complete fills in what a header, nil or with a revision only, says about the member; and the current
// revision if it has none yet.
func complete(id Identity, h *rpcpb.ResponseHeader) *rpcpb.ResponseHeader {
	if h == nil {
		h = new(rpcpb.ResponseHeader)
	}
	h.ClusterId, h.MemberId, h.RaftTerm = id.ClusterID(), id.ID(), id.Term()
	if h.Revision == 0 {
		h.Revision = id.Revision()
	}
	return h
}

// headerAt is a complete header with exactly this revision, also if it is 0.
func headerAt(id Identity, revision int64) *rpcpb.ResponseHeader {
	return &rpcpb.ResponseHeader{ClusterId: id.ClusterID(), MemberId: id.ID(), RaftTerm: id.Term(), Revision: revision}
}

// The numbers of the fields of rpcpb.ResponseHeader.
const (
	headerClusterID = 1
	headerMemberID  = 2
	headerRevision  = 3
	headerTerm      = 4
)

// appendHeader appends the encoding of headerAt(id, revision) as the message field with the number
// field, and that field's tag and length.
func appendHeader(dst []byte, field protowire.Number, id Identity, revision int64) []byte {
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	dst = append(dst, 0) // the length: four numbers and their tags are 44 bytes at most
	begin := len(dst)
	dst = appendVarintField(dst, headerClusterID, id.ClusterID())
	dst = appendVarintField(dst, headerMemberID, id.ID())
	dst = appendVarintField(dst, headerRevision, uint64(revision))
	dst = appendVarintField(dst, headerTerm, id.Term())
	dst[begin-1] = byte(len(dst) - begin)
	return dst
}

// appendVarintField appends a numeric field, unless it is 0, which is what its absence means.
func appendVarintField(dst []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.VarintType), v)
}
