package peer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// ErrUnknownMember is returned (wrapped) by calls to a member that is not known.
var ErrUnknownMember = errors.New("peer: no such member")

// Transport is a member's end of the peer network; see the package comment.
// Its methods may be called by any goroutine.
type Transport struct {
	cfg    Config
	server *grpc.Server
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // all goroutines of remotes

	mu      sync.Mutex // guards started, closed and writing remotes
	started bool
	closed  bool
	// remotes is replaced, never changed, so that Send reads it without a lock.
	remotes atomic.Pointer[map[uint64]*remote]

	logMu  sync.Mutex // guards logged
	logged map[trouble]string
}

// trouble is what logOnce tells apart.
type trouble struct {
	member uint64
	dir    direction
}

type direction bool

const (
	inbound  direction = false
	outbound direction = true
)

// New makes a Transport without remotes. It calls nothing of cfg before Start.
// Close ends it, started or not.
func New(cfg Config) (*Transport, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.QueueBytes == 0 {
		cfg.QueueBytes = 64 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	t := &Transport{cfg: cfg, logged: map[trouble]string{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.remotes.Store(&map[uint64]*remote{})
	t.server = newServer(t)
	return t, nil
}

// Start begins to connect to the members known now and from now on.
// Messages sent before wait for it.
func (t *Transport) Start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started || t.closed {
		return
	}
	t.started = true
	for _, r := range *t.remotes.Load() {
		r.start()
	}
}

// Serve accepts other members' connections on ln, which it closes, until Close.
// It may be called for several listeners, each on a goroutine of the caller's.
// It returns nil after Close.
func (t *Transport) Serve(ln net.Listener) error {
	err := t.server.Serve(ln)
	if t.ctx.Err() != nil || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("peer: listener %s: %w", ln.Addr(), err)
}

// Update makes a member known, or changes its peer URLs, which are tried in
// turn. The member itself is ignored. After Close it does nothing.
func (t *Transport) Update(id uint64, urls []string) error {
	if id == t.cfg.MemberID {
		return nil
	}
	if id == 0 || len(urls) == 0 {
		return fmt.Errorf("peer: member %x has no peer URL", id)
	}
	for _, u := range urls {
		if _, err := parseURL(u); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	old := *t.remotes.Load()
	if r := old[id]; r != nil {
		r.setURLs(slices.Clone(urls))
		return nil
	}
	now := maps.Clone(old)
	r := newRemote(t, id, slices.Clone(urls))
	now[id] = r
	t.remotes.Store(&now)
	if t.started {
		r.start()
	}
	return nil
}

// SetMembers makes exactly these members known, by id with their peer URLs. One whose URLs cannot
// be used keeps those it had; the errors of all are returned together.
func (t *Transport) SetMembers(urls map[uint64][]string) error {
	var err error
	for id, u := range urls {
		err = errors.Join(err, t.Update(id, u))
	}
	for id := range *t.remotes.Load() {
		if _, ok := urls[id]; !ok {
			t.Remove(id)
		}
	}
	return err
}

// Remove forgets a member and ends the connections to it.
func (t *Transport) Remove(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.remotes.Load()
	r := old[id]
	if r == nil {
		return
	}
	now := maps.Clone(old)
	delete(now, id)
	t.remotes.Store(&now)
	r.stop()
}

// Send queues messages for their members and never waits. What cannot be sent is
// dropped and reported to Config.Raft. It keeps the messages, not the slice.
func (t *Transport) Send(msgs []*raftpb.Message) {
	remotes := *t.remotes.Load()
	var shared *entrySet
	var sharedEnts []*raftpb.Entry
	failed := uint64(0) // reported last: a member that is down fails many times in a row
	for _, m := range msgs {
		to := m.GetTo()
		r := remotes[to]
		if m.GetType() == raftpb.MsgSnap {
			if r == nil || !r.startSnapshot(m) {
				t.cfg.Raft.ReportSnapshot(to, false)
			}
			continue
		}
		q := queued{msg: m}
		if m.GetType() == raftpb.MsgApp || m.GetType() == raftpb.MsgProp {
			if ents := m.GetEntries(); len(ents) > 0 {
				if !sameEntries(ents, sharedEnts) {
					shared, sharedEnts = newEntrySet(ents), ents
				}
				q.ents = shared
			}
		}
		if r == nil || !r.queue.put(q) {
			if failed != to {
				t.cfg.Raft.ReportUnreachable(to)
			}
			failed = to
			t.sendFailed(to, 1)
		}
	}
}

// sameEntries tells whether two appends carry the same run of one log.
func sameEntries(a, b []*raftpb.Entry) bool {
	return len(a) == len(b) && a[0] == b[0] && a[len(a)-1] == b[len(b)-1]
}

func (t *Transport) sendFailed(to uint64, n int) {
	if t.cfg.Hooks.SendFailed != nil && n > 0 {
		t.cfg.Hooks.SendFailed(to, n)
	}
}

// ActiveSince tells since when messages to the member get through without a
// break, by this process's clock; the zero time if they do not, or the member is unknown.
func (t *Transport) ActiveSince(id uint64) time.Time {
	if r := (*t.remotes.Load())[id]; r != nil {
		return r.activeSince()
	}
	return time.Time{}
}

// Close ends all connections and waits for all goroutines. It may be called
// again.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	old := *t.remotes.Load()
	t.remotes.Store(&map[uint64]*remote{})
	for _, r := range old {
		r.stop()
	}
	t.mu.Unlock()
	t.cancel()
	t.server.Stop()
	t.wg.Wait()
	return nil
}

// logOnce logs what went wrong with a member, but not again as long as nothing
// else happens with it. A nil err ends the trouble.
func (t *Transport) logOnce(id uint64, dir direction, what string, err error) {
	key := trouble{id, dir}
	text := ""
	if err != nil {
		text = what + ": " + err.Error()
	}
	t.logMu.Lock()
	changed := t.logged[key] != text
	if len(t.logged) > 1000 { // callers choose their ids
		clear(t.logged)
	}
	if text == "" {
		delete(t.logged, key)
	} else {
		t.logged[key] = text
	}
	t.logMu.Unlock()
	switch {
	case !changed:
	case err != nil:
		t.cfg.Logger.Warn(what, zap.String("member", hex(id)), zap.Error(err))
	default:
		t.cfg.Logger.Info("the peer connection works again", zap.String("member", hex(id)))
	}
}
