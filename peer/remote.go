package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/api/services"
)

// remote is another member as seen from here.
type remote struct {
	t      *Transport
	id     uint64
	queue  *queue
	ctx    context.Context // ends with stop
	cancel context.CancelFunc

	mu       sync.Mutex // guards all below
	urls     []string
	hangUp   context.CancelFunc // ends the stream that is tried or in use; nil when there is none
	active   time.Time          // since when the stream works, zero if it does not
	bulk     *grpc.ClientConn   // for snapshots and calls; nil until needed
	bulkAt   int                // index of its URL, modulo their number
	snapshot bool               // one is being sent
	stopped  bool
}

// newRemote makes a remote that queues messages and waits for start.
func newRemote(t *Transport, id uint64, urls []string) *remote {
	r := &remote{t: t, id: id, urls: urls, queue: newQueue(t.cfg.QueueBytes)}
	r.ctx, r.cancel = context.WithCancel(t.ctx)
	r.queue.setOpen(true)
	return r
}

// start starts the goroutines. Transport.mu is held, and Close has not begun.
func (r *remote) start() {
	r.t.wg.Go(r.run)
	if r.t.cfg.Hooks.RoundTrip != nil {
		r.t.wg.Go(r.probe)
	}
}

// stop ends the goroutines without waiting for them.
func (r *remote) stop() {
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.dropBulkLocked()
}

func (r *remote) setURLs(urls []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(r.urls, urls) {
		return
	}
	r.urls = urls
	r.dropBulkLocked()
	if r.hangUp != nil {
		r.hangUp()
	}
}

// run keeps a stream open and sends what is queued, until stop.
func (r *remote) run() {
	limiter := rate.NewLimiter(redialRate, redialBurst)
	for try := 0; limiter.Wait(r.ctx) == nil; try++ {
		// While a try lasts messages wait for its outcome, so that the first votes of a new cluster
		// are not lost.
		r.queue.setOpen(true)
		lost, err := r.stream(try)
		lost += r.queue.setOpen(false)
		if r.ctx.Err() != nil {
			return
		}
		r.t.logOnce(r.id, outbound, "no peer connection to a member", err)
		r.t.sendFailed(r.id, lost)
		r.t.cfg.Raft.ReportUnreachable(r.id)
	}
}

// stream opens a stream to one of the URLs and sends until it breaks. It
// returns how many messages were taken from the queue and surely not delivered.
func (r *remote) stream(try int) (lost int, err error) {
	ctx, hangUp := context.WithCancel(r.t.withIdentity(r.ctx, r.id))
	defer hangUp()
	r.mu.Lock()
	url := r.urls[try%len(r.urls)]
	r.hangUp = hangUp
	r.mu.Unlock()
	conn, err := r.t.cfg.connect(url)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	s, err := r.open(ctx, hangUp, conn)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", url, err)
	}
	// Only a receiver notices the end of a stream on which nothing is sent.
	ended := make(chan error, 1)
	r.t.wg.Go(func() { ended <- s.RecvMsg(&peerpb.StreamAck{}) })
	r.setActive(time.Now())
	defer r.setActive(time.Time{})
	r.t.logOnce(r.id, outbound, "", nil)
	lost, err = r.pump(s, ended)
	hangUp()
	if h := r.t.cfg.Hooks.Disconnected; h != nil && r.ctx.Err() == nil {
		h(r.id)
	}
	return lost, fmt.Errorf("%s: %w", url, err)
}

type frameStream = grpc.ClientStreamingClient[peerpb.Frame, peerpb.StreamAck]

// open makes the stream and waits until the other side has accepted it.
func (r *remote) open(ctx context.Context, hangUp context.CancelFunc, conn *grpc.ClientConn) (frameStream, error) {
	limit := time.AfterFunc(2*dialTimeout, hangUp)
	defer limit.Stop()
	s, err := services.NewPeerClient(conn).Stream(ctx)
	if err != nil {
		return nil, err
	}
	md, err := s.Header()
	if err != nil {
		return nil, err
	}
	if len(md.Get(keyCluster)) == 0 { // refused: the reason comes as the stream's status
		if _, err := s.CloseAndRecv(); err != nil {
			return nil, err
		}
	}
	return s, r.t.welcomed(md, r.id)
}

// pump sends frames until the stream breaks or the remote is stopped.
func (r *remote) pump(s frameStream, ended <-chan error) (lost int, err error) {
	var batch []queued
	for {
		batch = r.queue.take(batch[:0], frameBytes)
		if len(batch) == 0 {
			select {
			case <-r.queue.wake:
				continue
			case <-r.ctx.Done():
				return 0, r.ctx.Err()
			case err := <-ended:
				return 0, endOf(err)
			}
		}
		f := newFrame(batch)
		if err := s.SendMsg(f); err != nil {
			if errors.Is(err, io.EOF) { // the reason is the receiver's to tell
				err = endOf(<-ended)
			}
			return len(batch), err
		}
		if r.t.cfg.Hooks.Sent != nil {
			r.t.cfg.Hooks.Sent(r.id, f.size)
		}
		clear(batch)
	}
}

// endOf names the end of a stream that the other side ended in order.
func endOf(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return errors.New("the member ended the stream")
	}
	return err
}

func (r *remote) setActive(since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active = since
}

func (r *remote) activeSince() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.active
}

// client gives the second connection.
func (r *remote) client() (services.PeerClient, *grpc.ClientConn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil, nil, fmt.Errorf("%w: %x", ErrUnknownMember, r.id)
	}
	if r.bulk == nil {
		conn, err := r.t.cfg.connect(r.urls[r.bulkAt%len(r.urls)])
		if err != nil {
			return nil, nil, err
		}
		r.bulk = conn
	}
	return services.NewPeerClient(r.bulk), r.bulk, nil
}

// failed is told of the connection over which something failed. If it has
// no link, it is replaced by one to the next URL, so that the next use does
// not wait for gRPC to try again. Without a link nothing else can be using it.
func (r *remote) failed(conn *grpc.ClientConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bulk == conn && conn.GetState() == connectivity.TransientFailure {
		r.dropBulkLocked()
		r.bulkAt++
	}
}

func (r *remote) dropBulkLocked() {
	if r.bulk != nil {
		_ = r.bulk.Close() // it fails only when closed already
		r.bulk = nil
	}
}

// probe measures the round trip until stop.
func (r *remote) probe() {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(r.ctx, probeEvery)
		begin := time.Now()
		if _, err := call(ctx, r.t, r.id, &peerpb.InfoRequest{}, services.PeerClient.Info); err == nil {
			r.t.cfg.Hooks.RoundTrip(r.id, time.Since(begin))
		}
		cancel()
	}
}
