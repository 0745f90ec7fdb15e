package client_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

// puts counts the calls of a method and answers them.
func puts(n *atomic.Int64, err error) func(context.Context, *rpcpb.PutRequest) (*rpcpb.PutResponse, error) {
	return func(context.Context, *rpcpb.PutRequest) (*rpcpb.PutResponse, error) {
		n.Add(1)
		return &rpcpb.PutResponse{Header: &rpcpb.ResponseHeader{Revision: 2}}, grpcerr.ToStatus(err)
	}
}

func ranges(n *atomic.Int64, err error) func(context.Context, *rpcpb.RangeRequest) (*rpcpb.RangeResponse, error) {
	return func(context.Context, *rpcpb.RangeRequest) (*rpcpb.RangeResponse, error) {
		n.Add(1)
		return &rpcpb.RangeResponse{Header: &rpcpb.ResponseHeader{Revision: 2}}, grpcerr.ToStatus(err)
	}
}

// A write that could not be sent goes to another endpoint, once.
func TestWriteFailsOverWhenNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		var a, b atomic.Int64
		n.at("a").onPut, n.at("b").onPut = puts(&a, nil), puts(&b, nil)
		n.at("a").down()
		c := n.client([]string{"a", "b"})
		for range 10 {
			if _, err := c.Put(deadline(t, time.Second), "k", "v"); err != nil {
				t.Fatal(err)
			}
		}
		if a.Load() != 0 || b.Load() != 10 {
			t.Fatalf("a ran %d, b ran %d; want 0 and 10", a.Load(), b.Load())
		}
	})
}

// A write waits for a cluster that is down for a while, since nothing was sent.
func TestWriteWaitsForCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a")
		var a atomic.Int64
		n.at("a").onPut = puts(&a, nil)
		n.at("a").down()
		c := n.client([]string{"a"})
		time.AfterFunc(3*time.Second, n.at("a").up)
		if _, err := c.Put(deadline(t, 10*time.Second), "k", "v"); err != nil {
			t.Fatal(err)
		}
		if a.Load() != 1 {
			t.Fatalf("ran %d times", a.Load())
		}
	})
}

// The error of a cluster that stays down says so, and that the write did not happen.
func TestWriteNeverSentIsCertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a")
		n.at("a").down()
		_, err := n.client([]string{"a"}).Put(deadline(t, time.Second), "k", "v")
		var ce *client.CallError
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrUnknownOutcome) || !errors.As(err, &ce) {
			t.Fatalf("got %v", err)
		}
		if ce.Endpoint != "a" || ce.Last == nil || status.Code(ce.Last) != codes.Unavailable {
			t.Fatalf("got %+v", ce)
		}
	})
}

// A write whose connection breaks after it arrived is not repeated, and its outcome is unknown.
func TestWriteCutIsUnknown(t *testing.T) {
	n := newNetwork(t, "a", "b")
	var ran atomic.Int64
	for _, name := range []string{"a", "b"} {
		m := n.at(name)
		m.onPut = func(ctx context.Context, _ *rpcpb.PutRequest) (*rpcpb.PutResponse, error) {
			ran.Add(1)
			m.cut()
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}
	_, err := n.client([]string{"a", "b"}).Put(deadline(t, 10*time.Second), "k", "v")
	if !errors.Is(err, client.ErrUnknownOutcome) || ran.Load() != 1 {
		t.Fatalf("ran %d times: %v", ran.Load(), err)
	}
}

// A write whose time runs out at a frozen member has an unknown outcome; so has one the server timed out.
func TestWriteTimeoutIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a")
		var ran atomic.Int64
		n.at("a").onPut = puts(&ran, nil)
		c := n.client([]string{"a"})
		if _, err := c.Put(deadline(t, time.Second), "k", "v"); err != nil {
			t.Fatal(err)
		}
		n.at("a").freeze()
		_, err := c.Put(deadline(t, time.Second), "k", "v")
		if !errors.Is(err, client.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("frozen: %v", err)
		}
	})
}

// What each answer of a server means for a write and for a read.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		err          error
		maybe, again bool // for a write: outcome unknown, repeated
		readAgain    bool
	}{
		{errs.ErrNoSpace, false, false, false},
		{errs.ErrLeaseNotFound, false, false, false},
		{errs.ErrPermissionDenied, false, false, false},
		{errs.ErrRequestTooLarge, false, false, false},
		{errs.ErrNoLeader, false, true, true},
		{errs.ErrTooManyRequests, false, true, true},
		{errs.ErrNotSupportedForLearner, false, true, true},
		{errs.ErrTimeout, true, false, true},
		{errs.ErrTimeoutDueToLeaderFail, true, false, true},
		{errs.ErrStopped, true, false, true},
		{errs.ErrLeaderChanged, true, false, true},
		{status.Error(codes.Unavailable, "going away"), true, false, true},
		{status.Error(codes.Internal, "broken"), true, false, false},
		{status.Error(codes.InvalidArgument, "no"), false, false, false},
	} {
		t.Run(tt.err.Error(), func(t *testing.T) {
			n := newNetwork(t, "a", "b")
			var calls atomic.Int64
			for _, name := range []string{"a", "b"} {
				n.at(name).onPut, n.at(name).onRange = puts(&calls, tt.err), ranges(&calls, tt.err)
			}
			retry := client.DefaultRetryPolicy()
			retry.MaxAttempts = 3
			c := n.client([]string{"a", "b"}, client.WithRetry(retry))
			_, err := c.Put(deadline(t, 10*time.Second), "k", "v")
			checkAnswer(t, "write", err, tt.err, calls.Swap(0), tt.again)
			if got := errors.Is(err, client.ErrUnknownOutcome); got != tt.maybe {
				t.Errorf("unknown outcome %v, want %v: %v", got, tt.maybe, err)
			}
			_, err = c.Get(deadline(t, 10*time.Second), "k")
			checkAnswer(t, "read", err, tt.err, calls.Load(), tt.readAgain)
			if errors.Is(err, client.ErrUnknownOutcome) {
				t.Errorf("a read has an unknown outcome: %v", err)
			}
		})
	}
}

func checkAnswer(t *testing.T, what string, got, want error, calls int64, again bool) {
	t.Helper()
	if known, ok := want.(*errs.Error); ok && !errors.Is(got, known) {
		t.Errorf("%s: got %v, want %v", what, got, known)
	} else if !ok && status.Code(got) != status.Code(want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
	if wanted := map[bool]int64{false: 1, true: 3}[again]; calls != wanted {
		t.Errorf("%s: %d attempts, want %d", what, calls, wanted)
	}
}

// Reads leave a frozen member quickly, do not come back while it is frozen, and do afterwards.
func TestReadsLeaveFrozenMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b", "c")
		counts := map[string]*atomic.Int64{}
		for _, name := range []string{"a", "b", "c"} {
			counts[name] = new(atomic.Int64)
			n.at(name).onRange = ranges(counts[name], nil)
		}
		c := n.client([]string{"a", "b", "c"})
		synctest.Wait() // all are connected
		for range 9 {
			get(t, c)
		}
		for name, count := range counts {
			if count.Load() != 3 {
				t.Fatalf("%s was asked %d times of 9", name, count.Load())
			}
		}
		n.at("b").freeze()
		start := time.Now()
		for range 9 {
			get(t, c)
		}
		if took := time.Since(start); took < time.Second || took > 3*time.Second {
			t.Fatalf("9 reads took %v, want one attempt of 2 s and no more", took)
		}
		n.at("b").thaw()
		n.at("b").cut()                // what was sent to a frozen member is lost in this network
		<-time.After(15 * time.Second) // of virtual time
		before := counts["b"].Load()
		for range 9 {
			get(t, c)
		}
		if counts["b"].Load() != before+3 {
			t.Fatalf("b was asked %d times of 9 after it came back", counts["b"].Load()-before)
		}
	})
}

func get(t *testing.T, c *client.Client) {
	t.Helper()
	if _, err := c.Get(deadline(t, 20*time.Second), "k"); err != nil {
		t.Fatal(err)
	}
}

// A slow answer comes through although each attempt has a bound. Both sides see that bound pass at once, and either may be the first to say
// so, which is why this is done often.
func TestSlowReadComesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		for _, name := range []string{"a", "b"} {
			n.at(name).onRange = func(ctx context.Context, _ *rpcpb.RangeRequest) (*rpcpb.RangeResponse, error) {
				select {
				case <-time.After(7 * time.Second):
					return new(rpcpb.RangeResponse), nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		}
		c := n.client([]string{"a", "b"})
		for range 200 {
			if _, err := c.Get(deadline(t, time.Minute), "k"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Calls that need a leader say so; serializable ones do not.
func TestMetadata(t *testing.T) {
	n := newNetwork(t, "a")
	var leader, version []string
	n.at("a").onRange = func(ctx context.Context, _ *rpcpb.RangeRequest) (*rpcpb.RangeResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		leader, version = md.Get("hasleader"), md.Get("client-api-version")
		return new(rpcpb.RangeResponse), nil
	}
	c := n.client([]string{"a"})
	get(t, c)
	if len(leader) != 1 || leader[0] != "true" || len(version) != 1 {
		t.Fatalf("hasleader %v, client-api-version %v", leader, version)
	}
	if _, err := c.Get(deadline(t, 5*time.Second), "k", client.WithSerializable()); err != nil {
		t.Fatal(err)
	}
	if len(leader) != 0 {
		t.Fatalf("a serializable read asks for a leader")
	}
}

// A transaction that only reads is repeated, one that may write is not.
func TestTxnRetry(t *testing.T) {
	n := newNetwork(t, "a")
	var calls atomic.Int64
	n.at("a").onTxn = func(context.Context, *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error) {
		calls.Add(1)
		return nil, grpcerr.ToStatus(errs.ErrTimeout)
	}
	retry := client.DefaultRetryPolicy()
	retry.MaxAttempts = 3
	c := n.client([]string{"a"}, client.WithRetry(retry))
	ctx := deadline(t, 10*time.Second)
	reads := client.OpTxn(nil, []client.Op{client.OpGet("a")}, nil)
	if _, err := c.Txn(ctx).Then(reads, client.OpGet("b")).Commit(); !errors.Is(err, errs.ErrTimeout) || calls.Swap(0) != 3 {
		t.Fatalf("reading: %v", err)
	}
	writes := client.OpTxn(nil, nil, []client.Op{client.OpDelete("a")})
	_, err := c.Txn(ctx).Then(reads).Else(writes).Commit()
	if !errors.Is(err, client.ErrUnknownOutcome) || calls.Load() != 1 {
		t.Fatalf("writing: %d calls, %v", calls.Load(), err)
	}
}

// The client logs in once, and again when its token is refused; the call goes through.
func TestTokenRenewal(t *testing.T) {
	n := newNetwork(t, "a")
	var logins atomic.Int64
	good := atomic.Pointer[string]{}
	n.at("a").onAuthenticate = func(_ context.Context, r *rpcpb.AuthenticateRequest) (*rpcpb.AuthenticateResponse, error) {
		if r.Name != "u" || r.Password != "p" {
			return nil, grpcerr.ToStatus(errs.ErrAuthFailed)
		}
		token := string(rune('a' + logins.Add(1)))
		good.Store(&token)
		return &rpcpb.AuthenticateResponse{Token: token}, nil
	}
	n.at("a").onPut = func(ctx context.Context, _ *rpcpb.PutRequest) (*rpcpb.PutResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		if got := md.Get("token"); len(got) != 1 || got[0] != *good.Load() {
			return nil, grpcerr.ToStatus(errs.ErrInvalidAuthToken)
		}
		return new(rpcpb.PutResponse), nil
	}
	c := n.client([]string{"a"}, client.WithCredentials("u", "p"))
	put := func() {
		t.Helper()
		if _, err := c.Put(deadline(t, 5*time.Second), "k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	put()
	put()
	if logins.Load() != 1 {
		t.Fatalf("logged in %d times", logins.Load())
	}
	other := "other"
	good.Store(&other) // the server forgot our token
	put()
	if logins.Load() != 2 {
		t.Fatalf("logged in %d times", logins.Load())
	}
	bad := n.client([]string{"a"}, client.WithCredentials("u", "wrong"))
	if _, err := bad.Put(deadline(t, 5*time.Second), "k", "v"); !errors.Is(err, errs.ErrAuthFailed) {
		t.Fatalf("wrong password: %v", err)
	}
}

// Endpoints can be replaced while calls are in flight, which are finished; Sync takes them from the cluster.
func TestEndpointsChange(t *testing.T) {
	n := newNetwork(t, "a", "b", "c")
	entered, leave := make(chan struct{}), make(chan struct{})
	n.at("a").onPut = func(context.Context, *rpcpb.PutRequest) (*rpcpb.PutResponse, error) {
		close(entered)
		<-leave
		return new(rpcpb.PutResponse), nil
	}
	n.at("b").onMemberList = func(context.Context, *rpcpb.MemberListRequest) (*rpcpb.MemberListResponse, error) {
		return &rpcpb.MemberListResponse{Members: []*rpcpb.Member{
			{Name: "b", ClientURLs: []string{"http://b:2379"}},
			{Name: "c", ClientURLs: []string{"http://c:2379"}, IsLearner: true},
			{ClientURLs: []string{"http://d:2379"}},
		}}, nil
	}
	c := n.client([]string{"a"})
	result := make(chan error, 1)
	go func() {
		_, err := c.Put(deadline(t, 10*time.Second), "k", "v")
		result <- err
	}()
	<-entered
	if err := c.SetEndpoints("b", "c"); err != nil {
		t.Fatal(err)
	}
	close(leave)
	if err := <-result; err != nil {
		t.Fatalf("a call in flight: %v", err)
	}
	if err := c.SetEndpoints("b"); err != nil {
		t.Fatal(err)
	}
	if err := c.Sync(deadline(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := c.Endpoints(); len(got) != 1 || got[0] != "http://b:2379" {
		t.Fatalf("endpoints %v", got)
	}
	if err := c.SetEndpoints(); !errors.Is(err, client.ErrNoEndpoints) {
		t.Fatalf("no endpoints: %v", err)
	}
	if err := c.SetEndpoints("ftp://x"); err == nil || len(c.Endpoints()) != 1 {
		t.Fatalf("bad endpoint: %v, now %v", err, c.Endpoints())
	}
}

// After Close every call fails with ErrClosed, and Close may come again.
func TestClosed(t *testing.T) {
	n := newNetwork(t, "a")
	c := n.client([]string{"a"})
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ctx := deadline(t, 5*time.Second)
	_, err := c.Get(ctx, "k")
	_, werr := c.Watch(ctx, "k").Next(ctx)
	k := c.KeepAlive(ctx, 1)
	<-k.Done()
	for _, err := range []error{err, werr, k.Err(), c.SetEndpoints("a")} {
		if !errors.Is(err, client.ErrClosed) {
			t.Errorf("got %v", err)
		}
	}
}
