package transport

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// funnel accepts connections from one listener, prepares each on a goroutine of its own, and hands
// it to one of its outlets. It starts with the first Accept on an outlet and ends when all outlets
// are closed or the listener fails.
type funnel struct {
	ln net.Listener
	// prepare gets a connection ready and picks where it goes. On an error the connection is closed.
	prepare func(net.Conn) (net.Conn, *outlet, error)

	start sync.Once
	wg    sync.WaitGroup // the accepting goroutine and one for each connection in conns
	stop  chan struct{}  // closed when all outlets are closed
	ended chan struct{}  // closed when the accepting goroutine has ended by itself
	err   error          // why it ended; written before ended is closed

	mu     sync.Mutex
	open   int                   // guarded by mu; outlets not closed
	closed bool                  // guarded by mu; no new connections
	conns  map[net.Conn]struct{} // guarded by mu; accepted, not handed over
}

// outlet is one of the listeners that a funnel feeds.
type outlet struct {
	f      *funnel
	ready  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newFunnel(ln net.Listener) *funnel {
	return &funnel{ln: ln, stop: make(chan struct{}), ended: make(chan struct{}), conns: make(map[net.Conn]struct{})}
}

// outlet adds an outlet; before the first Accept only.
func (f *funnel) outlet() *outlet {
	f.open++
	return &outlet{f: f, ready: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept returns the next connection for this outlet.
func (o *outlet) Accept() (net.Conn, error) {
	o.f.start.Do(o.f.launch)
	select {
	case <-o.closed:
		return nil, o.closedError()
	default:
	}
	select {
	case c := <-o.ready:
		return c, nil
	case <-o.closed:
		return nil, o.closedError()
	case <-o.f.ended:
		return nil, o.f.err
	}
}

func (o *outlet) closedError() error {
	a := o.Addr()
	return &net.OpError{Op: "accept", Net: a.Network(), Addr: a, Err: net.ErrClosed}
}

// Close ends this outlet; connections meant for it are closed from now on. Closing the last outlet
// closes the listener below and waits for all goroutines. Closing twice is fine.
func (o *outlet) Close() error {
	var err error
	o.once.Do(func() {
		close(o.closed)
		o.f.mu.Lock()
		o.f.open--
		last := o.f.open == 0
		o.f.mu.Unlock()
		if last {
			err = o.f.shut()
		}
	})
	return err
}

// Addr is the address of the listener below.
func (o *outlet) Addr() net.Addr { return o.f.ln.Addr() }

// launch starts the accepting goroutine, unless the funnel was shut before.
func (f *funnel) launch() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.wg.Go(f.accept)
	}
}

// accept is the accepting goroutine. Shortage of descriptors or memory passes, so it waits and
// tries again.
func (f *funnel) accept() {
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		conn, err := f.ln.Accept()
		switch {
		case err == nil:
			pause = shortest
			f.take(conn)
		case passes(err):
			t := time.NewTimer(pause)
			pause = min(2*pause, longest)
			select {
			case <-t.C:
			case <-f.stop:
				t.Stop()
				return
			}
		default:
			f.err = err
			close(f.ended)
			f.closeConns()
			return
		}
	}
}

// passes reports whether a failure to accept says nothing about the listener itself.
func passes(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// take starts the goroutine that prepares conn and hands it over.
func (f *funnel) take(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		conn.Close()
		return
	}
	f.conns[conn] = struct{}{}
	f.wg.Go(func() {
		ready, to, err := f.prepare(conn)
		if err != nil {
			conn.Close()
		} else {
			select {
			case to.ready <- ready:
			case <-to.closed:
				ready.Close()
			case <-f.ended:
				ready.Close()
			}
		}
		f.mu.Lock()
		delete(f.conns, conn)
		f.mu.Unlock()
	})
}

// shut closes the listener and all connections that are not handed over, and waits for the goroutines.
func (f *funnel) shut() error {
	close(f.stop)
	err := f.ln.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil // its owner was faster
	}
	f.closeConns()
	f.wg.Wait()
	return err
}

// closeConns refuses new connections and cuts those that are not handed over, which ends their
// preparation.
func (f *funnel) closeConns() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for c := range f.conns {
		c.Close()
	}
}
