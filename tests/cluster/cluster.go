package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/client"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Cluster is a cluster of processes.
type Cluster struct{ Members []*Member }

// New starts a cluster of processes with further arguments, and waits until all members are ready. It ends with the test.
func New(t testing.TB, size int, args ...string) *Cluster {
	t.Helper()
	c := Prepare(t, size, args...)
	c.Start(t)
	return c
}

// Prepare is New without starting anything.
func Prepare(t testing.TB, size int, args ...string) *Cluster {
	t.Helper()
	return PrepareWith(t, size, func(*Member) {}, args...)
}

// PrepareWith is Prepare with a function that may change each member, such as the address that others are told.
func PrepareWith(t testing.TB, size int, change func(m *Member), args ...string) *Cluster {
	t.Helper()
	c := &Cluster{}
	var initial []string
	for i := range size {
		m := NewMember(t, fmt.Sprintf("m%d", i+1))
		change(m)
		c.Members = append(c.Members, m)
		initial = append(initial, m.Name+"="+m.advertised())
	}
	for _, m := range c.Members {
		m.args = append([]string{"--initial-cluster", strings.Join(initial, ",")}, args...)
	}
	t.Cleanup(func() { // before the members' own
		for _, m := range c.Members {
			if err := m.Crashed(); err != nil {
				t.Errorf("member %s: %v", m.Name, err)
			}
		}
	})
	return c
}

// Start starts all members that do not run and waits until they are ready.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	for _, m := range c.Members {
		if !m.Running() {
			m.Kill() // takes note of an end by itself
			if err := m.Start(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, m := range c.Members {
		if err := m.WaitReady(StartLimit); err != nil {
			t.Fatal(err)
		}
	}
}

// Kill ends all members by SIGKILL, as near to at once as can be.
func (c *Cluster) Kill() {
	for _, m := range c.Members {
		m.Pause()
	}
	for _, m := range c.Members {
		m.Kill()
	}
}

// Size is the number of members.
func (c *Cluster) Size() int { return len(c.Members) }

// Endpoints are the client URLs of the members with these numbers, of all without any.
func (c *Cluster) Endpoints(members ...int) []string {
	var all []string
	for i, m := range c.Members {
		if len(members) == 0 || slices.Contains(members, i) {
			all = append(all, m.ClientURL)
		}
	}
	return all
}

// Etcd is etcd's client, connected to the members with these numbers, to all without any. The test closes it.
func (c *Cluster) Etcd(t testing.TB, members ...int) *clientv3.Client {
	t.Helper()
	return etcdClient(t, clientv3.Config{Endpoints: c.Endpoints(members...)})
}

// Native is the client of package client, connected likewise.
func (c *Cluster) Native(t testing.TB, members ...int) *client.Client {
	t.Helper()
	return nativeClient(t, c.Endpoints(members...))
}

// Leader is the member that leads. It waits until the members that run agree on one.
func (c *Cluster) Leader(t testing.TB) *Member {
	t.Helper()
	var leader *Member
	Eventually(t, StartLimit, func() (err error) {
		leader, err = c.FindLeader(t.Context())
		return err
	})
	return leader
}

// FindLeader asks the members that run, once, who leads.
func (c *Cluster) FindLeader(ctx context.Context) (*Member, error) {
	var leader *Member
	var term uint64
	for _, m := range c.Members {
		if !m.Running() || m.Paused() {
			continue
		}
		st, err := status(ctx, m)
		if err != nil {
			return nil, err
		}
		if st.Header.MemberId == st.Leader && st.RaftTerm >= term {
			leader, term = m, st.RaftTerm
		}
	}
	if leader == nil {
		return nil, errors.New("no member leads")
	}
	return leader, nil
}

func status(ctx context.Context, m *Member) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.ClientURL}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Status(ctx, m.ClientURL)
}

// SameHash waits until all members have the same hash of the same revision, which they must have once nothing is written
// any more. It gives the revision.
func (c *Cluster) SameHash(t testing.TB, limit time.Duration) int64 {
	t.Helper()
	cl := c.Etcd(t)
	var rev int64
	Eventually(t, limit, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		got, err := cl.Get(ctx, "hash", clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		rev = got.Header.Revision
		var first *clientv3.HashKVResponse
		for _, url := range c.Endpoints() {
			h, err := cl.HashKV(ctx, url, rev)
			if err != nil {
				return fmt.Errorf("%s: %w", url, err)
			}
			if first == nil {
				first = h
			}
			if h.Hash != first.Hash || h.CompactRevision != first.CompactRevision {
				return fmt.Errorf("at revision %d %s has hash %d from revision %d on, another member %d from %d on", rev, url, h.Hash, h.CompactRevision, first.Hash, first.CompactRevision)
			}
		}
		return nil
	})
	return rev
}

func etcdClient(t testing.TB, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	cfg.Logger, cfg.DialTimeout = zap.NewNop(), 5*time.Second
	c, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // fails if the test has closed it
	return c
}

func nativeClient(t testing.TB, endpoints []string, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(endpoints, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // may be closed before
	return c
}
