package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/tests/cluster"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// frames is a codec that sends and gives bytes as they are.
type frames struct{}

func (frames) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (frames) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (frames) Name() string { return "proto" }

// target is one process, with a key in it that must outlive all requests.
type target struct {
	member *cluster.Member
	etcd   *clientv3.Client
	conn   *grpc.ClientConn
	rev    int64
}

func newTarget(t *testing.T) *target {
	t.Helper()
	m := cluster.NewMember(t, "m")
	m.Restart(t)
	x := &target{member: m, etcd: memberClient(t, m)}
	x.conn = must(grpc.NewClient(strings.TrimPrefix(m.ClientURL, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { _ = x.conn.Close() })
	x.rev = must(x.etcd.Put(limited(t), "canary", "alive"))(t).Header.Revision
	return x
}

// call sends bytes to a method.
func (x *target) call(ctx context.Context, method string, request []byte) ([]byte, error) {
	var answer []byte
	err := x.conn.Invoke(ctx, method, &request, &answer, grpc.ForceCodec(frames{}))
	return answer, err
}

// check fails unless the process lives and the key is as it was.
func (x *target) check(t *testing.T) {
	t.Helper()
	got, err := x.etcd.Get(limited(t), "canary")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "alive" || got.Kvs[0].ModRevision != x.rev {
		t.Errorf("the key that was there before: %v, %v", got, err)
	}
	if err := x.member.Crashed(); err != nil || !x.member.Running() {
		t.Fatalf("the process has ended: %v", err)
	}
}

func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	return must(proto.Marshal(m))(t)
}

// Fields that nobody knows are passed over.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	request := encode(t, &pb.PutRequest{Key: []byte("k"), Value: []byte("v")})
	request = protowire.AppendTag(request, 999, protowire.VarintType)
	request = protowire.AppendVarint(request, 1<<60)
	request = protowire.AppendTag(request, 1000, protowire.BytesType)
	request = protowire.AppendString(request, "from the future")
	request = protowire.AppendTag(request, 1001, protowire.Fixed64Type)
	request = protowire.AppendFixed64(request, 7)
	answer := must(x.call(limited(t), "/etcdserverpb.KV/Put", request))(t)
	var put pb.PutResponse
	if err := proto.Unmarshal(answer, &put); err != nil || put.Header.Revision != x.rev+1 {
		t.Errorf("the answer to a put with unknown fields is %v, %v", &put, err)
	}
	nested := encode(t, &pb.RangeRequest{Key: []byte("k")})
	nested = protowire.AppendTag(nested, 12345, protowire.VarintType)
	nested = protowire.AppendVarint(nested, 1)
	var txn []byte // success: one operation, a range with an unknown field
	op := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), nested)
	txn = protowire.AppendBytes(protowire.AppendTag(txn, 2, protowire.BytesType), op)
	answer = must(x.call(limited(t), "/etcdserverpb.KV/Txn", txn))(t)
	var got pb.TxnResponse
	if err := proto.Unmarshal(answer, &got); err != nil || string(got.Responses[0].GetResponseRange().Kvs[0].Value) != "v" {
		t.Errorf("the answer to a transaction with unknown fields is %v, %v", &got, err)
	}
	x.check(t)
}

// unary are methods that take one message. Those that may change members are left out.
var unary = []string{
	"/etcdserverpb.KV/Range", "/etcdserverpb.KV/Put", "/etcdserverpb.KV/DeleteRange", "/etcdserverpb.KV/Txn", "/etcdserverpb.KV/Compact", "/etcdserverpb.KV/RangeStream",
	"/etcdserverpb.Lease/LeaseGrant", "/etcdserverpb.Lease/LeaseRevoke", "/etcdserverpb.Lease/LeaseTimeToLive", "/etcdserverpb.Lease/LeaseLeases", "/etcdserverpb.Lease/LeaseKeepAlive",
	"/etcdserverpb.Watch/Watch", "/etcdserverpb.Cluster/MemberList", "/etcdserverpb.Maintenance/Status", "/etcdserverpb.Maintenance/Hash", "/etcdserverpb.Maintenance/HashKV",
	"/etcdserverpb.Maintenance/MoveLeader", "/etcdserverpb.Maintenance/Downgrade", "/etcdserverpb.Auth/RoleGrantPermission", "/etcdserverpb.Auth/Authenticate", "/etcdserverpb.Auth/UserAdd",
	"/v3lockpb.Lock/Unlock", "/v3electionpb.Election/Leader", "/v3electionpb.Election/Proclaim", "/no.such.Service/Method", "/etcdserverpb.KV/NoSuchMethod",
}

// Bytes that are no message, and messages of chance, are answered, and break nothing.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	rng := rand.New(rand.NewPCG(1, 2))
	requests := [][]byte{
		{0xff}, {0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}, {0x0a, 0x05, 'x'}, // no tag, no length, too short
		{0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, // a number of 11 bytes
		{0x0f}, {0x0b}, {0x00, 0x00}, // kinds and numbers of fields that do not exist
	}
	broken := len(requests)
	for range 40 {
		b := make([]byte, rng.IntN(40))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		requests = append(requests, b)
	}
	for _, method := range unary {
		for i, r := range requests {
			if i >= broken && strings.HasSuffix(method, "/DeleteRange") { // one drawn by chance might delete the key
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, err := x.call(ctx, method, r)
			cancel()
			if i < broken && (err == nil || status.Code(err) == codes.Unavailable) && !strings.Contains(method, "Stream") {
				t.Errorf("%s answers % x with %v", method, r, err)
			}
		}
		x.check(t)
		if t.Failed() {
			t.Fatalf("after %s", method)
		}
	}
}

// Requests that are messages and make no sense get the error of the API.
func TestSenselessRequests(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	deep := &pb.TxnRequest{}
	for range 40 {
		deep = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: deep}}}}
	}
	for name, c := range map[string]struct {
		method  string
		request proto.Message
		want    []codes.Code
	}{
		"sort target":     {"/etcdserverpb.KV/Range", &pb.RangeRequest{Key: []byte("k"), SortTarget: 100, SortOrder: 1}, []codes.Code{codes.InvalidArgument, codes.OK}},
		"sort order":      {"/etcdserverpb.KV/Range", &pb.RangeRequest{Key: []byte("k"), SortOrder: 100}, []codes.Code{codes.InvalidArgument, codes.OK}},
		"no key":          {"/etcdserverpb.KV/Range", &pb.RangeRequest{}, []codes.Code{codes.InvalidArgument}},
		"no operation":    {"/etcdserverpb.KV/Txn", &pb.TxnRequest{Success: []*pb.RequestOp{{}}}, []codes.Code{codes.InvalidArgument, codes.OK}},
		"compare of what": {"/etcdserverpb.KV/Txn", &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("k"), Target: 77, Result: 88}}}, []codes.Code{codes.InvalidArgument, codes.OK}},
		"compare no key":  {"/etcdserverpb.KV/Txn", &pb.TxnRequest{Compare: []*pb.Compare{{}}}, []codes.Code{codes.InvalidArgument}},
		"deep":            {"/etcdserverpb.KV/Txn", deep, []codes.Code{codes.OK, codes.InvalidArgument}},
		"negative limit":  {"/etcdserverpb.KV/Range", &pb.RangeRequest{Key: []byte("canary"), Limit: -7}, []codes.Code{codes.OK, codes.InvalidArgument}},
		"negative ttl":    {"/etcdserverpb.Lease/LeaseGrant", &pb.LeaseGrantRequest{TTL: -100}, []codes.Code{codes.OK}},
		"endless ttl":     {"/etcdserverpb.Lease/LeaseGrant", &pb.LeaseGrantRequest{TTL: 1 << 62}, []codes.Code{codes.OutOfRange}},
		"negative revision of a hash": {"/etcdserverpb.Maintenance/HashKV", &pb.HashKVRequest{Revision: -9},
			[]codes.Code{codes.OK, codes.InvalidArgument, codes.OutOfRange}},
		"compact to a negative revision": {"/etcdserverpb.KV/Compact", &pb.CompactionRequest{Revision: -9}, []codes.Code{codes.OutOfRange, codes.OK}},
		"role without permission":        {"/etcdserverpb.Auth/RoleGrantPermission", &pb.AuthRoleGrantPermissionRequest{Name: "r"}, []codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented}},
		"alarm of no kind":               {"/etcdserverpb.Maintenance/Alarm", &pb.AlarmRequest{Action: 1}, []codes.Code{codes.OK, codes.InvalidArgument, codes.Unimplemented}},
		"alarm with no action":           {"/etcdserverpb.Maintenance/Alarm", &pb.AlarmRequest{Action: 99}, []codes.Code{codes.OK, codes.InvalidArgument, codes.Unimplemented}},
	} {
		_, err := x.call(limited(t), c.method, encode(t, c.request))
		got, ok := status.Code(err), false
		for _, want := range c.want {
			ok = ok || got == want
		}
		if !ok {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		x.check(t)
	}
	ctx := metadata.AppendToOutgoingContext(limited(t), "client-api-version-bin", "\xff\xfe", "hasleader", "maybe")
	if _, err := x.call(ctx, "/etcdserverpb.KV/Range", encode(t, &pb.RangeRequest{Key: []byte("canary")})); err != nil {
		t.Errorf("odd metadata: %v", err)
	}
	x.check(t)
}

// Transactions nested as deep as fit into a message are refused or done; they do not exhaust the stack.
func TestDeepNesting(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	for _, depth := range []int{1_000, 50_000, 150_000} {
		_, err := x.call(limited(t), "/etcdserverpb.KV/Txn", nestedTxn(depth))
		t.Logf("%d deep: %.100v", depth, err)
		if status.Code(err) == codes.Unavailable || status.Code(err) == codes.DeadlineExceeded {
			t.Errorf("%d deep: %v", depth, err)
		}
		x.check(t)
	}
}

// nestedTxn encodes transactions in one another without recursion.
func nestedTxn(depth int) []byte {
	// Built from the innermost: each level prepends tag and length of the operation and of the list it is in.
	size := 0
	var heads [][]byte
	for range depth {
		var head []byte
		op := protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.BytesType), uint64(size)) // RequestOp.request_txn
		head = protowire.AppendVarint(protowire.AppendTag(head, 2, protowire.BytesType), uint64(size+len(op)))
		head = append(head, op...)
		heads = append(heads, head)
		size += len(head)
	}
	all := make([]byte, 0, size)
	for i := len(heads) - 1; i >= 0; i-- {
		all = append(all, heads[i]...)
	}
	return all
}

// Requests above the limit get the error for it; a bit above, from the API; far above, from the transport.
func TestOversizedRequests(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	big := must(clientv3.New(clientv3.Config{Endpoints: []string{x.member.ClientURL}, MaxCallSendMsgSize: 64 << 20}))(t)
	defer big.Close()
	const limit = 1536 << 10
	must(big.Put(limited(t), "fits", strings.Repeat("v", limit-1000)))(t)
	for _, over := range []int{1, 400 << 10} {
		if _, err := big.Put(limited(t), "k", strings.Repeat("v", limit+over)); !errors.Is(err, rpctypes.ErrRequestTooLarge) {
			t.Errorf("%d bytes above the limit: %v", over, err)
		}
		ops := []clientv3.Op{clientv3.OpPut("a", strings.Repeat("v", limit/2)), clientv3.OpPut("b", strings.Repeat("v", limit/2+over))}
		if _, err := big.Txn(limited(t)).Then(ops...).Commit(); !errors.Is(err, rpctypes.ErrRequestTooLarge) {
			t.Errorf("a transaction %d bytes above the limit: %v", over, err)
		}
	}
	if _, err := big.Put(limited(t), "k", strings.Repeat("v", 32<<20)); status.Code(err) != codes.ResourceExhausted && !strings.Contains(fmt.Sprint(err), "larger than max") {
		t.Errorf("32 MiB: %v", err)
	}
	got := must(x.etcd.Get(limited(t), "k", clientv3.WithFromKey(), clientv3.WithCountOnly()))(t)
	if got.Count != 0 {
		t.Error("a request that was refused has been applied")
	}
	x.check(t)
}

// What is no gRPC at all, on the client port and on the one for members.
func TestAlienTraffic(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	rng := rand.New(rand.NewPCG(3, 4))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for _, url := range []string{x.member.ClientURL, x.member.PeerURL} {
		for name, bytes := range map[string]string{
			"noise": string(noise), "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "nothing": "", "half a preface": "PRI * HTTP/2.0\r\n\r\nSM",
			"preface and noise": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + string(noise), "HTTP without host": "GET / HTTP/1.1\r\n\r\n", "long line": "GET /" + strings.Repeat("x", 100_000),
		} {
			conn := must(net.Dial("tcp", strings.TrimPrefix(url, "http://")))(t)
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			_, _ = conn.Write([]byte(bytes)) // the other side may close at any time
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
			x.check(t)
			if t.Failed() {
				t.Fatalf("after %s to %s", name, url)
			}
		}
	}
	for path, code := range map[string]int{"/health": 200, "/version": 200, "/metrics": 200, "/livez": 200, "/readyz": 200, "/no/such/page": 404} {
		r := must(http.Get(x.member.ClientURL + path))(t)
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
		if r.StatusCode != code {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// Requests on a watch stream that make no sense end what they concern, not the stream of others.
func TestWatchStreamAbuse(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	ctx := limited(t)
	stream := must(pb.NewWatchClient(x.conn).Watch(ctx))(t)
	send := func(r *pb.WatchRequest) {
		t.Helper()
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	create := func(c *pb.WatchCreateRequest) *pb.WatchResponse {
		t.Helper()
		send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: c}})
		return must(stream.Recv())(t)
	}
	if r := create(&pb.WatchCreateRequest{Key: []byte("k"), WatchId: 7}); !r.Created || r.Canceled || r.WatchId != 7 {
		t.Fatalf("the first watcher: %v", r)
	}
	if r := create(&pb.WatchCreateRequest{Key: []byte("k"), WatchId: 7}); !r.Created || !r.Canceled || r.CancelReason == "" {
		t.Errorf("the same id again: %v", r)
	}
	if r := create(&pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")}); !r.Canceled {
		t.Errorf("an empty range: %v", r)
	}
	send(&pb.WatchRequest{})
	send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 12345}}})
	must(x.etcd.Put(ctx, "k", "v"))(t)
	if r := must(stream.Recv())(t); r.WatchId != 7 || len(r.Events) != 1 || r.Events[0].Type != mvccpb.Event_PUT {
		t.Errorf("the first watcher gets %v", r)
	}
	_ = stream.CloseSend()
	x.check(t)
}
