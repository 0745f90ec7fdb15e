package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"google.golang.org/grpc"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// Snapshot is the data file of a member being received: the file, followed by its SHA-256. That is the form in
// which snapshots are stored and restored. It is for one goroutine and must be closed.
type Snapshot struct {
	cancel  context.CancelFunc
	release func()
	recv    func() (*rpcpb.SnapshotResponse, error)
	version string
	blob    []byte    // received, not read
	sum     hash.Hash // of all received but for tail
	tail    []byte    // the last bytes received, which may be the sum
	err     error
}

// Snapshot fetches the data of the member at an endpoint, of any if that is empty. ctx holds for the whole transfer. It does
// not resume: after an error begin anew.
func (c *Client) Snapshot(ctx context.Context, endpoint string) (*Snapshot, error) {
	e, release, err := c.endpointNamed(endpoint)
	if err != nil {
		return nil, err
	}
	k := call{method: services.Maintenance_Snapshot_FullMethodName, local: true, idempotent: true}
	ctx, cancel := context.WithCancel(ctx)
	s := &Snapshot{cancel: cancel, release: release, sum: sha256.New()}
	fail := func(err error) error {
		s.Close() //nolint:errcheck // gives nothing but nil
		if ctxErr := ctx.Err(); ctxErr != nil && !errors.Is(ctxErr, context.Canceled) {
			return &CallError{Method: k.method, Endpoint: e.name, Err: ctxErr}
		}
		return conclude(k, e, c.judge(k, attempt{err: err}))
	}
	out, err := c.outgoing(ctx, k)
	if err != nil {
		return nil, fail(err)
	}
	stream, err := e.conn.NewStream(out, &services.Maintenance_ServiceDesc.Streams[0], k.method)
	if err != nil {
		return nil, fail(err)
	}
	g := grpc.GenericClientStream[rpcpb.SnapshotRequest, rpcpb.SnapshotResponse]{ClientStream: stream}
	if err = g.Send(new(rpcpb.SnapshotRequest)); err == nil || err == io.EOF {
		err = g.CloseSend()
	}
	if err != nil {
		return nil, fail(err)
	}
	s.recv = func() (*rpcpb.SnapshotResponse, error) {
		m, err := g.Recv()
		if err != nil && err != io.EOF {
			err = conclude(k, e, c.judge(k, attempt{err: err}))
		}
		return m, err
	}
	first, err := g.Recv() // tells the version, or that we may not
	if err != nil && err != io.EOF {
		return nil, fail(err)
	}
	s.version = first.GetVersion()
	s.take(first.GetBlob())
	return s, nil
}

// Version is the version of the format of the data, empty if the server does not say.
func (s *Snapshot) Version() string { return s.version }

// Read gives the bytes. At the end it checks the sum and gives io.EOF only if it is right.
func (s *Snapshot) Read(p []byte) (int, error) {
	for len(s.blob) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		m, err := s.recv()
		if err == io.EOF {
			err = s.check()
		}
		s.err = err
		s.take(m.GetBlob())
	}
	n := copy(p, s.blob)
	s.blob = s.blob[n:]
	return n, nil
}

// take notes received bytes.
func (s *Snapshot) take(blob []byte) {
	s.blob = blob
	s.tail = append(s.tail, blob...)
	if over := len(s.tail) - sha256.Size; over > 0 {
		s.sum.Write(s.tail[:over])
		s.tail = append(s.tail[:0], s.tail[over:]...)
	}
}

// check compares the sum at the end with the bytes before; right gives io.EOF.
func (s *Snapshot) check() error {
	if len(s.tail) < sha256.Size {
		return fmt.Errorf("client: the snapshot ended after %d bytes; fetch it anew", len(s.tail))
	}
	if !bytes.Equal(s.sum.Sum(nil), s.tail) {
		return errors.New("client: the snapshot was damaged on its way (its SHA-256 is not that of the data); fetch it anew")
	}
	return io.EOF
}

// Close ends the transfer; it may be called more than once and gives nil.
func (s *Snapshot) Close() error {
	s.cancel()
	if s.release != nil {
		s.release()
		s.release = nil
	}
	if s.err == nil {
		s.err = ErrClosed
	}
	return nil
}
