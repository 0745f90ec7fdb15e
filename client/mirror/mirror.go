package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/client"
)

// ErrSuperseded ends a Run when another began with the same note of progress.
var ErrSuperseded = errors.New("mirror: another mirror with the same progress key has taken over")

// DefaultMaxOps is the largest number of operations of a transaction unless MaxOps says otherwise: what servers allow unless they
// are set otherwise.
const DefaultMaxOps = 128

// Option shapes a mirror.
type Option func(*Mirror)

// Keys sets the prefix of what is copied. Default: everything.
func Keys(prefix string) Option { return func(m *Mirror) { m.source = prefix } }

// Into sets the prefix of the copy, in place of that of Keys. Default: the same.
func Into(prefix string) Option { return func(m *Mirror) { m.copy = &prefix } }

// Progress names the key, in the cluster of the copy, where the mirror notes how far it has come. It may be below the prefix of the copy.
// Default: none, and each Run begins with comparing.
func Progress(key string) Option { return func(m *Mirror) { m.key = key } }

// MaxOps bounds the operations of one transaction; at least 2. Default: DefaultMaxOps.
func MaxOps(n int) Option { return func(m *Mirror) { m.maxOps = max(n, 2) } }

// From has the first Run follow the source from this revision on without comparing, for a copy that is known to be complete up to the
// one before. A note of progress counts more.
func From(rev int64) Option { return func(m *Mirror) { m.begin = rev } }

// KeepExtra leaves keys of the copy that the source does not have when the mirror compares. Then deletions that it did not see, because it
// was not running and history is compacted or there is no note of progress, are missing in the copy.
func KeepExtra() Option { return func(m *Mirror) { m.keep = true } }

// Stats is what a mirror has done.
type Stats struct {
	// Revision is that of the source up to which the copy is complete; 0 before that is known.
	Revision int64
	// Puts and Deletes are the changes made to the copy, Compared the times it compared.
	Puts, Deletes, Compared int64
}

// Mirror copies keys. Make it with New.
type Mirror struct {
	from, to *client.Client
	source   string
	copy     *string
	key      string
	maxOps   int
	begin    int64
	keep     bool

	running atomic.Bool
	rev     atomic.Int64
	puts    atomic.Int64
	deletes atomic.Int64
	compare atomic.Int64
}

// New gives a mirror that copies between the clusters of two clients, which may be one.
func New(from, to *client.Client, opts ...Option) *Mirror {
	m := &Mirror{from: from, to: to, maxOps: DefaultMaxOps}
	for _, o := range opts {
		o(m)
	}
	if m.copy == nil {
		m.copy = &m.source
	}
	return m
}

// Stats gives what was done so far. Any goroutine may call it.
func (m *Mirror) Stats() Stats {
	return Stats{m.rev.Load(), m.puts.Load(), m.deletes.Load(), m.compare.Load()}
}

// Run copies until ctx ends, whose cause it returns, or something fails: ErrSuperseded, or an error of the source or the copy that
// does not go away by itself. It may be called again, and goes on where it was.
func (m *Mirror) Run(ctx context.Context) error {
	if m.running.Swap(true) {
		return errors.New("mirror: it is running already")
	}
	defer m.running.Store(false)
	r := &run{m: m, id: fmt.Sprintf("%016x", rand.Uint64())}
	err := r.all(ctx)
	if why := context.Cause(ctx); why != nil {
		return why
	}
	return err
}

// run is one Run.
type run struct {
	m  *Mirror
	id string
	// note is the value of the progress key as this run has written it, or found it; "" if there is none.
	note string
}

// noted is the form of a note.
type noted struct {
	// Cluster is the id of the source.
	Cluster uint64 `json:"cluster"`
	// Revision is up to where the copy is complete; 0 if it is not.
	Revision int64 `json:"revision"`
	// Source and Copy are the prefixes.
	Source string `json:"source"`
	Copy   string `json:"copy"`
	// Run is the id of the Run that writes the copy.
	Run string `json:"run"`
}

// all does everything.
func (r *run) all(ctx context.Context) error {
	if err := r.check(); err != nil {
		return err
	}
	head, err := r.m.from.Get(ctx, r.m.source+"\x00", client.WithCountOnly())
	if err != nil {
		return fmt.Errorf("mirror: reading the source: %w", err)
	}
	cluster := head.Header.ClusterId
	rev, err := r.resume(ctx, cluster)
	if err != nil {
		return err
	}
	for {
		if rev == 0 {
			if rev, err = r.compare(ctx, cluster); err != nil {
				return err
			}
		}
		r.m.rev.Store(rev)
		if err := r.follow(ctx, cluster, rev); !errors.Is(err, errs.ErrCompacted) {
			return err
		}
		rev = 0
	}
}

// check refuses a mirror that would copy its own copies.
func (r *run) check() error {
	a, b := r.m.source, *r.m.copy
	if r.m.from == r.m.to && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
		return fmt.Errorf("mirror: in one cluster, neither of the prefixes %q and %q may be within the other", a, b)
	}
	return nil
}

// resume reads the note of an earlier run and puts its own in its place. It gives the revision to follow from, 0 if it is to
// compare.
func (r *run) resume(ctx context.Context, cluster uint64) (int64, error) {
	rev := max(r.m.rev.Load(), r.m.begin-1, 0)
	if r.m.key == "" {
		return rev, nil
	}
	found, err := r.m.to.Get(ctx, r.m.key)
	if err != nil {
		return 0, fmt.Errorf("mirror: reading the progress: %w", err)
	}
	if len(found.Kvs) > 0 {
		r.note = string(found.Kvs[0].Value)
		var n noted
		if err := json.Unmarshal(found.Kvs[0].Value, &n); err != nil {
			return 0, fmt.Errorf("mirror: key %q holds no note of progress; give another or delete it: %w", r.m.key, err)
		}
		rev = 0
		if n.Cluster == cluster && n.Source == r.m.source && n.Copy == *r.m.copy {
			rev = n.Revision
		}
	}
	return rev, r.write(ctx, nil, r.noteAt(cluster, rev))
}

// noteAt gives the note for a revision.
func (r *run) noteAt(cluster uint64, rev int64) string {
	b, err := json.Marshal(noted{cluster, rev, r.m.source, *r.m.copy, r.id})
	if err != nil {
		panic(err) // numbers and strings
	}
	return string(b)
}

// copied gives the name of the copy of a key.
func (r *run) copied(key []byte) string { return *r.m.copy + string(key[len(r.m.source):]) }
