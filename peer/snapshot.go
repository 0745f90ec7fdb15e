package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/pkg/raftcodec"
)

// stallTimeout is how long sending a snapshot may stand still.
const stallTimeout = time.Minute

// castagnoli is the table of the checksum.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// startSnapshot sends the file that m asks for, on a goroutine of its own. It
// returns false when one is being sent already.
func (r *remote) startSnapshot(m *raftpb.Message) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.snapshot || r.stopped {
		return false
	}
	r.snapshot = true
	r.t.wg.Go(func() {
		begin := time.Now()
		sent, err := r.sendSnapshot(m)
		r.mu.Lock()
		r.snapshot = false
		r.mu.Unlock()
		log := r.t.cfg.Logger.With(zap.String("member", hex(r.id)), zap.Int64("bytes", sent), zap.Duration("took", time.Since(begin)))
		if err != nil {
			log.Warn("sending a snapshot failed; it is tried again when the member answers", zap.Error(err))
		} else {
			log.Info("sent a snapshot")
		}
		if h := r.t.cfg.Hooks.SnapshotSent; h != nil {
			h(r.id, sent, time.Since(begin), err)
		}
		r.t.cfg.Raft.ReportSnapshot(r.id, err == nil)
	})
	return true
}

// sendSnapshot sends header, file and checksum, and waits until the member has
// stored them.
func (r *remote) sendSnapshot(m *raftpb.Message) (sent int64, err error) {
	ctx, cancel := context.WithCancel(r.t.withIdentity(r.ctx, r.id))
	defer cancel()
	snap, err := r.t.cfg.Source(ctx)
	if err != nil {
		return 0, fmt.Errorf("peer: opening the file to send: %w", err)
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	if have, want := snap.Metadata.GetIndex(), m.GetSnapshot().GetMetadata().GetIndex(); have < want {
		return 0, fmt.Errorf("peer: the file to send is at entry %d, raft needs entry %d", have, want)
	}
	client, conn, err := r.client()
	if err != nil {
		return 0, err
	}
	s, err := client.Snapshot(ctx)
	if err != nil {
		r.failed(conn)
		return 0, err
	}
	// The stream must be left in order, or it would keep the file's memory.
	w := &chunkWriter{s: s, stall: time.AfterFunc(stallTimeout, cancel)}
	defer w.stall.Stop()
	err = w.header(m, snap)
	if err == nil {
		_, err = snap.Data.WriteTo(w)
	}
	if err == nil {
		err = w.finish(snap.Size)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return w.sent, err
	}
	ack, err := s.CloseAndRecv() // after io.EOF it tells the reason
	if err == nil && ack.GetReceived() != uint64(snap.Size) {
		err = fmt.Errorf("peer: the member received %d of %d bytes", ack.GetReceived(), snap.Size)
	}
	return w.sent, err
}

// chunkWriter cuts a file into messages.
type chunkWriter struct {
	s     grpc.ClientStreamingClient[peerpb.SnapshotChunk, peerpb.SnapshotAck]
	stall *time.Timer // ends the stream when nothing moves
	buf   []byte
	crc   uint32
	sent  int64
}

// header sends m, with the position of the file instead of the one asked for.
func (w *chunkWriter) header(m *raftpb.Message, snap *Snapshot) error {
	msg := &raftpb.Message{Type: m.Type, To: m.To, From: m.From, Term: m.Term,
		Snapshot: &raftpb.Snapshot{Metadata: snap.Metadata}}
	return w.s.Send(&peerpb.SnapshotChunk{Part: &peerpb.SnapshotChunk_Header{Header: &peerpb.SnapshotHeader{
		Message: raftcodec.AppendBatch(nil, []*raftpb.Message{msg}),
		Size:    uint64(snap.Size),
	}}})
}

func (w *chunkWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if w.buf == nil {
			w.buf = make([]byte, 0, chunkBytes)
		}
		k := min(len(p), chunkBytes-len(w.buf))
		w.buf = append(w.buf, p[:k]...)
		p = p[k:]
		if len(w.buf) == chunkBytes {
			if err := w.flush(); err != nil {
				return n - len(p), err
			}
		}
	}
	return n, nil
}

func (w *chunkWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	w.crc = crc32.Update(w.crc, castagnoli, w.buf)
	if err := w.send(w.buf); err != nil {
		return err
	}
	w.sent += int64(len(w.buf))
	w.buf = w.buf[:0] // Send has copied it
	return nil
}

func (w *chunkWriter) send(data []byte) error {
	w.stall.Reset(stallTimeout)
	return w.s.Send(&peerpb.SnapshotChunk{Part: &peerpb.SnapshotChunk_Data{Data: data}})
}

// finish sends the rest and the checksum.
func (w *chunkWriter) finish(size int64) error {
	if err := w.flush(); err != nil {
		return err
	}
	if w.sent != size {
		return fmt.Errorf("peer: the file to send has %d bytes instead of %d", w.sent, size)
	}
	return w.send(binary.LittleEndian.AppendUint32(nil, w.crc))
}

// Snapshot receives a file and its MsgSnap.
func (h handler) Snapshot(s grpc.ClientStreamingServer[peerpb.SnapshotChunk, peerpb.SnapshotAck]) error {
	begin := time.Now()
	from, err := h.t.caller(s.Context())
	if err != nil {
		return err
	}
	size, err := h.receive(s, from)
	log := h.t.cfg.Logger.With(zap.String("member", hex(from)), zap.Int64("bytes", size), zap.Duration("took", time.Since(begin)))
	if hook := h.t.cfg.Hooks.SnapshotReceived; hook != nil {
		hook(from, size, time.Since(begin), err)
	}
	if err != nil {
		log.Warn("receiving a snapshot failed", zap.Error(err))
		return err
	}
	log.Info("received a snapshot")
	return s.SendAndClose(&peerpb.SnapshotAck{Received: uint64(size)})
}

// receive stores the file and then steps the message.
func (h handler) receive(s grpc.ClientStreamingServer[peerpb.SnapshotChunk, peerpb.SnapshotAck], from uint64) (int64, error) {
	first, err := s.Recv()
	if err != nil {
		return 0, err
	}
	size := int64(first.GetHeader().GetSize())
	msgs, err := raftcodec.DecodeBatch(first.GetHeader().GetMessage())
	if err != nil || len(msgs) != 1 || size <= 0 { // no state machine is empty
		return 0, status.Errorf(codes.InvalidArgument, "peer: the header of the snapshot is unreadable, do both members run the same release? %v", err)
	}
	m := msgs[0]
	if m.GetType() != raftpb.MsgSnap || m.GetTo() != h.t.cfg.MemberID || m.GetFrom() != from || m.GetSnapshot().GetMetadata().GetIndex() == 0 {
		return 0, status.Error(codes.InvalidArgument, "peer: the header of the snapshot is not that of a snapshot for this member")
	}
	r := &chunkReader{s: s, left: size}
	if err := h.t.cfg.Store(s.Context(), m.GetSnapshot().GetMetadata(), size, r); err != nil {
		return size - r.left, storeError(err)
	}
	if !r.checked {
		return size - r.left, status.Error(codes.Internal, "peer: the snapshot was not read to its end")
	}
	h.t.cfg.Raft.Step(msgs)
	return size, nil
}

// storeError keeps a status and gives one to everything else.
func storeError(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Internal, err.Error())
}

// chunkReader is the file as it arrives. It keeps the last piece back until
// the checksum is verified, so that a reader that wants exactly the file's length gets the error, too.
type chunkReader struct {
	s       grpc.ClientStreamingServer[peerpb.SnapshotChunk, peerpb.SnapshotAck]
	left    int64  // bytes of the file not yet received
	data    []byte // received and not yet read
	crc     uint32
	checked bool
	err     error
}

func (r *chunkReader) Read(p []byte) (int, error) {
	for len(r.data) == 0 {
		if r.err == nil {
			r.err = r.next()
		}
		if r.err != nil {
			return 0, r.err
		}
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}

// next receives a piece, and after the last one the checksum.
func (r *chunkReader) next() error {
	if r.checked {
		return io.EOF
	}
	var data []byte
	if r.left > 0 {
		c, err := r.s.Recv()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("peer: receiving a snapshot, %d bytes before its end: %w", r.left, err)
		}
		data = c.GetData()
		if len(data) == 0 || int64(len(data)) > r.left {
			return status.Errorf(codes.DataLoss, "peer: a piece of a snapshot has %d bytes where up to %d are left", len(data), r.left)
		}
		r.left -= int64(len(data))
		r.crc = crc32.Update(r.crc, castagnoli, data)
	}
	if r.left == 0 {
		c, err := r.s.Recv()
		if err != nil {
			return fmt.Errorf("peer: receiving the checksum of a snapshot: %w", err)
		}
		if sum := c.GetData(); len(sum) != 4 || binary.LittleEndian.Uint32(sum) != r.crc {
			return status.Error(codes.DataLoss, "peer: the snapshot was damaged on its way: its checksum does not match")
		}
		r.checked = true
	}
	r.data = data
	return nil
}
