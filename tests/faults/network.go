package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Rule is what a link does with the bytes of one direction. The zero Rule passes them on.
type Rule struct {
	Cut   bool          // hold them back
	Delay time.Duration // pass each piece on so much later
	Chunk int           // size of a piece, 0: as it comes
}

// link is one direction between two ends, which are names of members and clients.
type link struct{ from, to string }

// Network relays the connections between members, and those of clients.
type Network struct {
	who func(remote net.Addr) (string, error) // which member has a socket

	mu        sync.Mutex // guards all below
	rules     map[link]Rule
	changed   chan struct{} // closed when rules change
	relays    map[*relay]bool
	listeners []net.Listener
	closed    bool
	names     map[string]string // of members, by the address that clients dial

	busy sync.WaitGroup
}

// relay is one connection through the network.
type relay struct {
	a, b   string
	ca, cb net.Conn
	broken chan struct{}
	once   sync.Once
}

// NewNetwork gives a network without links. who names the member whose socket has a local address.
func NewNetwork(who func(remote net.Addr) (string, error)) *Network {
	return &Network{
		who: who, rules: map[link]Rule{}, changed: make(chan struct{}), relays: map[*relay]bool{}, names: map[string]string{},
	}
}

// Listen opens an address that leads to a member's, and gives it.
func (n *Network) Listen(member, address string) (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	n.listeners = append(n.listeners, ln)
	n.mu.Unlock()
	n.busy.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return // closed
			}
			n.busy.Go(func() { n.accept(member, address, c) })
		}
	})
	return ln.Addr().String(), nil
}

// accept relays one connection of a member to another.
func (n *Network) accept(member, address string, c net.Conn) {
	from, err := n.who(c.RemoteAddr())
	if err != nil { // it has died meanwhile
		_ = c.Close()
		return
	}
	up, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err != nil {
		_ = c.Close()
		return
	}
	n.join(from, member, c, up)
}

// Name tells under which address clients dial a member.
func (n *Network) Name(member, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names[address] = member
}

// Dialer gives the dialer of a client. It is for grpc.WithContextDialer.
func (n *Network) Dialer(client string) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		n.mu.Lock()
		member, ok := n.names[address]
		n.mu.Unlock()
		if !ok {
			return nil, fmt.Errorf("nobody has the address %s", address)
		}
		r := &relay{a: client, b: member, broken: make(chan struct{})}
		if err := n.pass(ctx, r, link{client, member}); err != nil {
			return nil, err
		}
		up, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		near, far := net.Pipe()
		n.join(client, member, far, up)
		return near, nil
	}
}

// join relays between two connections until one of them ends.
func (n *Network) join(a, b string, ca, cb net.Conn) {
	r := &relay{a: a, b: b, ca: ca, cb: cb, broken: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		r.shut()
		return
	}
	n.relays[r] = true
	n.busy.Go(func() { n.pump(r, link{a, b}, ca, cb) })
	n.busy.Go(func() { n.pump(r, link{b, a}, cb, ca) })
}

// pump carries the bytes of one direction.
func (n *Network) pump(r *relay, l link, src, dst net.Conn) {
	defer func() {
		r.shut()
		n.mu.Lock()
		delete(n.relays, r)
		n.mu.Unlock()
	}()
	buf := make([]byte, 32<<10)
	for {
		size := len(buf)
		if c := n.rule(l).Chunk; c > 0 {
			size = min(c, size)
		}
		k, err := src.Read(buf[:size])
		if n.pass(context.Background(), r, l) != nil { // an end is held back as bytes are
			return
		}
		if k > 0 {
			if _, err := dst.Write(buf[:k]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (n *Network) rule(l link) Rule {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rules[l]
}

var errBroken = errors.New("the connection was broken")

// pass waits until bytes may go on.
func (n *Network) pass(ctx context.Context, r *relay, l link) error {
	for {
		n.mu.Lock()
		rule, changed, closed := n.rules[l], n.changed, n.closed
		n.mu.Unlock()
		var late <-chan time.Time
		switch {
		case closed:
			return net.ErrClosed
		case !rule.Cut && rule.Delay == 0:
			return nil
		case !rule.Cut:
			late = time.After(rule.Delay)
		}
		select {
		case <-late:
			return nil
		case <-changed:
		case <-r.broken:
			return errBroken
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Set gives one direction a rule.
func (n *Network) Set(from, to string, rule Rule) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if rule == (Rule{}) {
		delete(n.rules, link{from, to})
	} else {
		n.rules[link{from, to}] = rule
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// Break ends all connections between two ends.
func (n *Network) Break(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for r := range n.relays {
		if r.a == a && r.b == b || r.a == b && r.b == a {
			r.shut()
		}
	}
}

// Close ends everything and waits for it.
func (n *Network) Close() {
	n.mu.Lock()
	n.closed = true
	for _, ln := range n.listeners {
		_ = ln.Close()
	}
	for r := range n.relays {
		r.shut()
	}
	close(n.changed)
	n.changed = make(chan struct{})
	n.mu.Unlock()
	n.busy.Wait()
}

func (r *relay) shut() {
	r.once.Do(func() {
		close(r.broken)
		_ = r.ca.Close()
		_ = r.cb.Close()
	})
}
