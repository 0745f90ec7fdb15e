package peer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/pkg/raftcodec"
)

func randomBytes(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// The file arrives whole, the message has the file's position, and it is
// stepped only when the file is stored.
func TestSnapshot(t *testing.T) {
	for _, size := range []int{1, chunkBytes, 5*chunkBytes + 17} {
		a, b := newEnd(t, 1, ""), newEnd(t, 2, "")
		a.knows(b)
		data := randomBytes(size)
		a.file = fileOf(12, data) // newer than asked for
		a.tr.Send([]*raftpb.Message{snapMessage(1, 2, 10)})
		a.until("reported", func() bool { return len(a.snapshots) == 1 })
		if !a.snapshots[0] {
			t.Fatalf("sending %d bytes failed: %v", size, a.logs.All())
		}
		b.mu.Lock()
		if !bytes.Equal(b.files[12], data) || b.files[12] == nil {
			t.Errorf("the file of %d bytes did not arrive whole", size)
		}
		if len(b.got) != 1 || b.got[0].GetSnapshot().GetMetadata().GetIndex() != 12 || b.got[0].GetTerm() != 5 ||
			len(b.got[0].GetSnapshot().GetMetadata().GetConfState().GetVoters()) != 2 {
			t.Errorf("stepped %v", b.got)
		}
		b.mu.Unlock()
	}
}

// Whatever goes wrong is reported once as a failure, and nothing is stepped.
func TestSnapshotFailures(t *testing.T) {
	short := fileOf(12, []byte("abc"))
	short.Size = 4
	for name, prepare := range map[string]func(a, b *end){
		"no file":        func(*end, *end) {},
		"file too old":   func(a, _ *end) { a.file = fileOf(9, []byte("abc")) },
		"file too short": func(a, _ *end) { a.file = short },
		"store fails": func(a, b *end) {
			a.file = fileOf(12, []byte("abc"))
			b.storeErr = errors.New("no room")
		},
		"member down": func(a, b *end) {
			a.file = fileOf(12, []byte("abc"))
			b.tr.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newEnd(t, 1, ""), newEnd(t, 2, "")
			prepare(a, b)
			a.knows(b)
			a.tr.Send([]*raftpb.Message{snapMessage(1, 2, 10)})
			a.until("reported", func() bool { return len(a.snapshots) == 1 })
			if a.snapshots[0] || len(b.got) != 0 {
				t.Errorf("success %v, stepped %v", a.snapshots[0], b.got)
			}
		})
	}
}

// While one snapshot is sent another to the same member fails at once.
func TestOneSnapshotAtATime(t *testing.T) {
	a, b := newEnd(t, 1, ""), newEnd(t, 2, "")
	a.knows(b)
	hold := make(chan struct{})
	f := fileOf(12, []byte("abc"))
	f.Close = func() error { <-hold; return nil }
	a.file = f
	a.tr.Send([]*raftpb.Message{snapMessage(1, 2, 10), snapMessage(1, 2, 10)})
	a.until("reported", func() bool { return len(a.snapshots) == 1 })
	if a.snapshots[0] {
		t.Error("the second was reported as sent")
	}
	close(hold)
	a.until("reported", func() bool { return len(a.snapshots) == 2 })
	if !a.snapshots[1] {
		t.Error("the first failed")
	}
}

// A receiver finds a damaged piece, a missing one, one too many, and a header
// that is none.
func TestDamagedSnapshot(t *testing.T) {
	a, b := newEnd(t, 1, ""), newEnd(t, 2, "")
	data := randomBytes(3000)
	crc := binary.LittleEndian.AppendUint32(nil, crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
	damaged := bytes.Clone(data)
	damaged[1234] ^= 1
	whole := raftcodec.AppendBatch(nil, []*raftpb.Message{snapMessage(1, 2, 10)})
	for name, x := range map[string]struct {
		header []byte
		size   uint64
		pieces [][]byte
		want   codes.Code
	}{
		"good":           {whole, 3000, [][]byte{data[:1000], data[1000:], crc}, codes.OK},
		"damaged":        {whole, 3000, [][]byte{damaged[:1000], damaged[1000:], crc}, codes.DataLoss},
		"damaged crc":    {whole, 3000, [][]byte{data, {1, 2, 3, 4}}, codes.DataLoss},
		"piece missing":  {whole, 3000, [][]byte{data[:1000]}, codes.Internal},
		"crc missing":    {whole, 3000, [][]byte{data}, codes.Internal},
		"piece too long": {whole, 2999, [][]byte{data, crc}, codes.DataLoss},
		"empty piece":    {whole, 3000, [][]byte{data[:1000], {}, data[1000:], crc}, codes.DataLoss},
		"no header":      {nil, 3000, [][]byte{data, crc}, codes.InvalidArgument},
		"absurd size":    {whole, 1 << 63, [][]byte{data, crc}, codes.InvalidArgument},
		"empty":          {whole, 0, [][]byte{crc}, codes.InvalidArgument},
		"for another":    {raftcodec.AppendBatch(nil, []*raftpb.Message{snapMessage(1, 3, 10)}), 3000, [][]byte{data, crc}, codes.InvalidArgument},
		"not a snapshot": {raftcodec.AppendBatch(nil, []*raftpb.Message{message(raftpb.MsgApp, 1, 2, 1)}), 3000, [][]byte{data, crc}, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			b.note(func() { b.got, b.files = nil, map[uint64][]byte{} })
			conn, err := Dialing{}.connect(b.url())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			s, err := services.NewPeerClient(conn).Snapshot(a.tr.withIdentity(t.Context(), 2))
			if err != nil {
				t.Fatal(err)
			}
			// Send fails with io.EOF when the receiver has refused already; the answer tells why.
			_ = s.Send(&peerpb.SnapshotChunk{Part: &peerpb.SnapshotChunk_Header{Header: &peerpb.SnapshotHeader{Message: x.header, Size: x.size}}})
			for _, p := range x.pieces {
				_ = s.Send(&peerpb.SnapshotChunk{Part: &peerpb.SnapshotChunk_Data{Data: p}})
			}
			_, err = s.CloseAndRecv()
			if status.Code(err) != x.want {
				t.Errorf("%v, want code %v", err, x.want)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if ok := x.want == codes.OK; (len(b.got) == 1) != ok || (len(b.files) == 1) != ok {
				t.Errorf("stepped %d messages, stored %d files", len(b.got), len(b.files))
			}
		})
	}
}

// A MsgSnap without its file, in a frame, does not reach raft; nor does a
// frame that is unreadable.
func TestStreamRefuses(t *testing.T) {
	a, b := newEnd(t, 1, ""), newEnd(t, 2, "")
	conn, err := Dialing{}.connect(b.url())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s, err := services.NewPeerClient(conn).Stream(a.tr.withIdentity(t.Context(), 2))
	if err != nil {
		t.Fatal(err)
	}
	beat := message(raftpb.MsgHeartbeat, 1, 2, 1)
	for _, data := range [][]byte{raftcodec.AppendBatch(nil, []*raftpb.Message{snapMessage(1, 2, 10), beat}), []byte("junk")} {
		if err := s.Send(&peerpb.Frame{Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.CloseAndRecv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("junk: %v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.got) != 1 || b.got[0].GetType() != raftpb.MsgHeartbeat {
		t.Errorf("stepped %v", b.got)
	}
}
