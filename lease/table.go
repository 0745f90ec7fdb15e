package lease

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/leasepb"
	"github.com/coordd/coordd/mvcc/backend"
)

// MaxTTL is the longest time to live that is granted, in seconds.
const MaxTTL = 9_000_000_000

// ID names a lease. Zero is no lease.
type ID int64

// Lease is what is known of a lease besides its keys.
type Lease struct {
	ID ID
	// TTL is what was granted, in seconds, at least 1.
	TTL int64
	// Remaining is what was left at the last checkpoint, in seconds; 0 stands for all of TTL.
	Remaining int64
}

// Left is the time to live a new leader has to give, in seconds: Remaining, or TTL.
func (l Lease) Left() int64 {
	if l.Remaining > 0 {
		return l.Remaining
	}
	return l.TTL
}

// Op says what happened to a lease.
type Op uint8

// The operations that a [Change] reports.
const (
	Granted Op = iota + 1
	Revoked
	Checkpointed
)

// Change is one change of a [Table], for the [Expirer].
type Change struct {
	Op Op
	// Lease is the lease as the change left it, or as it last was.
	Lease Lease
}

// shards is how many locks the Table is split over; a power of two.
const shards = 64

// Table is the replicated lease table. Lookups may be called by any goroutine. Changes belong to
// the apply loop, except that [Table.Attach] may be called by several goroutines while the store
// is being opened.
type Table struct {
	b      *backend.Backend
	shards [shards]shard
}

type shard struct {
	mu     sync.RWMutex
	leases map[ID]*entry
}

// entry is a lease with its keys. The shard's mutex guards it.
type entry struct {
	lease Lease
	keys  map[string]struct{} // nil until the first key
}

// Open reads the table from bucket lease of b. Keys are not attached yet: pass
// [Table.Attach] to the opening of the store for that. The error names the row that cannot be read.
func Open(b *backend.Backend) (*Table, error) {
	t := &Table{b: b}
	for i := range t.shards {
		t.shards[i].leases = make(map[ID]*entry)
	}
	if err := b.ForEach(backend.BucketLease, t.load); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Table) load(key, value []byte) error {
	if len(key) != 8 {
		return fmt.Errorf("bucket lease: key %x has %d bytes, not 8", key, len(key))
	}
	id := ID(binary.BigEndian.Uint64(key))
	var pb leasepb.Lease
	if err := pb.UnmarshalVT(value); err != nil {
		return fmt.Errorf("bucket lease: lease %x: %w", uint64(id), err)
	}
	if ID(pb.ID) != id || id == 0 {
		return fmt.Errorf("bucket lease: the row of lease %x holds lease %x", uint64(id), uint64(pb.ID))
	}
	l := Lease{ID: id, TTL: max(pb.TTL, 1), Remaining: clampRemaining(pb.RemainingTTL, max(pb.TTL, 1))}
	t.shard(id).leases[id] = &entry{lease: l}
	return nil
}

// shard picks the lock for id. Ids are either random or small and consecutive; the multiplier
// (2^64 divided by the golden ratio) spreads both.
func (t *Table) shard(id ID) *shard {
	return &t.shards[uint64(id)*0x9e3779b97f4a7c15>>58]
}

// CheckGrant says whether a lease with this id and TTL could be granted now: nil, or
// [errs.ErrLeaseExist], [errs.ErrLeaseTTLTooLarge], or [errs.ErrLeaseNotFound] for id 0, which
// the server must have replaced by a free id before. Any goroutine may ask.
func (t *Table) CheckGrant(id ID, ttl int64) error {
	if id == 0 {
		return errs.ErrLeaseNotFound
	}
	if ttl > MaxTTL {
		return errs.ErrLeaseTTLTooLarge
	}
	if _, exists := t.Get(id); exists {
		return errs.ErrLeaseExist
	}
	return nil
}

// Grant adds a lease. ttl is in seconds; anything below 1 becomes 1 (the floor that depends on
// the election timeout is the proposer's business). Errors are those of [Table.CheckGrant].
func (t *Table) Grant(id ID, ttl int64) (Change, error) {
	if err := t.CheckGrant(id, ttl); err != nil {
		return Change{}, err
	}
	l := Lease{ID: id, TTL: max(ttl, 1)}
	t.save(l)
	s := t.shard(id)
	s.mu.Lock()
	s.leases[id] = &entry{lease: l}
	s.mu.Unlock()
	return Change{Op: Granted, Lease: l}, nil
}

// Revoke removes a lease and forgets what was attached to it; the caller has deleted the keys,
// see [Table.Keys]. It returns [errs.ErrLeaseNotFound] if there is none.
func (t *Table) Revoke(id ID) (Change, error) {
	s := t.shard(id)
	s.mu.Lock()
	e := s.leases[id]
	delete(s.leases, id)
	s.mu.Unlock()
	if e == nil {
		return Change{}, errs.ErrLeaseNotFound
	}
	t.b.Delete(backend.BucketLease, rowKey(id))
	return Change{Op: Revoked, Lease: e.lease}, nil
}

// Checkpoint records that remaining seconds of a lease are left; 0 means that all of its TTL is
// left again. Values outside of 1..TTL-1 are brought inside: what is above counts as all,
// what is below as one second. ok is false if there is no such lease (it may have been revoked meanwhile).
func (t *Table) Checkpoint(id ID, remaining int64) (c Change, ok bool) {
	s := t.shard(id)
	s.mu.Lock()
	e := s.leases[id]
	if e != nil {
		e.lease.Remaining = clampRemaining(remaining, e.lease.TTL)
		c = Change{Op: Checkpointed, Lease: e.lease}
	}
	s.mu.Unlock()
	if e == nil {
		return Change{}, false
	}
	t.save(c.Lease)
	return c, true
}

func clampRemaining(remaining, ttl int64) int64 {
	switch {
	case remaining >= ttl:
		return 0
	case remaining < 0:
		return min(1, ttl-1)
	default:
		return remaining
	}
}

// Attach ties key to a lease; the key is copied. It does nothing if the lease does not exist
// (including id 0), or the key is attached already.
func (t *Table) Attach(id ID, key []byte) {
	if id == 0 {
		return
	}
	s := t.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.leases[id]
	if e == nil {
		return
	}
	if e.keys == nil {
		e.keys = make(map[string]struct{}, 1)
	}
	if _, there := e.keys[string(key)]; !there {
		e.keys[string(key)] = struct{}{}
	}
}

// Detach unties key from a lease. It does nothing if it was not tied.
func (t *Table) Detach(id ID, key []byte) {
	if id == 0 {
		return
	}
	s := t.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.leases[id]; e != nil {
		delete(e.keys, string(key))
	}
}

// Get returns a lease by its id.
func (t *Table) Get(id ID) (l Lease, ok bool) {
	s := t.shard(id)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.leases[id]; e != nil {
		return e.lease, true
	}
	return Lease{}, false
}

// Keys returns the keys attached to a lease in ascending order, nil if there are none or no such
// lease. The caller owns the list.
func (t *Table) Keys(id ID) []string {
	s := t.shard(id)
	s.mu.RLock()
	e := s.leases[id]
	if e == nil || len(e.keys) == 0 {
		s.mu.RUnlock()
		return nil
	}
	keys := make([]string, 0, len(e.keys))
	for k := range e.keys {
		keys = append(keys, k)
	}
	s.mu.RUnlock()
	slices.Sort(keys)
	return keys
}

// List returns all leases in no particular order. It is no snapshot: leases granted or
// revoked while it runs may or may not be in it.
func (t *Table) List() []Lease {
	var all []Lease
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		for _, e := range s.leases {
			all = append(all, e.lease)
		}
		s.mu.RUnlock()
	}
	return all
}

// Len is the number of leases.
func (t *Table) Len() int {
	n := 0
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		n += len(s.leases)
		s.mu.RUnlock()
	}
	return n
}

func (t *Table) save(l Lease) {
	pb := leasepb.Lease{ID: int64(l.ID), TTL: l.TTL, RemainingTTL: l.Remaining}
	value, err := pb.MarshalVT()
	if err != nil {
		panic(fmt.Sprintf("lease: encoding lease %x: %v", uint64(l.ID), err)) // three integers cannot fail
	}
	t.b.Put(backend.BucketLease, rowKey(l.ID), value)
}

// rowKey is the key of a lease in its bucket.
func rowKey(id ID) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(id))
}
