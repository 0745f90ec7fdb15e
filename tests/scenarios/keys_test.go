package scenarios

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Report 4: read-only transactions over all of a large store, cancelled in the middle, give Canceled, or their answer if that was
// faster, and leave the server alive.
func TestCancelledReadsLeaveTheServerAlive(t *testing.T) {
	t.Parallel()
	_, c := single(t)
	const keys = 20_000
	load(t, c, keys, func(i int) string { return fmt.Sprintf("k%06d", i) }, "some value")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	all := clientv3.OpGet("\x00", clientv3.WithFromKey(), clientv3.WithSerializable())
	for range 100 {
		ctx, cancel := context.WithCancel(limited(t))
		go func() {
			time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Millisecond)))) // whenever that is
			cancel()
		}()
		r, err := c.Txn(ctx).Then(all, all).Commit()
		<-ctx.Done()
		switch {
		case err == nil:
			if n := len(r.Responses[1].GetResponseRange().Kvs); n != keys {
				t.Fatalf("%d keys", n)
			}
		case !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled:
			t.Fatalf("a cancelled read: %v", err)
		}
	}
	if got := must(c.Get(limited(t), "k", clientv3.WithPrefix(), clientv3.WithCountOnly()))(t); got.Count != keys {
		t.Errorf("%d keys", got.Count)
	}
}

// Report 9: a request with a number that stands for nothing, or with metadata that is no text, is refused as such, and nothing breaks.
func TestMalformedRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	m, c := single(t)
	must(c.Put(limited(t), "k", "v"))(t)
	transport := &http.Transport{Protocols: new(http.Protocols)} // gRPC's own client refuses to send such things
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	call := func(method string, r proto.Message, version string) (code, text string) {
		t.Helper()
		data := must(proto.Marshal(r))(t)
		body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data)))
		req := must(http.NewRequestWithContext(limited(t), http.MethodPost, m.ClientURL+method, bytes.NewReader(append(body, data...))))(t)
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("TE", "trailers")
		if version != "" {
			req.Header.Set("client-api-version", version)
		}
		resp := must(transport.RoundTrip(req))(t)
		defer resp.Body.Close()
		must(io.Copy(io.Discard, resp.Body))(t)
		for _, h := range []http.Header{resp.Header, resp.Trailer} {
			if h.Get("grpc-status") != "" {
				return h.Get("grpc-status"), h.Get("grpc-message")
			}
		}
		t.Fatalf("%s: no status: %v", method, resp)
		return "", ""
	}
	const get, alarm = "/etcdserverpb.KV/Range", "/etcdserverpb.Maintenance/Alarm"
	invalid := fmt.Sprint(int(codes.InvalidArgument))
	for _, x := range []struct {
		method  string
		request proto.Message
		version string
		want    string
	}{
		{get, &pb.RangeRequest{Key: []byte("k")}, "3.7.3", "0"},
		{get, &pb.RangeRequest{Key: []byte("k"), SortOrder: 1, SortTarget: 100}, "", invalid},
		{get, &pb.RangeRequest{Key: []byte("k"), SortOrder: 100}, "", invalid},
		{get, &pb.RangeRequest{Key: []byte("k")}, "\xff\xfe", invalid},
		{alarm, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE}, "", "0"}, // of no kind: nothing is raised
	} {
		if code, text := call(x.method, x.request, x.version); code != x.want {
			t.Errorf("%v, version %q: %s %s, want %s", x.request, x.version, code, text, x.want)
		}
	}
	if got := must(c.AlarmList(limited(t)))(t); len(got.Alarms) != 0 {
		t.Errorf("alarms: %v", got.Alarms)
	}
}

// Report 10: pages of a list, taken as Kubernetes takes them beside many other keys and while keys change, are one list. (What a page
// costs is measured elsewhere.)
func TestPagesAreTheList(t *testing.T) {
	t.Parallel()
	_, c := single(t)
	const pods, limit = 1000, 130
	load(t, c, 20_000, func(i int) string { return fmt.Sprintf("/registry/events/%06d", i) }, "event")
	load(t, c, pods, func(i int) string { return fmt.Sprintf("/registry/pods/%04d", i) }, "pod")
	const prefix = "/registry/pods/"
	whole := must(c.Get(limited(t), prefix, clientv3.WithPrefix()))(t)
	var got []string
	from, end, left := prefix, clientv3.GetPrefixRangeEnd(prefix), int64(pods)
	for more := true; more; {
		page := must(c.Get(limited(t), from, clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(whole.Header.Revision)))(t)
		if more = page.More; page.Count != left || more != (left > limit) {
			t.Fatalf("from %s: count %d, more %t, with %d keys left", from, page.Count, more, left)
		}
		for _, kv := range page.Kvs {
			got = append(got, kv.String())
		}
		left -= int64(len(page.Kvs))
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		must(c.Put(limited(t), prefix+fmt.Sprintf("%04d-new", len(got)+3), "new"))(t)
		must(c.Delete(limited(t), prefix+fmt.Sprintf("%04d", len(got)+5)))(t)
	}
	for i, kv := range whole.Kvs {
		if i >= len(got) || got[i] != kv.String() {
			t.Fatalf("%d of %d keys are alike", i, len(whole.Kvs))
		}
	}
	if len(got) != pods {
		t.Errorf("%d keys, want %d", len(got), pods)
	}
}
