package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/peer"
	"github.com/coordd/coordd/pkg/raftcodec"
	"github.com/coordd/coordd/server"
)

// errLost is how a call between members fails on a bad network, as gRPC would say it.
var errLost = status.Error(codes.Unavailable, "sim: the network lost the call")

// hop takes a call one way, and fails like a broken connection.
func (n *network) hop(ctx context.Context, from, to uint64) (*end, error) {
	there := make(chan *end, 1)
	if !n.post(from, to, true, func(e *end) { there <- e }) {
		return nil, errLost
	}
	lost := time.NewTimer(3 * time.Second)
	defer lost.Stop()
	select {
	case e := <-there:
		return e, nil
	case <-lost.C:
		return nil, errLost
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// end is one running member's place in the network; it is the member's server.Transport.
type end struct {
	network *network
	cfg     peer.Config
	since   time.Time
	ctx     context.Context // ends with the end
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	dead    atomic.Bool   // its member has lost power: nothing goes in or out
	gone    chan struct{} // closed when dead is set
	closed  atomic.Bool

	mu      sync.Mutex      // guards all below
	members map[uint64]bool // the others
	sending map[uint64]bool // a snapshot to them
}

var _ server.Transport = (*end)(nil)

// newEnd makes the end of a member that starts.
func (n *network) newEnd(cfg peer.Config) *end {
	e := &end{network: n, cfg: cfg, since: time.Now(), gone: make(chan struct{}), members: map[uint64]bool{}, sending: map[uint64]bool{}}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// Start makes the end reachable.
func (e *end) Start() {
	e.network.set(func() { e.network.ends[e.cfg.MemberID] = e })
}

// Serve is not used: the network has no listeners.
func (e *end) Serve(net.Listener) error {
	return errors.New("sim: the simulated network has no listeners")
}

// SetMembers says who the others are.
func (e *end) SetMembers(urls map[uint64][]string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.members)
	for id := range urls {
		e.members[id] = true
	}
	return nil
}

// off takes the end out of the network at once.
func (e *end) off() {
	if e.dead.Swap(true) {
		return
	}
	close(e.gone)
	e.network.set(func() {
		if e.network.ends[e.cfg.MemberID] == e {
			delete(e.network.ends, e.cfg.MemberID)
		}
	})
}

// Close takes the end out of the network and waits for what it does.
func (e *end) Close() error {
	e.mu.Lock() // no snapshot begins after this
	e.closed.Store(true)
	e.mu.Unlock()
	e.off()
	e.cancel()
	e.wg.Wait()
	return nil
}

// Send puts messages on their way. It is where a pause stops a member: the drive loop calls it for whatever
// it does, and all else of a member waits for that.
func (e *end) Send(msgs []*raftpb.Message) {
	paused := e.network.paused(e.cfg.MemberID)
	if paused != nil {
		select {
		case <-paused:
		case <-e.gone:
		}
	}
	if e.dead.Load() {
		return
	}
	for _, m := range msgs {
		to := m.GetTo()
		if vote := m.GetType() == raftpb.MsgPreVote || m.GetType() == raftpb.MsgVote; vote && paused != nil {
			continue // it comes from ticks of the pause, in which a member that is stopped has none
		}
		if m.GetType() == raftpb.MsgSnap {
			if !e.startSnapshot(m) {
				e.cfg.Raft.ReportSnapshot(to, false)
			}
			continue
		}
		data := raftcodec.AppendBatch(nil, []*raftpb.Message{m})
		// The product sends a frame once on a stream that delivers it once. raft bears copies of all messages
		// but of a proposal, which would be two proposals.
		once := m.GetType() == raftpb.MsgProp
		if !e.network.post(e.cfg.MemberID, to, once, func(o *end) { o.receive(data) }) {
			e.cfg.Raft.ReportUnreachable(to)
		}
	}
}

// receive hands a message to the member.
func (e *end) receive(data []byte) {
	msgs, err := raftcodec.DecodeBatch(data) // what is decoded may refer to data, which nobody else has
	if err != nil {
		panic(fmt.Sprintf("sim: a message that this process encoded cannot be decoded: %v", err))
	}
	e.cfg.Raft.Step(msgs)
}

// startSnapshot sends the file that m asks for, one at a time to each member.
func (e *end) startSnapshot(m *raftpb.Message) bool {
	to := m.GetTo()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sending[to] || e.closed.Load() {
		return false
	}
	e.sending[to] = true
	e.wg.Go(func() {
		err := e.sendSnapshot(m)
		e.mu.Lock()
		delete(e.sending, to)
		e.mu.Unlock()
		e.cfg.Raft.ReportSnapshot(to, err == nil)
	})
	return true
}

// sendSnapshot sends the file as it is now, with the message, and waits until the member has stored it.
func (e *end) sendSnapshot(m *raftpb.Message) (err error) {
	snap, err := e.cfg.Source(e.ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	if have, want := snap.Metadata.GetIndex(), m.GetSnapshot().GetMetadata().GetIndex(); have < want {
		return fmt.Errorf("sim: the file is at entry %d, raft needs %d", have, want)
	}
	var file bytes.Buffer
	if _, err := snap.Data.WriteTo(&file); err != nil {
		return err
	}
	from, to := e.cfg.MemberID, m.GetTo()
	other, err := e.network.hop(e.ctx, from, to)
	if err != nil {
		return err
	}
	if err := other.cfg.Store(e.ctx, snap.Metadata, snap.Size, &file); err != nil {
		return err
	}
	if other.dead.Load() {
		return errLost
	}
	other.receive(raftcodec.AppendBatch(nil, []*raftpb.Message{{
		Type: m.Type, To: m.To, From: m.From, Term: m.Term, Snapshot: &raftpb.Snapshot{Metadata: snap.Metadata},
	}}))
	_, err = e.network.hop(e.ctx, to, from)
	return err
}

// ActiveSince tells since when the other can be reached.
func (e *end) ActiveSince(id uint64) time.Time {
	e.network.mu.Lock()
	defer e.network.mu.Unlock()
	o := e.network.ends[id]
	if o == nil || e.dead.Load() || e.network.cutLocked(e.cfg.MemberID, id) || e.network.cutLocked(id, e.cfg.MemberID) {
		return time.Time{}
	}
	if o.since.After(e.since) {
		return o.since
	}
	return e.since
}

// LeaseKeepAlive asks another member to renew leases.
func (e *end) LeaseKeepAlive(ctx context.Context, to uint64, r *peerpb.LeaseKeepAliveRequest) (*peerpb.LeaseKeepAliveResponse, error) {
	return call(ctx, e, to, r, peer.Service.LeaseKeepAlive)
}

// LeaseTimeToLive asks another member about a lease.
func (e *end) LeaseTimeToLive(ctx context.Context, to uint64, r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
	return call(ctx, e, to, r, peer.Service.LeaseTimeToLive)
}

// Info asks another member who it is.
func (e *end) Info(ctx context.Context, to uint64, r *peerpb.InfoRequest) (*peerpb.InfoResponse, error) {
	return call(ctx, e, to, r, peer.Service.Info)
}

// call is a call there and back.
func call[Req, Resp any](ctx context.Context, e *end, to uint64, r Req, f func(peer.Service, context.Context, Req) (Resp, error)) (resp Resp, err error) {
	from := e.cfg.MemberID
	if e.dead.Load() {
		return resp, errLost
	}
	other, err := e.network.hop(ctx, from, to)
	if err != nil {
		return resp, err
	}
	answer, answerErr := f(other.cfg.Service, ctx, r)
	if other.dead.Load() {
		return resp, errLost
	}
	if _, err := e.network.hop(ctx, to, from); err != nil {
		return resp, err
	}
	return answer, answerErr
}
