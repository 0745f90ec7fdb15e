package client

import "github.com/coordd/coordd/api/rpcpb"

// Cmp is a condition of a transaction, such as client.Version("k").Equal(0). With WithPrefix, WithRange or
// WithFromKey every key there must satisfy it. A key that does not exist has numbers of 0, and no
// condition on its value holds.
type Cmp struct{ cmp *rpcpb.Compare }

// Number is a number of a key that a condition looks at.
type Number struct {
	target rpcpb.Compare_CompareTarget
	key    string
	opts   []CompareOption
}

// Version is the number of changes of a key since it was created; 0 if it does not exist.
func Version(key string, opts ...CompareOption) Number {
	return Number{rpcpb.Compare_VERSION, key, opts}
}

// CreateRevision is the revision a key was created at; 0 if it does not exist.
func CreateRevision(key string, opts ...CompareOption) Number {
	return Number{rpcpb.Compare_CREATE, key, opts}
}

// ModRevision is the revision a key was last changed at; 0 if it does not exist.
func ModRevision(key string, opts ...CompareOption) Number {
	return Number{rpcpb.Compare_MOD, key, opts}
}

// LeaseOf is the id of the lease of a key; 0 if it has none.
func LeaseOf(key string, opts ...CompareOption) Number {
	return Number{rpcpb.Compare_LEASE, key, opts}
}

// Equal is the condition that the number is n.
func (s Number) Equal(n int64) Cmp { return s.is(rpcpb.Compare_EQUAL, n) }

// NotEqual is the condition that the number is not n.
func (s Number) NotEqual(n int64) Cmp { return s.is(rpcpb.Compare_NOT_EQUAL, n) }

// Greater is the condition that the number is above n.
func (s Number) Greater(n int64) Cmp { return s.is(rpcpb.Compare_GREATER, n) }

// Less is the condition that the number is below n.
func (s Number) Less(n int64) Cmp { return s.is(rpcpb.Compare_LESS, n) }

func (s Number) is(result rpcpb.Compare_CompareResult, n int64) Cmp {
	c := newCompare(s.target, result, s.key, s.opts)
	switch s.target {
	case rpcpb.Compare_VERSION:
		c.TargetUnion = &rpcpb.Compare_Version{Version: n}
	case rpcpb.Compare_CREATE:
		c.TargetUnion = &rpcpb.Compare_CreateRevision{CreateRevision: n}
	case rpcpb.Compare_MOD:
		c.TargetUnion = &rpcpb.Compare_ModRevision{ModRevision: n}
	case rpcpb.Compare_LEASE:
		c.TargetUnion = &rpcpb.Compare_Lease{Lease: n}
	}
	return Cmp{c}
}

// Content is the value of a key that a condition looks at.
type Content struct {
	key  string
	opts []CompareOption
}

// Value is the value of a key, compared byte by byte.
func Value(key string, opts ...CompareOption) Content { return Content{key, opts} }

// Equal is the condition that the value is v.
func (s Content) Equal(v string) Cmp { return s.is(rpcpb.Compare_EQUAL, v) }

// NotEqual is the condition that the key exists and its value is not v.
func (s Content) NotEqual(v string) Cmp { return s.is(rpcpb.Compare_NOT_EQUAL, v) }

// Greater is the condition that the value sorts after v.
func (s Content) Greater(v string) Cmp { return s.is(rpcpb.Compare_GREATER, v) }

// Less is the condition that the value sorts before v.
func (s Content) Less(v string) Cmp { return s.is(rpcpb.Compare_LESS, v) }

func (s Content) is(result rpcpb.Compare_CompareResult, v string) Cmp {
	c := newCompare(rpcpb.Compare_VALUE, result, s.key, s.opts)
	c.TargetUnion = &rpcpb.Compare_Value{Value: []byte(v)}
	return Cmp{c}
}

// KeyExists is the condition that a key exists.
func KeyExists(key string) Cmp { return CreateRevision(key).Greater(0) }

// KeyMissing is the condition that a key does not exist.
func KeyMissing(key string) Cmp { return CreateRevision(key).Equal(0) }

// newCompare gives a condition without the operand.
func newCompare(t rpcpb.Compare_CompareTarget, r rpcpb.Compare_CompareResult, key string, opts []CompareOption) *rpcpb.Compare {
	c := &rpcpb.Compare{Target: t, Result: r, Key: []byte(key)}
	for _, o := range opts {
		o.applyCompare(c)
	}
	return c
}
