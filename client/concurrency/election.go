package concurrency

import (
	"context"
	"fmt"
	"sync"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

// Election is a contest of sessions for being the one that leads. The candidates queue as those for a [Mutex] do, and each
// has a value, such as its address. It is the election of the service Election and of etcd's clients under the
// same name. Any number of goroutines may use it.
type Election struct {
	s    *Session
	line line

	mu   sync.Mutex // guards held
	held *place     // nil if this one does not lead
}

// Leader is one who leads an election.
type Leader struct {
	// Key stands for the leadership.
	Key string
	// Value is what was proclaimed last.
	Value string
	// Token grows with each leader; see [Mutex.FencingToken].
	Token int64
	// Lease is what the leadership lives on.
	Lease client.LeaseID
}

// NewElection gives the election of a name for a session.
func NewElection(s *Session, name string) *Election {
	l := newLine(s, name)
	l.named = true
	return &Election{s: s, line: l}
}

// ResumeElection gives the election of a name for a session that leads it already, as one does that took over the lease
// of a process before its restart (WithLease). token is that of the leadership, 0 for any. ErrNotLeader: the
// session does not lead, or not with that token.
func ResumeElection(ctx context.Context, s *Session, name string, token int64) (*Election, error) {
	e := NewElection(s, name)
	now, err := e.Leader(ctx)
	if err != nil {
		return nil, err
	}
	if now.Key != e.line.key || token != 0 && now.Token != token {
		return nil, fmt.Errorf("%w: %q is led by %q with token %d", ErrNotLeader, name, now.Key, now.Token)
	}
	if err := s.reserve(e.line.key); err != nil {
		return nil, err
	}
	e.held = &place{s: s, line: e.line, rev: now.Token, front: true}
	return e, nil
}

// Campaign waits until this session leads, with a value. If it does already it proclaims the value. Errors are those of
// [Mutex.Lock].
func (e *Election) Campaign(ctx context.Context, value string) error {
	if p := e.holding(); p != nil {
		return e.proclaim(ctx, p, value)
	}
	p, err := e.line.join(ctx, e.s, value, false)
	if err != nil {
		return err
	}
	if err := p.wait(ctx); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = p
	return nil
}

// Proclaim gives the leadership another value. ErrNotLeader: this one does not lead, or not any more.
func (e *Election) Proclaim(ctx context.Context, value string) error {
	p := e.holding()
	if p == nil {
		return ErrNotLeader
	}
	return e.proclaim(ctx, p, value)
}

func (e *Election) proclaim(ctx context.Context, p *place, value string) error {
	resp, _, err := commit(ctx, func() (*rpcpb.TxnResponse, error) {
		return e.s.c.Txn(ctx).If(p.kept()).Then(client.OpPut(p.key, value, client.WithLease(e.s.id))).Commit()
	})
	if err != nil {
		return err
	}
	if resp.Succeeded {
		return nil
	}
	e.drop(p)
	e.s.release(p.key, false)
	return fmt.Errorf("%w: %w", ErrNotLeader, p.vanished())
}

// Resign gives the leadership up. It is nil if there was none, or it was lost. After an error it may or may not be
// there, and Resign may be called again: it never ends a later leadership.
func (e *Election) Resign(ctx context.Context) error {
	p := e.holding()
	if p == nil {
		return nil
	}
	if _, err := p.leave(ctx); err != nil {
		return err
	}
	e.drop(p)
	return nil
}

// IsLeader is the condition that this one leads, for transactions that only the leader may do.
func (e *Election) IsLeader() client.Cmp { return owner(e.holding(), e.line.key) }

// WhileLeader gives a context that ends with ctx or when the leadership is lost or given up, as [Mutex.WhileHeld] does.
func (e *Election) WhileLeader(ctx context.Context) (context.Context, context.CancelFunc) {
	return holding(ctx, e.holding(), ErrNotLeader)
}

// FencingToken grows with each leader; 0 if this one does not lead. See [Mutex.FencingToken].
func (e *Election) FencingToken() int64 {
	if p := e.holding(); p != nil {
		return p.rev
	}
	return 0
}

// Key is the key that stands for the session's leadership or candidature.
func (e *Election) Key() string { return e.line.key }

// Leader tells who leads. ErrNoLeader: nobody does.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	kv, _, err := firstAt(ctx, e.s.c, e.line.prefix, 0)
	if err != nil {
		return Leader{}, err
	}
	if kv == nil {
		return Leader{}, ErrNoLeader
	}
	return leaderOf(kv), nil
}

// Observe follows the election; see the function of that name.
func (e *Election) Observe(ctx context.Context) *Observer {
	return newObserver(ctx, e.s.c, e.line.prefix)
}

func leaderOf(kv *kvpb.KeyValue) Leader {
	return Leader{Key: string(kv.Key), Value: string(kv.Value), Token: kv.CreateRevision, Lease: client.LeaseID(kv.Lease)}
}

func (e *Election) holding() *place {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held
}

// drop forgets a leadership.
func (e *Election) drop(p *place) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held == p {
		e.held = nil
	}
}
