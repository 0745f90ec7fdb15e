package rpc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/apply"
)

// full is the header of an answer at a revision.
func full(revision int64) *rpcpb.ResponseHeader {
	return &rpcpb.ResponseHeader{ClusterId: testCluster, MemberId: testID, RaftTerm: testTerm, Revision: revision}
}

// headed is an answer with a header.
type headed interface{ GetHeader() *rpcpb.ResponseHeader }

// TestHeaders checks the header of every unary answer.
func TestHeaders(t *testing.T) {
	s := serve(t, nil)
	ctx, c := with(t), s.conn
	kv, lc := services.NewKVClient(c), services.NewLeaseClient(c)
	cc, mc, ac := services.NewClusterClient(c), services.NewMaintenanceClient(c), services.NewAuthClient(c)
	k := []byte("k")
	now := func() int64 { return s.Revision() }
	for _, call := range []struct {
		name string
		do   func() (headed, error)
		want *rpcpb.ResponseHeader
	}{
		{"put", func() (headed, error) { return kv.Put(ctx, &rpcpb.PutRequest{Key: k}) }, full(2)},
		{"old range", func() (headed, error) { return kv.Range(ctx, &rpcpb.RangeRequest{Key: k, Revision: 1}) }, full(2)},
		{"delete nothing", func() (headed, error) { return kv.DeleteRange(ctx, &rpcpb.DeleteRangeRequest{Key: []byte("x")}) }, full(2)},
		{"delete", func() (headed, error) { return kv.DeleteRange(ctx, &rpcpb.DeleteRangeRequest{Key: k}) }, full(3)},
		{"empty txn", func() (headed, error) { return kv.Txn(ctx, &rpcpb.TxnRequest{}) }, full(3)},
		{"compact", func() (headed, error) { return kv.Compact(ctx, &rpcpb.CompactionRequest{Revision: 2}) }, full(3)},
		{"grant", func() (headed, error) { return lc.LeaseGrant(ctx, &rpcpb.LeaseGrantRequest{ID: 5, TTL: 60}) }, full(3)},
		{"time to live", func() (headed, error) { return lc.LeaseTimeToLive(ctx, &rpcpb.LeaseTimeToLiveRequest{ID: 5}) }, full(3)},
		{"leases", func() (headed, error) { return lc.LeaseLeases(ctx, &rpcpb.LeaseLeasesRequest{}) }, full(3)},
		{"revoke", func() (headed, error) { return lc.LeaseRevoke(ctx, &rpcpb.LeaseRevokeRequest{ID: 5}) }, full(3)},
		{"members", func() (headed, error) { return cc.MemberList(ctx, &rpcpb.MemberListRequest{}) }, full(0)},
		{"status", func() (headed, error) { return mc.Status(ctx, &rpcpb.StatusRequest{}) }, full(3)},
		{"alarm", func() (headed, error) { return mc.Alarm(ctx, &rpcpb.AlarmRequest{}) }, full(3)},
		{"hash", func() (headed, error) { return mc.Hash(ctx, &rpcpb.HashRequest{}) }, full(3)},
		{"hashkv", func() (headed, error) { return mc.HashKV(ctx, &rpcpb.HashKVRequest{Revision: 2}) }, full(3)},
		{"move leader", func() (headed, error) { return mc.MoveLeader(ctx, &rpcpb.MoveLeaderRequest{TargetID: 9}) }, nil},
		{"auth status", func() (headed, error) { return ac.AuthStatus(ctx, &rpcpb.AuthStatusRequest{}) }, full(3)},
		{"auth disable", func() (headed, error) { return ac.AuthDisable(ctx, &rpcpb.AuthDisableRequest{}) }, full(3)},
	} {
		resp, err := call.do()
		if err != nil {
			t.Errorf("%s: %v", call.name, err)
			continue
		}
		if !proto.Equal(resp.GetHeader(), call.want) {
			t.Errorf("%s: header %v, want %v", call.name, resp.GetHeader(), call.want)
		}
	}
	if s.moved != 9 || now() != 3 {
		t.Errorf("leader moved to %d, revision %d", s.moved, now())
	}
}

// TestTxnHeaders: headers within a transaction have their revision only, those of nested transactions nothing.
func TestTxnHeaders(t *testing.T) {
	s := serve(t, nil)
	put := &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestPut{RequestPut: &rpcpb.PutRequest{Key: []byte("k")}}}
	nested := &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestTxn{RequestTxn: &rpcpb.TxnRequest{}}}
	resp, err := services.NewKVClient(s.conn).Txn(with(t), &rpcpb.TxnRequest{Success: []*rpcpb.RequestOp{put, nested}})
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(resp.Header, full(2)) {
		t.Errorf("header %v", resp.Header)
	}
	if h := resp.Responses[0].GetResponsePut().GetHeader(); !proto.Equal(h, &rpcpb.ResponseHeader{Revision: 2}) {
		t.Errorf("header of the put: %v", h)
	}
	if h := resp.Responses[1].GetResponseTxn().GetHeader(); !proto.Equal(h, &rpcpb.ResponseHeader{}) {
		t.Errorf("header of the nested transaction: %v", h)
	}
}

// TestErrors checks what errors of the node look like to clients.
func TestErrors(t *testing.T) {
	s := serve(t, nil)
	kv := services.NewKVClient(s.conn)
	for _, c := range []struct {
		err  error
		code codes.Code
		text string
	}{
		{fmt.Errorf("reading: %w", errs.ErrCompacted), codes.OutOfRange, "etcdserver: mvcc: required revision has been compacted"},
		{errs.ErrTooManyRequests, codes.Unknown, "etcdserver: too many requests"},
		{errs.ErrNoLeader, codes.Unavailable, "etcdserver: no leader"},
		{fmt.Errorf("waiting: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "waiting: context deadline exceeded"},
		{errors.New("disk on fire"), codes.Unknown, "disk on fire"},
		{status.Error(codes.Aborted, "as it is"), codes.Aborted, "as it is"},
	} {
		s.onRange = func(*rpcpb.RangeRequest) error { return c.err }
		_, err := kv.Range(with(t), &rpcpb.RangeRequest{Key: []byte("k")})
		if status.Code(err) != c.code || status.Convert(err).Message() != c.text {
			t.Errorf("unary, %v: got %v", c.err, err)
		}
		_, _, err = gather(kv.RangeStream(with(t), &rpcpb.RangeRequest{Key: []byte("k")}))
		if status.Code(err) != c.code || status.Convert(err).Message() != c.text {
			t.Errorf("stream, %v: got %v", c.err, err)
		}
	}
}

// TestChecks: malformed requests do not get to the node.
func TestChecks(t *testing.T) {
	s := serve(t, func(c *Config) { c.MaxTxnOps = 2 })
	kv := services.NewKVClient(s.conn)
	s.onRange = func(*rpcpb.RangeRequest) error { t.Error("the node was asked"); return nil }
	op := &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestPut{RequestPut: &rpcpb.PutRequest{Key: []byte("k")}}}
	for want, call := range map[*errs.Error]func() error{
		errs.ErrEmptyKey: func() error { _, err := kv.Range(with(t), &rpcpb.RangeRequest{}); return err },
		errs.ErrInvalidSortOption: func() error {
			_, err := kv.Range(with(t), &rpcpb.RangeRequest{Key: []byte("k"), SortOrder: 7})
			return err
		},
		errs.ErrValueProvided: func() error {
			_, err := kv.Put(with(t), &rpcpb.PutRequest{Key: []byte("k"), Value: []byte("v"), IgnoreValue: true})
			return err
		},
		errs.ErrDuplicateKey: func() error {
			_, err := kv.Txn(with(t), &rpcpb.TxnRequest{Success: []*rpcpb.RequestOp{op, op}})
			return err
		},
		errs.ErrTooManyOps: func() error {
			_, err := kv.Txn(with(t), &rpcpb.TxnRequest{Failure: []*rpcpb.RequestOp{op, op, op}})
			return err
		},
	} {
		if err := call(); !errors.Is(grpcerr.FromStatus(err), want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if _, err := kv.DeleteRange(with(t), &rpcpb.DeleteRangeRequest{}); !errors.Is(grpcerr.FromStatus(err), errs.ErrEmptyKey) {
		t.Errorf("delete without key: %v", err)
	}
	if s.Revision() != 1 {
		t.Errorf("revision %d", s.Revision())
	}
}

// TestTooLarge: gRPC refuses what is far beyond the limit of requests.
func TestTooLarge(t *testing.T) {
	s := serve(t, func(c *Config) { c.MaxRequestBytes = 1000 })
	kv := services.NewKVClient(s.conn)
	if _, err := kv.Put(with(t), &rpcpb.PutRequest{Key: []byte("k"), Value: make([]byte, receiveOverhead)}); err != nil {
		t.Errorf("below the limit of the transport: %v", err)
	}
	_, err := kv.Put(with(t), &rpcpb.PutRequest{Key: []byte("k"), Value: make([]byte, receiveOverhead+2000)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("above: %v", err)
	}
}

// TestNotThereYet: calls without an implementation say so, in words.
func TestNotThereYet(t *testing.T) {
	s := serve(t, nil)
	ctx := with(t)
	cc, mc, ac := services.NewClusterClient(s.conn), services.NewMaintenanceClient(s.conn), services.NewAuthClient(s.conn)
	for name, call := range map[string]func() error{
		"add":        func() error { _, err := cc.MemberAdd(ctx, &rpcpb.MemberAddRequest{}); return err },
		"remove":     func() error { _, err := cc.MemberRemove(ctx, &rpcpb.MemberRemoveRequest{}); return err },
		"update":     func() error { _, err := cc.MemberUpdate(ctx, &rpcpb.MemberUpdateRequest{}); return err },
		"promote":    func() error { _, err := cc.MemberPromote(ctx, &rpcpb.MemberPromoteRequest{}); return err },
		"defragment": func() error { _, err := mc.Defragment(ctx, &rpcpb.DefragmentRequest{}); return err },
		"downgrade":  func() error { _, err := mc.Downgrade(ctx, &rpcpb.DowngradeRequest{}); return err },
		"enable":     func() error { _, err := ac.AuthEnable(ctx, &rpcpb.AuthEnableRequest{}); return err },
		"user":       func() error { _, err := ac.UserAdd(ctx, &rpcpb.AuthUserAddRequest{}); return err },
		"roles":      func() error { _, err := ac.RoleList(ctx, &rpcpb.AuthRoleListRequest{}); return err },
	} {
		if err := call(); status.Code(err) != codes.Unimplemented || !bytes.Contains([]byte(err.Error()), []byte("not there yet")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	resp, err := ac.AuthStatus(ctx, &rpcpb.AuthStatusRequest{})
	if err != nil || resp.Enabled || resp.AuthRevision != 1 {
		t.Errorf("auth status: %v, %v", resp, err)
	}
	if _, err := ac.Authenticate(ctx, &rpcpb.AuthenticateRequest{}); !errors.Is(grpcerr.FromStatus(err), errs.ErrAuthNotEnabled) {
		t.Errorf("authenticate: %v", err)
	}
}

// TestAlarms raises, lists and clears alarms.
func TestAlarms(t *testing.T) {
	s := serve(t, nil)
	mc := services.NewMaintenanceClient(s.conn)
	alarm := func(action rpcpb.AlarmRequest_AlarmAction, member uint64, typ rpcpb.AlarmType) int {
		t.Helper()
		resp, err := mc.Alarm(with(t), &rpcpb.AlarmRequest{Action: action, MemberID: member, Alarm: typ})
		if err != nil {
			t.Fatal(err)
		}
		return len(resp.Alarms)
	}
	got := []int{
		alarm(rpcpb.AlarmRequest_ACTIVATE, 7, rpcpb.AlarmType_NOSPACE),
		alarm(rpcpb.AlarmRequest_GET, 0, rpcpb.AlarmType_NONE),
		alarm(rpcpb.AlarmRequest_GET, 0, rpcpb.AlarmType_CORRUPT),
		alarm(rpcpb.AlarmRequest_DEACTIVATE, 8, rpcpb.AlarmType_NOSPACE),
		alarm(rpcpb.AlarmRequest_DEACTIVATE, 7, rpcpb.AlarmType_NOSPACE),
		alarm(rpcpb.AlarmRequest_GET, 0, rpcpb.AlarmType_NONE),
	}
	if fmt.Sprint(got) != "[1 1 0 0 1 0]" {
		t.Errorf("numbers of alarms in the answers: %v", got)
	}
}

// TestSnapshot receives a snapshot and opens it.
func TestSnapshot(t *testing.T) {
	s := serve(t, nil)
	for i := range 50 {
		s.mustPut(t, fmt.Sprintf("k%d", i), string(make([]byte, 5000)))
	}
	stream, err := services.NewMaintenanceClient(s.conn).Snapshot(with(t), &rpcpb.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var messages []*rpcpb.SnapshotResponse
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, m)
	}
	sum := messages[len(messages)-1]
	var data []byte
	for _, m := range messages[:len(messages)-1] {
		data = append(data, m.Blob...)
	}
	left := uint64(len(data))
	for i, m := range messages {
		if i < len(messages)-1 {
			left -= uint64(len(m.Blob))
		}
		if m.RemainingBytes != left || m.Header != nil || m.Version != "3.7.0" {
			t.Errorf("message %d: %d bytes remaining, want %d; header %v, version %q", i, m.RemainingBytes, left, m.Header, m.Version)
		}
	}
	if want := sha256.Sum256(data); left != 0 || !bytes.Equal(sum.Blob, want[:]) {
		t.Errorf("%d bytes left, sum %x, want %x", left, sum.Blob, want)
	}
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := apply.Open(path, apply.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := m.KV.Revision(); got != s.Revision() {
		t.Errorf("the snapshot is at revision %d, the member at %d", got, s.Revision())
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// TestHealth: the health service answers for the whole server.
func TestHealth(t *testing.T) {
	s := serve(t, nil)
	hc := healthpb.NewHealthClient(s.conn)
	for _, serving := range []bool{true, false, true} {
		s.SetServing(serving)
		resp, err := hc.Check(with(t), &healthpb.HealthCheckRequest{})
		if err != nil || (resp.Status == healthpb.HealthCheckResponse_SERVING) != serving {
			t.Errorf("serving %t: %v, %v", serving, resp, err)
		}
	}
	if _, err := hc.Check(with(t), &healthpb.HealthCheckRequest{Service: "etcdserverpb.KV"}); status.Code(err) != codes.NotFound {
		t.Errorf("another service: %v", err)
	}
}
