package rpc

import (
	"context"
	"crypto/sha256"
	"hash"

	"google.golang.org/grpc"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/mvcc/backend"
)

// snapshotChunk is the number of bytes of the data file in each message of a snapshot.
const snapshotChunk = 64 << 10

// Snapshot sends the data file as of now, in messages that say how many bytes are still to come, then its SHA-256
// sum in one more message. None of them has a header.
func (s *MaintenanceService) Snapshot(_ *rpcpb.SnapshotRequest, stream grpc.ServerStreamingServer[rpcpb.SnapshotResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	snap, err := s.snapshots.Snapshot(ctx)
	if err != nil {
		cancel()
		return err
	}
	out := &snapshotSender{stream: stream, left: uint64(snap.Size()), sum: sha256.New(), version: snap.StorageVersion()}
	in := newSnapshotReader(ctx)
	go in.run(snap)
	defer func() { // the reader ends first
		cancel()
		for range in.full {
		}
	}()
	for chunk := range in.full {
		if err := out.send(chunk); err != nil {
			return err
		}
		in.empty <- chunk[:0]
	}
	if in.err != nil {
		return in.err
	}
	return out.finish()
}

// snapshotReader reads the data file, ahead of what is sent, on a goroutine of its own, which ends with ctx. As long as somebody
// reads the file it cannot be closed, and sending takes as long as the client likes: one that is silent is noticed only when
// the server cuts connections, which it does after it has closed the file. So who reads must not wait for who sends.
type snapshotReader struct {
	ctx   context.Context
	full  chan []byte // closed at the end
	empty chan []byte // to be filled again; never blocks
	chunk []byte      // being filled
	err   error       // why reading ended early; final once full is closed
}

func newSnapshotReader(ctx context.Context) *snapshotReader {
	r := &snapshotReader{ctx: ctx, full: make(chan []byte), empty: make(chan []byte, 2)}
	r.chunk = make([]byte, 0, snapshotChunk)
	r.empty <- make([]byte, 0, snapshotChunk)
	return r
}

// run reads all of the file and closes it.
func (r *snapshotReader) run(snap *backend.Snapshot) {
	defer close(r.full)
	_, r.err = snap.WriteTo(r)
	if r.err == nil && len(r.chunk) > 0 {
		r.err = r.pass()
	}
	if err := snap.Close(); r.err == nil {
		r.err = err
	}
	if r.ctx.Err() != nil {
		r.err = context.Cause(r.ctx) // the file's error would only be about this one
	}
}

// Write takes the next bytes of the file.
func (r *snapshotReader) Write(data []byte) (int, error) {
	written := 0
	for len(data) > 0 {
		n := min(len(data), snapshotChunk-len(r.chunk))
		r.chunk = append(r.chunk, data[:n]...)
		data = data[n:]
		written += n
		if len(r.chunk) == snapshotChunk {
			if err := r.pass(); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

// pass gives the chunk to the sender, and takes one to be filled.
func (r *snapshotReader) pass() error {
	select {
	case r.full <- r.chunk:
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
	select {
	case r.chunk = <-r.empty:
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// snapshotSender sends what was read.
type snapshotSender struct {
	stream  grpc.ServerStreamingServer[rpcpb.SnapshotResponse]
	left    uint64 // bytes still to be sent
	sum     hash.Hash
	version string
}

// send sends a chunk. It is encoded when this returns, so it can be filled again.
func (s *snapshotSender) send(chunk []byte) error {
	s.sum.Write(chunk)
	s.left -= uint64(len(chunk))
	return s.stream.Send(&rpcpb.SnapshotResponse{RemainingBytes: s.left, Blob: chunk, Version: s.version})
}

// finish sends the sum.
func (s *snapshotSender) finish() error {
	return s.stream.Send(&rpcpb.SnapshotResponse{Blob: s.sum.Sum(nil), Version: s.version})
}
