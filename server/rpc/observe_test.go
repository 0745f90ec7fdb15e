package rpc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/coordd/coordd/api/authpb"
	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// incoming gives a context as a handler gets it, with metadata.
func incoming(t testing.TB, md ...string) context.Context {
	return metadata.NewIncomingContext(t.Context(), metadata.Pairs(md...))
}

// series reads a registry: "name{label=value,…}" to the value of a counter, gauge, or the count of a histogram.
func series(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := serve(t, func(c *Config) { c.Registerer, c.ExtensiveMetrics = reg, true })
	const get = "grpc_method=Range,grpc_service=etcdserverpb.KV,grpc_type=unary"
	before := series(t, reg)
	for _, name := range []string{
		"grpc_server_started_total{" + get + "}", "grpc_server_handled_total{grpc_code=OK," + get + "}",
		"grpc_server_handled_total{grpc_code=OutOfRange," + get + "}", "grpc_server_msg_received_total{" + get + "}",
		"grpc_server_msg_sent_total{" + get + "}", "grpc_server_handling_seconds{" + get + "}",
		"grpc_server_started_total{grpc_method=Watch,grpc_service=etcdserverpb.Watch,grpc_type=bidi_stream}",
		"grpc_server_started_total{grpc_method=RangeStream,grpc_service=etcdserverpb.KV,grpc_type=server_stream}",
		"grpc_server_started_total{grpc_method=Check,grpc_service=grpc.health.v1.Health,grpc_type=unary}",
		"grpc_server_started_total{grpc_method=UserAdd,grpc_service=etcdserverpb.Auth,grpc_type=unary}",
	} {
		if v, ok := before[name]; !ok || v != 0 {
			t.Errorf("before any call: %s is %v, there: %t", name, v, ok)
		}
	}
	kv := services.NewKVClient(s.conn)
	for _, rev := range []int64{0, 0, 99} {
		_, _ = kv.Range(with(t, metaVersion, "3.7.1"), &rpcpb.RangeRequest{Key: []byte("k"), Revision: rev})
	}
	if _, _, err := gather(kv.RangeStream(with(t), &rpcpb.RangeRequest{Key: []byte("k")})); err != nil {
		t.Fatal(err)
	}
	stream := keepAliveStream(t, s, 1)
	for range 3 {
		if err := stream.Send(&rpcpb.LeaseKeepAliveRequest{ID: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]float64{
		"grpc_server_started_total{" + get + "}":                                                                           3,
		"grpc_server_msg_received_total{" + get + "}":                                                                      3,
		"grpc_server_msg_sent_total{" + get + "}":                                                                          2,
		"grpc_server_handled_total{grpc_code=OK," + get + "}":                                                              2,
		"grpc_server_handled_total{grpc_code=OutOfRange," + get + "}":                                                      1,
		"grpc_server_handling_seconds{" + get + "}":                                                                        3,
		"grpc_server_msg_sent_total{grpc_method=RangeStream,grpc_service=etcdserverpb.KV,grpc_type=server_stream}":         1,
		"grpc_server_msg_received_total{grpc_method=LeaseKeepAlive,grpc_service=etcdserverpb.Lease,grpc_type=bidi_stream}": 3,
		"etcd_server_client_requests_total{client_api_version=3.7.1,type=unary}":                                           3,
		"etcd_server_client_requests_total{client_api_version=unknown,type=stream}":                                        2,
	}
	// A call is counted right after its answer has been sent.
	var last map[string]float64
	eventually(t, func() bool {
		last = series(t, reg)
		for name, v := range want {
			if last[name] != v {
				return false
			}
		}
		return last["etcd_network_client_grpc_received_bytes_total{}"] > 0 && last["etcd_network_client_grpc_sent_bytes_total{}"] > 0
	}, func() {
		for name, v := range want {
			if last[name] != v {
				t.Errorf("%s is %v, want %v", name, last[name], v)
			}
		}
	})
	if _, err := New(Config{Node: s.testMember, Hub: s.hub, Registerer: reg}); err == nil {
		t.Error("no error when the metrics are registered twice")
	}
}

// eventually waits until a condition holds that another goroutine is about to make true.
func eventually(t *testing.T, holds func() bool, complain func()) {
	t.Helper()
	deadline := time.After(testPatience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			complain()
			t.Fatal("still not, after", testPatience)
		}
	}
}

// TestClientVersionsBounded: clients cannot make any number of time series.
func TestClientVersionsBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := newMetrics(reg, false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 * maxClientVersions {
		m.unary.count(fmt.Sprint(i))
	}
	m.unary.count("5")
	got := series(t, reg)
	if n := got["etcd_server_client_requests_total{client_api_version=other,type=unary}"]; n != 9*maxClientVersions {
		t.Errorf("%v calls of other versions", n)
	}
	if n := got["etcd_server_client_requests_total{client_api_version=5,type=unary}"]; n != 2 {
		t.Errorf("%v calls of version 5", n)
	}
}

// TestSlowLog: what is logged about calls, and what never is.
func TestSlowLog(t *testing.T) {
	const secret = "hush"
	core, logs := observer.New(zapcore.DebugLevel)
	s := serve(t, func(c *Config) { c.Logger, c.WarnUnary = zap.New(core), time.Nanosecond })
	ctx := with(t)
	kv := services.NewKVClient(s.conn)
	put := &rpcpb.PutRequest{Key: []byte("the-key"), Value: []byte(secret)}
	ops := []*rpcpb.RequestOp{{Request: &rpcpb.RequestOp_RequestPut{RequestPut: put}}}
	nested := []*rpcpb.RequestOp{{Request: &rpcpb.RequestOp_RequestTxn{RequestTxn: &rpcpb.TxnRequest{Failure: ops}}}}
	compare := []*rpcpb.Compare{{Key: []byte("compared"), Target: rpcpb.Compare_VALUE, TargetUnion: &rpcpb.Compare_Value{Value: []byte(secret)}}}
	_, _ = kv.Put(ctx, put)
	_, _ = kv.Range(ctx, &rpcpb.RangeRequest{Key: []byte("from"), RangeEnd: []byte("to"), Limit: 3})
	_, _ = kv.Txn(ctx, &rpcpb.TxnRequest{Compare: compare, Success: ops, Failure: nested})
	ac := services.NewAuthClient(s.conn)
	_, _ = ac.Authenticate(ctx, &rpcpb.AuthenticateRequest{Name: "root", Password: secret})
	_, _ = ac.UserAdd(ctx, &rpcpb.AuthUserAddRequest{Name: "n", Password: secret, Options: &authpb.UserAddOptions{}})
	_, _ = services.NewLeaseClient(s.conn).LeaseRevoke(ctx, &rpcpb.LeaseRevokeRequest{ID: 255})
	wants := []string{`put(key:"the-key" value_size:4`, `range(key:"from" range_end:"to"`, `VALUE EQUAL key:"compared"`, "/etcdserverpb.Auth/Authenticate", "/etcdserverpb.Auth/UserAdd", "lease:ff"}
	var entries []observer.LoggedEntry
	eventually(t, func() bool {
		entries = logs.FilterMessage("request stats").FilterLevelExact(zapcore.WarnLevel).All()
		return len(entries) == len(wants)
	}, func() { t.Errorf("%d entries", len(entries)) })
	for i, e := range entries {
		text := fmt.Sprint(e.ContextMap())
		if !strings.Contains(text, wants[i]) {
			t.Errorf("entry %d lacks %q: %s", i, wants[i], text)
		}
		if strings.Contains(text, secret) {
			t.Errorf("entry %d tells the secret: %s", i, text)
		}
	}
}

// TestFastNotLogged: calls below the limit leave no trace unless debugging.
func TestFastNotLogged(t *testing.T) {
	for level, want := range map[zapcore.Level]int{zapcore.InfoLevel: 0, zapcore.DebugLevel: 1} {
		core, logs := observer.New(level)
		s := serve(t, func(c *Config) { c.Logger, c.WarnUnary = zap.New(core), time.Hour })
		if _, err := services.NewKVClient(s.conn).Range(with(t), &rpcpb.RangeRequest{Key: []byte("k")}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool { return logs.FilterMessage("request stats").Len() == want }, func() {})
	}
}

// lockServer is a service made elsewhere.
type lockServer struct {
	services.UnimplementedLockServer
}

func (lockServer) Lock(context.Context, *lockpb.LockRequest) (*lockpb.LockResponse, error) {
	return nil, errs.ErrLeaseNotFound
}

// TestWrap: services made elsewhere get the same treatment, and those of the lock services' errors their own code.
func TestWrap(t *testing.T) {
	n := newTestMember(t)
	reg := prometheus.NewRegistry()
	s, err := New(Config{Node: n, Hub: n.hub, Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(s.transport()...)
	services.RegisterLockServer(s.Wrap(g), lockServer{})
	_, err = services.NewLockClient(dialServer(t, g)).Lock(with(t), &lockpb.LockRequest{})
	if err == nil || err.Error() != "rpc error: code = Unknown desc = etcdserver: requested lease not found" {
		t.Errorf("got %v", err)
	}
	eventually(t, func() bool {
		return series(t, reg)["grpc_server_handled_total{grpc_code=Unknown,grpc_method=Lock,grpc_service=v3lockpb.Lock,grpc_type=unary}"] == 1
	}, func() {})
}

// TestPanic: a broken invariant is not swallowed.
func TestPanic(t *testing.T) {
	n := newTestMember(t)
	s, err := New(Config{Node: n, Hub: n.hub})
	if err != nil {
		t.Fatal(err)
	}
	n.onRange = func(*rpcpb.RangeRequest) error { panic("broken") }
	defer func() {
		if p := recover(); p != "broken" {
			t.Errorf("recovered %v", p)
		}
	}()
	desc := s.handlers.wrap(kvDesc())
	_, _ = desc.Methods[0].Handler(s.KV, incoming(t), func(v any) error {
		v.(*rpcpb.RangeRequest).Key = []byte("k")
		return nil
	}, nil)
}

// TestInterceptor: an interceptor of the caller's sees the typed request and the answer.
func TestInterceptor(t *testing.T) {
	var seen []string
	s := serve(t, nil, grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		resp, err := h(ctx, req)
		seen = append(seen, fmt.Sprintf("%s %T %T", info.FullMethod, req, resp))
		return resp, err
	}))
	if _, err := services.NewKVClient(s.conn).Range(with(t), &rpcpb.RangeRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(seen) != "[/etcdserverpb.KV/Range *rpcpb.RangeRequest codec.Raw]" {
		t.Errorf("%v", seen)
	}
}

func TestNewNeedsNode(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("no error")
	}
}
