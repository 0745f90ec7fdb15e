package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/api/rpcpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testCluster = 0xc1

// end is a member for tests: a Transport on a port of its own, and notes of
// what it was told.
type end struct {
	t    *testing.T
	id   uint64
	tr   *Transport
	addr string
	logs *observer.ObservedLogs

	mu          sync.Mutex
	cond        *sync.Cond // on every change of what follows
	got         []*raftpb.Message
	unreachable map[uint64]int
	snapshots   []bool // reported outcomes
	files       map[uint64][]byte
	file        *Snapshot // what Source opens
	storeErr    error
	sent        int
}

func (e *end) note(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	e.cond.Broadcast()
}

func (e *end) Step(msgs []*raftpb.Message) { e.note(func() { e.got = append(e.got, msgs...) }) }
func (e *end) ReportUnreachable(id uint64) { e.note(func() { e.unreachable[id]++ }) }
func (e *end) ReportSnapshot(_ uint64, ok bool) {
	e.note(func() { e.snapshots = append(e.snapshots, ok) })
}

func (e *end) source(context.Context) (*Snapshot, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file == nil {
		return nil, errors.New("there is no file")
	}
	return e.file, nil
}

func (e *end) store(_ context.Context, meta *raftpb.SnapshotMetadata, size int64, r io.Reader) error {
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return err
	}
	var err error
	e.note(func() {
		e.files[meta.GetIndex()] = data
		err = e.storeErr
	})
	return err
}

// until waits until ok, which is called with e.mu held, and fails after a generous time.
func (e *end) until(what string, ok func() bool) {
	e.t.Helper()
	late := false
	timer := time.AfterFunc(20*time.Second, func() { e.note(func() { late = true }) })
	defer timer.Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	for !ok() {
		if late {
			e.t.Fatalf("member %x: never happened: %s", e.id, what)
		}
		e.cond.Wait()
	}
}

type options func(*Config)

// newEnd starts a member on addr, "" for a free port.
func newEnd(t *testing.T, id uint64, addr string, opts ...options) *end {
	t.Helper()
	e := &end{t: t, id: id, unreachable: map[uint64]int{}, files: map[uint64][]byte{}}
	e.cond = sync.NewCond(&e.mu)
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	e.addr = ln.Addr().String()
	core, logs := observer.New(zapcore.InfoLevel)
	e.logs = logs
	cfg := Config{ClusterID: testCluster, MemberID: id, Raft: e, Service: service{e}, Source: e.source, Store: e.store,
		Logger: zap.New(core), Hooks: Hooks{Sent: func(uint64, int) { e.note(func() { e.sent++ }) }}}
	for _, o := range opts {
		o(&cfg)
	}
	if e.tr, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	e.tr.Start()
	served := make(chan error, 1)
	go func() { served <- e.tr.Serve(ln) }()
	t.Cleanup(func() {
		if err := errors.Join(e.tr.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return e
}

func (e *end) url() string { return "http://" + e.addr }

// knows makes others known.
func (e *end) knows(others ...*end) {
	e.t.Helper()
	for _, o := range others {
		if err := e.tr.Update(o.id, []string{o.url()}); err != nil {
			e.t.Fatal(err)
		}
	}
}

// connected waits for the stream to o.
func (e *end) connected(o *end) {
	e.t.Helper()
	poll(e.t, "connected", func() bool { return !e.tr.ActiveSince(o.id).IsZero() })
}

// poll waits for something that nobody tells.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("never happened: %s", what)
		}
	}
}

// service answers with what it was asked.
type service struct{ e *end }

func (s service) LeaseKeepAlive(_ context.Context, r *peerpb.LeaseKeepAliveRequest) (*peerpb.LeaseKeepAliveResponse, error) {
	return &peerpb.LeaseKeepAliveResponse{Ttls: r.Ids, Term: s.e.id}, nil
}

func (s service) LeaseTimeToLive(_ context.Context, r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
	return &rpcpb.LeaseTimeToLiveResponse{ID: r.ID}, nil
}

func (s service) Promote(context.Context, *peerpb.PromoteRequest) (*peerpb.PromoteResponse, error) {
	return nil, fmt.Errorf("member %x promotes nobody", s.e.id)
}

func (s service) HashKV(_ context.Context, r *rpcpb.HashKVRequest) (*rpcpb.HashKVResponse, error) {
	return &rpcpb.HashKVResponse{HashRevision: r.Revision}, nil
}

func (s service) Info(context.Context, *peerpb.InfoRequest) (*peerpb.InfoResponse, error) {
	return &peerpb.InfoResponse{MemberId: s.e.id, ClusterId: testCluster}, nil
}

// fileOf is a snapshot with the given content.
func fileOf(index uint64, data []byte) *Snapshot {
	return &Snapshot{
		Metadata: &raftpb.SnapshotMetadata{Index: &index, Term: &index, ConfState: &raftpb.ConfState{Voters: []uint64{1, 2}}},
		Size:     int64(len(data)), Data: bytes.NewReader(data), Close: func() error { return nil },
	}
}

func message(typ raftpb.MessageType, from, to, index uint64, ents ...*raftpb.Entry) *raftpb.Message {
	term := uint64(5)
	return &raftpb.Message{Type: typ.Enum(), From: &from, To: &to, Term: &term, Index: &index, Entries: ents}
}

func snapMessage(from, to, index uint64) *raftpb.Message {
	m := message(raftpb.MsgSnap, from, to, 0)
	m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &index, Term: &index}}
	return m
}
