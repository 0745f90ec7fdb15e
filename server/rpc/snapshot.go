package rpc

import (
	"context"
	"crypto/sha256"
	"hash"

	"google.golang.org/grpc"

	"github.com/coordd/coordd/api/rpcpb"
)

// snapshotChunk is the number of bytes of the data file in each message of a snapshot.
const snapshotChunk = 64 << 10

// Snapshot sends the data file as of now, in messages that say how many bytes are still to come, then its SHA-256
// sum in one more message. None of them has a header.
func (s *MaintenanceService) Snapshot(_ *rpcpb.SnapshotRequest, stream grpc.ServerStreamingServer[rpcpb.SnapshotResponse]) (err error) {
	snap, err := s.snapshots.Snapshot(stream.Context())
	if err != nil {
		return err
	}
	defer func() {
		if closed := snap.Close(); err == nil {
			err = closed
		}
	}()
	w := &snapshotWriter{
		stream: stream, left: uint64(snap.Size()), sum: sha256.New(), version: snap.StorageVersion(),
		chunk: make([]byte, 0, snapshotChunk),
	}
	_, err = snap.WriteTo(w)
	if w.err == nil && err == nil {
		w.flush()
	}
	if w.err != nil {
		return w.err // the file's error would only be about this one
	}
	if err != nil {
		return err
	}
	return stream.Send(&rpcpb.SnapshotResponse{Blob: w.sum.Sum(nil), Version: w.version})
}

// snapshotWriter sends what is written to it.
type snapshotWriter struct {
	stream  grpc.ServerStreamingServer[rpcpb.SnapshotResponse]
	left    uint64 // bytes still to be sent
	sum     hash.Hash
	version string
	chunk   []byte // not sent yet
	err     error  // why sending failed
}

// Write takes the next bytes of the file.
func (w *snapshotWriter) Write(data []byte) (int, error) {
	written := 0
	for len(data) > 0 {
		n := min(len(data), snapshotChunk-len(w.chunk))
		w.chunk = append(w.chunk, data[:n]...)
		data = data[n:]
		written += n
		if len(w.chunk) == snapshotChunk {
			if w.flush(); w.err != nil {
				return written, w.err
			}
		}
	}
	return written, nil
}

// flush sends the chunk. Sending encodes it before it returns, so it can be filled again.
func (w *snapshotWriter) flush() {
	if len(w.chunk) == 0 || w.err != nil {
		return
	}
	w.sum.Write(w.chunk)
	w.left -= uint64(len(w.chunk))
	w.err = w.stream.Send(&rpcpb.SnapshotResponse{RemainingBytes: w.left, Blob: w.chunk, Version: w.version})
	if ctx := w.stream.Context(); w.err == nil && ctx.Err() != nil {
		w.err = context.Cause(ctx)
	}
	w.chunk = w.chunk[:0]
}
