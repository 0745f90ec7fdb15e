package api_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/api/services"
)

// ownMethods are the methods of the services that are ours, in the form of testdata/methods.txt.
var ownMethods = []string{
	"/coordd.Locks/Hold coordd.native.HoldRequest stream:coordd.native.HoldResponse",
	"/coordd.Locks/List coordd.native.ListLocksRequest coordd.native.ListLocksResponse",
	"/coordd.Elections/Observe coordd.native.ObserveRequest stream:coordd.native.ObserveResponse",
	"/coordd.peer.Peer/Stream stream:coordd.peer.Frame coordd.peer.StreamAck",
	"/coordd.peer.Peer/Snapshot stream:coordd.peer.SnapshotChunk coordd.peer.SnapshotAck",
	"/coordd.peer.Peer/LeaseKeepAlive coordd.peer.LeaseKeepAliveRequest coordd.peer.LeaseKeepAliveResponse",
	"/coordd.peer.Peer/LeaseTimeToLive coordd.rpc.LeaseTimeToLiveRequest coordd.rpc.LeaseTimeToLiveResponse",
	"/coordd.peer.Peer/Promote coordd.peer.PromoteRequest coordd.peer.PromoteResponse",
	"/coordd.peer.Peer/HashKV coordd.rpc.HashKVRequest coordd.rpc.HashKVResponse",
	"/coordd.peer.Peer/Info coordd.peer.InfoRequest coordd.peer.InfoResponse",
}

// TestServerMethods registers all services and compares the methods the server then has.
func TestServerMethods(t *testing.T) {
	s := grpc.NewServer()
	services.RegisterKVServer(s, services.UnimplementedKVServer{})
	services.RegisterWatchServer(s, services.UnimplementedWatchServer{})
	services.RegisterLeaseServer(s, services.UnimplementedLeaseServer{})
	services.RegisterClusterServer(s, services.UnimplementedClusterServer{})
	services.RegisterMaintenanceServer(s, services.UnimplementedMaintenanceServer{})
	services.RegisterAuthServer(s, services.UnimplementedAuthServer{})
	services.RegisterLockServer(s, services.UnimplementedLockServer{})
	services.RegisterElectionServer(s, services.UnimplementedElectionServer{})
	services.RegisterLocksServer(s, services.UnimplementedLocksServer{})
	services.RegisterElectionsServer(s, services.UnimplementedElectionsServer{})
	services.RegisterPeerServer(s, services.UnimplementedPeerServer{})
	var got, want []string
	for name, info := range s.GetServiceInfo() {
		for _, m := range info.Methods {
			got = append(got, fmt.Sprintf("/%s/%s %t %t", name, m.Name, m.IsClientStream, m.IsServerStream))
		}
	}
	for _, line := range append(readLines(t, "testdata/methods.txt"), ownMethods...) {
		parts := strings.Fields(line)
		// Bidirectional streams are told by the table; so are the two of one direction.
		want = append(want, fmt.Sprintf("%s %t %t", parts[0], strings.HasPrefix(parts[1], "stream:"), strings.HasPrefix(parts[2], "stream:")))
	}
	compareLines(t, got, want)
}

// compareLines tells what is in one list only.
func compareLines(t *testing.T, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// errRecorded ends each recorded call.
var errRecorded = errors.New("recorded")

// recorder is a connection that records the names of the methods called and does no call.
type recorder struct{ method string }

func (r *recorder) Invoke(_ context.Context, method string, _, _ any, _ ...grpc.CallOption) error {
	r.method = method
	return errRecorded
}

func (r *recorder) NewStream(_ context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	r.method = method
	return nil, errRecorded
}

// TestClientMethods calls every method of every client and compares the names they go out under and
// the types of requests and answers.
func TestClientMethods(t *testing.T) {
	r := &recorder{}
	clients := []any{
		services.NewKVClient(r), services.NewWatchClient(r), services.NewLeaseClient(r), services.NewClusterClient(r),
		services.NewMaintenanceClient(r), services.NewAuthClient(r), services.NewLockClient(r), services.NewElectionClient(r),
		services.NewLocksClient(r), services.NewElectionsClient(r), services.NewPeerClient(r),
	}
	var got []string
	for _, client := range clients {
		v := reflect.ValueOf(client)
		for i := range v.NumMethod() {
			got = append(got, describeCall(t, r, v.Method(i)))
		}
	}
	compareLines(t, got, append(readLines(t, "testdata/methods.txt"), ownMethods...))
}

// describeCall calls a method of a client and gives it in the form of testdata/methods.txt.
func describeCall(t *testing.T, r *recorder, call reflect.Value) string {
	t.Helper()
	typ := call.Type() // func(ctx, [request,] ...CallOption) (answer or stream, error)
	args := []reflect.Value{reflect.ValueOf(context.Background())}
	var request, answer string
	if typ.NumIn() == 3 {
		args = append(args, reflect.New(typ.In(1).Elem()))
		request = messageName(typ.In(1))
	}
	results := call.Call(args)
	if err, _ := results[1].Interface().(error); !errors.Is(err, errRecorded) {
		t.Fatalf("a call of %v gave %v", typ, err)
	}
	out := typ.Out(0)
	switch {
	case out.Kind() == reflect.Pointer:
		answer = messageName(out)
	default:
		if send, ok := out.MethodByName("Send"); ok {
			request = "stream:" + messageName(send.Type.In(0))
		}
		if recv, ok := out.MethodByName("Recv"); ok {
			answer = "stream:" + messageName(recv.Type.Out(0))
		} else if recv, ok := out.MethodByName("CloseAndRecv"); ok {
			answer = messageName(recv.Type.Out(0))
		}
	}
	return strings.Join([]string{r.method, request, answer}, " ")
}

// messageName gives the full name of the message whose Go type is the pointer typ.
func messageName(typ reflect.Type) string {
	return string(reflect.New(typ.Elem()).Interface().(proto.Message).ProtoReflect().Descriptor().FullName())
}
