package peer

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Metadata keys. Values are ids in hex.
const (
	keyCluster = "coordd-cluster"
	keyFrom    = "coordd-from"
	keyTo      = "coordd-to"
)

// withIdentity says in a call's metadata who calls whom.
func (t *Transport) withIdentity(ctx context.Context, to uint64) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs(
		keyCluster, hex(t.cfg.ClusterID), keyFrom, hex(t.cfg.MemberID), keyTo, hex(to)))
}

// caller checks who calls, and whether it means this member.
func (t *Transport) caller(ctx context.Context) (from uint64, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	cluster, err1 := id(md, keyCluster)
	from, err2 := id(md, keyFrom)
	to, err3 := id(md, keyTo)
	switch {
	case err1 != nil || err2 != nil || err3 != nil:
		return 0, status.Error(codes.InvalidArgument, "peer: the call does not say which member of which cluster calls; is its address a peer URL?")
	case cluster != t.cfg.ClusterID:
		err = status.Errorf(codes.FailedPrecondition, "peer: member %x of cluster %x called member %x of cluster %x: check the peer URLs of both clusters, and that each member runs on a data directory of its own cluster",
			from, cluster, t.cfg.MemberID, t.cfg.ClusterID)
	case to != t.cfg.MemberID:
		err = status.Errorf(codes.FailedPrecondition, "peer: member %x called member %x, but this is member %x: check the peer URL of member %x",
			from, to, t.cfg.MemberID, to)
	case from == t.cfg.MemberID:
		err = status.Errorf(codes.FailedPrecondition, "peer: another process calls as member %x, which is this one: two members share one data directory or its copy", from)
	case t.cfg.Admit != nil:
		if e := t.cfg.Admit(from); e != nil {
			err = status.Error(codes.PermissionDenied, e.Error())
		}
	}
	if err != nil {
		t.logOnce(from, inbound, "refused a call of another member", err)
		return 0, err
	}
	t.logOnce(from, inbound, "", nil)
	return from, nil
}

// welcome is what a stream's server answers first.
func (t *Transport) welcome() metadata.MD {
	return metadata.Pairs(keyCluster, hex(t.cfg.ClusterID), keyFrom, hex(t.cfg.MemberID))
}

// welcomed checks the answer of the member that was meant to be to.
func (t *Transport) welcomed(md metadata.MD, to uint64) error {
	cluster, err1 := id(md, keyCluster)
	from, err2 := id(md, keyFrom)
	if err1 != nil || err2 != nil {
		return fmt.Errorf("peer: what answered at the peer URL of member %x is no member", to)
	}
	if cluster != t.cfg.ClusterID || from != to {
		return fmt.Errorf("peer: member %x of cluster %x answered at the peer URL of member %x of cluster %x", from, cluster, to, t.cfg.ClusterID)
	}
	return nil
}

func id(md metadata.MD, key string) (uint64, error) {
	v := md.Get(key)
	if len(v) != 1 {
		return 0, fmt.Errorf("peer: %d values of %s", len(v), key)
	}
	return strconv.ParseUint(v[0], 16, 64)
}

func hex(id uint64) string { return strconv.FormatUint(id, 16) }
