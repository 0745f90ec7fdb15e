package embed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"google.golang.org/grpc/test/bufconn"
)

// pipeBytes is how much may be under way in one direction of an in-memory connection.
const pipeBytes = 256 << 10

// Network is a network in memory, through which nodes of one program reach each other without sockets:
//
//	network := embed.NewNetwork()
//	ln, err := network.Listen("m1:2380")
//	cfg.PeerListeners, cfg.PeerDialer = []net.Listener{ln}, network.Dial
//	cfg.AdvertisePeerURLs = []string{"http://m1:2380"}
//
// Any number of goroutines may use it. It has no goroutines.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener // by address
}

// NewNetwork returns a network without listeners.
func NewNetwork() *Network { return &Network{listeners: map[string]*memoryListener{}} }

// Listen takes an address, any text, for which there is no listener. Closing the listener gives it back.
func (n *Network) Listen(address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, fmt.Errorf("embed: listen on %s in memory: %w", address, syscall.EADDRINUSE)
	}
	ln := &memoryListener{Listener: bufconn.Listen(pipeBytes), network: n, address: address}
	n.listeners[address] = ln
	return ln, nil
}

// Dial connects to the listener at the address, and waits until it accepts.
func (n *Network) Dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	ln := n.listeners[address]
	n.mu.Unlock()
	if ln == nil {
		return nil, fmt.Errorf("embed: dial %s in memory: %w", address, syscall.ECONNREFUSED)
	}
	return ln.DialContext(ctx)
}

// memoryListener is one address of a Network.
type memoryListener struct {
	*bufconn.Listener
	network *Network
	address string
}

// Close refuses further connections and frees the address.
func (l *memoryListener) Close() error {
	l.network.mu.Lock()
	if l.network.listeners[l.address] == l {
		delete(l.network.listeners, l.address)
	}
	l.network.mu.Unlock()
	return l.Listener.Close()
}

// Addr is the address listened on.
func (l *memoryListener) Addr() net.Addr { return memoryAddr(l.address) }

type memoryAddr string

// Network is "memory".
func (memoryAddr) Network() string { return "memory" }

// String is the address.
func (a memoryAddr) String() string { return string(a) }

// errClosed is what a node's dialer says once the node is closed.
var errClosed = errors.New("embed: the node is closed")
