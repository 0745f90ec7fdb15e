package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// Appends arrive whole and in order, heartbeats in order among themselves,
// at two followers that share the encoded entries.
func TestDelivery(t *testing.T) {
	a, b, c := newEnd(t, 1, ""), newEnd(t, 2, ""), newEnd(t, 3, "")
	a.knows(b, c)
	const n = 3000
	var want []*raftpb.Message // to b
	for i := range uint64(n) {
		term := i
		ents := []*raftpb.Entry{{Term: &term, Index: &i, Data: fmt.Append(nil, "entry ", i)}, {Type: raftpb.EntryConfChange.Enum(), Data: make([]byte, i%700)}}
		toB, toC := message(raftpb.MsgApp, 1, 2, i, ents...), message(raftpb.MsgApp, 1, 3, i, ents...)
		a.tr.Send([]*raftpb.Message{toB, toC, message(raftpb.MsgHeartbeat, 1, 2, i), message(raftpb.MsgHeartbeat, 1, 3, i)})
		want = append(want, toB)
	}
	for _, e := range []*end{b, c} {
		e.until("all came", func() bool { return len(e.got) == 2*n })
		var apps, beats uint64
		for _, m := range e.got {
			if m.GetType() == raftpb.MsgHeartbeat {
				if m.GetIndex() != beats {
					t.Fatalf("heartbeat %d came after %d", m.GetIndex(), beats)
				}
				beats++
				continue
			}
			w := proto.Clone(want[apps]).(*raftpb.Message)
			w.To = &e.id
			if !proto.Equal(m, w) {
				t.Fatalf("append %d came as %v", apps, m)
			}
			apps++
		}
	}
	if len(a.unreachable) != 0 {
		t.Errorf("unreachable: %v", a.unreachable)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sent >= 2*n {
		t.Errorf("%d frames for %d messages: nothing was batched", a.sent, 4*n)
	}
}

// A member that goes away is reported; when it is back on its port, messages
// flow again soon.
func TestReconnect(t *testing.T) {
	a, b := newEnd(t, 1, ""), newEnd(t, 2, "")
	a.knows(b)
	a.connected(b)
	since := a.tr.ActiveSince(2)
	if d := time.Since(since); d < 0 || d > time.Minute {
		t.Errorf("active since %v", since)
	}
	if err := b.tr.Close(); err != nil {
		t.Fatal(err)
	}
	a.until("reported", func() bool { return a.unreachable[2] > 0 })
	poll(t, "inactive", func() bool { return a.tr.ActiveSince(2).IsZero() })
	// While it is down messages are lost at once and reported again.
	poll(t, "dropped", func() bool {
		a.mu.Lock()
		before := a.unreachable[2]
		a.mu.Unlock()
		a.tr.Send([]*raftpb.Message{message(raftpb.MsgHeartbeat, 1, 2, 0)})
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.unreachable[2] > before
	})
	b2 := newEnd(t, 2, b.addr)
	begin := time.Now()
	a.connected(b2)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v to reach the restarted member", took)
	}
	a.tr.Send([]*raftpb.Message{message(raftpb.MsgVote, 1, 2, 7)})
	b2.until("delivered", func() bool { return len(b2.got) > 0 })
	if n := a.logs.FilterMessage("no peer connection to a member").Len(); n == 0 || n > 4 {
		t.Errorf("the trouble was logged %d times", n)
	}
	if a.logs.FilterMessage("the peer connection works again").Len() == 0 {
		t.Error("the end of the trouble was not logged")
	}
}

// Messages sent while the first connection is made wait for it.
func TestFirstMessagesWait(t *testing.T) {
	a, b := newEnd(t, 1, ""), newEnd(t, 2, "")
	a.knows(b)
	a.tr.Send([]*raftpb.Message{message(raftpb.MsgPreVote, 1, 2, 7)})
	b.until("delivered", func() bool { return len(b.got) == 1 })
}

// New URLs are used at once, and several are tried in turn.
func TestURLs(t *testing.T) {
	a, b := newEnd(t, 1, ""), newEnd(t, 2, "")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "http://" + ln.Addr().String()
	ln.Close()
	if err := a.tr.Update(2, []string{dead, b.url()}); err != nil {
		t.Fatal(err)
	}
	a.connected(b)
	moved := newEnd(t, 2, "")
	if err := a.tr.SetMembers(map[uint64][]string{2: {moved.url()}, 1: {a.url()}}); err != nil {
		t.Fatal(err)
	}
	poll(t, "delivered to the new place", func() bool {
		a.tr.Send([]*raftpb.Message{message(raftpb.MsgHeartbeat, 1, 2, 0)})
		moved.mu.Lock()
		defer moved.mu.Unlock()
		return len(moved.got) > 0
	})
	if err := a.tr.SetMembers(map[uint64][]string{1: {a.url()}}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.tr.Info(t.Context(), 2, &peerpb.InfoRequest{}); !errors.Is(err, ErrUnknownMember) {
		t.Errorf("a call to a removed member: %v", err)
	}
	a.tr.Send([]*raftpb.Message{message(raftpb.MsgHeartbeat, 1, 2, 0), snapMessage(1, 2, 1)})
	a.until("reported", func() bool { return a.unreachable[2] > 0 && len(a.snapshots) == 1 && !a.snapshots[0] })
	for _, bad := range [][]string{nil, {"http://nowhere"}, {"ftp://a:1"}, {"http://a:1", "::"}} {
		if err := a.tr.Update(3, bad); err == nil {
			t.Errorf("the URLs %q were accepted", bad)
		}
	}
}

// Members of different clusters, and an address that belongs to another
// member, are refused; both sides say so once.
func TestStrangersAreRefused(t *testing.T) {
	for name, x := range map[string]struct {
		opt  options
		id   uint64 // as which a knows b
		want string
	}{
		"cluster": {func(c *Config) { c.ClusterID = 0xbad }, 2, "of cluster bad called member 2 of cluster c1"},
		"member":  {func(*Config) {}, 7, "called member 7, but this is member 2"},
		"twin":    {func(c *Config) { c.MemberID = 2 }, 3, "but this is member 2"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newEnd(t, 1, "", x.opt), newEnd(t, 2, "")
			if err := a.tr.Update(x.id, []string{b.url()}); err != nil {
				t.Fatal(err)
			}
			a.tr.Send([]*raftpb.Message{message(raftpb.MsgApp, 1, x.id, 1)})
			a.until("refused several times", func() bool { return a.unreachable[x.id] > 4 })
			texts := func(e *end) (s []string) {
				for _, l := range e.logs.All() {
					s = append(s, fmt.Sprint(l.ContextMap()["error"]))
				}
				return s
			}
			for _, e := range []*end{a, b} {
				if s := texts(e); len(s) != 1 || !strings.Contains(s[0], x.want) {
					t.Errorf("member %x logged %q", e.id, s)
				}
			}
			if _, err := a.tr.HashKV(t.Context(), x.id, &rpcpb.HashKVRequest{}); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("a call: %v", err)
			}
			if len(b.got) != 0 || !a.tr.ActiveSince(x.id).IsZero() {
				t.Error("a stranger's messages were taken")
			}
		})
	}
}

// A member that was removed is refused by those who know it.
func TestAdmit(t *testing.T) {
	a := newEnd(t, 1, "")
	b := newEnd(t, 2, "", func(c *Config) {
		c.Admit = func(from uint64) error { return fmt.Errorf("member %x was removed", from) }
	})
	a.knows(b)
	_, err := a.tr.LeaseKeepAlive(t.Context(), 2, &peerpb.LeaseKeepAliveRequest{})
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "member 1 was removed") {
		t.Errorf("%v", err)
	}
}

func TestCalls(t *testing.T) {
	a, b := newEnd(t, 1, ""), newEnd(t, 2, "")
	a.knows(b)
	ctx := t.Context()
	ka, err := a.tr.LeaseKeepAlive(ctx, 2, &peerpb.LeaseKeepAliveRequest{Ids: []int64{4, 5}})
	if err != nil || len(ka.GetTtls()) != 2 || ka.GetTerm() != 2 {
		t.Errorf("LeaseKeepAlive: %v, %v", ka, err)
	}
	ttl, err := a.tr.LeaseTimeToLive(ctx, 2, &rpcpb.LeaseTimeToLiveRequest{ID: 8})
	if err != nil || ttl.GetID() != 8 {
		t.Errorf("LeaseTimeToLive: %v, %v", ttl, err)
	}
	hash, err := a.tr.HashKV(ctx, 2, &rpcpb.HashKVRequest{Revision: 3})
	if err != nil || hash.GetHashRevision() != 3 {
		t.Errorf("HashKV: %v, %v", hash, err)
	}
	if _, err := a.tr.Promote(ctx, 2, &peerpb.PromoteRequest{}); err == nil || !strings.Contains(err.Error(), "promotes nobody") {
		t.Errorf("Promote: %v", err)
	}
	info, err := FetchInfo(ctx, b.url(), Dialing{})
	if err != nil || info.GetMemberId() != 2 || info.GetClusterId() != testCluster {
		t.Errorf("Info: %v, %v", info, err)
	}
	if _, err := FetchInfo(ctx, "https://"+b.addr, Dialing{}); err == nil || !strings.Contains(err.Error(), "needs TLS") {
		t.Errorf("https without settings: %v", err)
	}
	// A call to a member that is down fails at once, and works when it is back.
	if err := b.tr.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.tr.Info(ctx, 2, &peerpb.InfoRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a call to a member that is down: %v", err)
	}
	newEnd(t, 2, b.addr)
	poll(t, "call works again", func() bool { _, err := a.tr.Info(ctx, 2, &peerpb.InfoRequest{}); return err == nil })
}

// Closing does not wait for a member that takes nothing, and may be repeated.
func TestCloseWhileBlocked(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan net.Conn, 10)
	go func() {
		defer close(accepted)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			accepted <- c // and never read
		}
	}()
	a := newEnd(t, 1, "")
	if err := a.tr.Update(2, []string{"http://" + ln.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	conn := <-accepted
	defer conn.Close()
	a.tr.Send([]*raftpb.Message{message(raftpb.MsgApp, 1, 2, 1, &raftpb.Entry{Data: make([]byte, 8<<20)})})
	begin := time.Now()
	for range 2 {
		if err := a.tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	a.tr.Send([]*raftpb.Message{message(raftpb.MsgApp, 1, 2, 1), snapMessage(1, 2, 1)})
	if err := a.tr.Update(3, []string{"http://127.0.0.1:1"}); err != nil {
		t.Error(err)
	}
	a.tr.Start()
	ln.Close()
	for c := range accepted {
		c.Close()
	}
}

// A member that does not read fills the queue, which drops and reports.
func TestFullQueue(t *testing.T) {
	a := newEnd(t, 1, "", func(c *Config) {
		c.QueueBytes = 1 << 20
		c.Dialer = func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	})
	if err := a.tr.Update(2, []string{"http://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(20) {
		a.tr.Send([]*raftpb.Message{message(raftpb.MsgApp, 1, 2, i, &raftpb.Entry{Data: make([]byte, 100<<10)})})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.unreachable[2]; n < 9 || n > 11 {
		t.Errorf("%d of 20 messages were dropped, want about half", n)
	}
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("an empty configuration was accepted")
	}
	if _, err := New(Config{ClusterID: 1, MemberID: 1}); err == nil {
		t.Error("a configuration without its functions was accepted")
	}
}
