package mvcc

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/kvpb"
)

func drawPair(t *rapid.T) *kvpb.KeyValue {
	number := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64())
	return &kvpb.KeyValue{
		Key:            rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "key"),
		Value:          rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value"),
		CreateRevision: number.Draw(t, "create"), ModRevision: number.Draw(t, "mod"),
		Version: number.Draw(t, "version"), Lease: number.Draw(t, "lease"),
	}
}

// Rows are, byte for byte, what the protobuf library makes of the message.
func TestRowsAreMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kv := drawPair(t)
		h := head{create: kv.CreateRevision, mod: kv.ModRevision, version: kv.Version, lease: kv.Lease}
		row, key := newRow(string(kv.Key), &h, kv.Value)
		want, err := proto.Marshal(kv)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(row, want) || !bytes.Equal(key, kv.Key) || cap(row) != rowSize(len(kv.Key), len(kv.Value), &h) {
			t.Fatalf("row %x, key %x, want %x", row, key, want)
		}
		got, err := readHead(row)
		if h.key = kv.Key; err != nil || !bytes.Equal(got.key, h.key) || got.create != h.create || got.mod != h.mod || got.version != h.version || got.lease != h.lease {
			t.Fatalf("%+v %v, want %+v", got, err, h)
		}
		var stripped kvpb.KeyValue
		if err := stripped.UnmarshalVT(StripValue(row, nil)); err != nil {
			t.Fatal(err)
		}
		if kv.Value = nil; !proto.Equal(&stripped, kv) {
			t.Fatalf("stripped %v, want %v", &stripped, kv)
		}
		tombstone, key := newTombstone(string(kv.Key))
		if want, _ := proto.Marshal(&kvpb.KeyValue{Key: kv.Key}); !bytes.Equal(tombstone, want) || !bytes.Equal(key, kv.Key) {
			t.Fatalf("tombstone %x, want %x", tombstone, want)
		}
	})
}

// readHead accepts what the message decoder accepts, with the same meaning, and no other thing breaks it.
func FuzzReadHead(f *testing.F) {
	row, _ := newRow("key", &head{create: 1, mod: 300, version: 1 << 40, lease: -1}, []byte("value"))
	f.Add(row)
	f.Add(row[:len(row)-1])
	f.Fuzz(func(t *testing.T, row []byte) {
		h, err := readHead(row)
		StripValue(row, nil)
		var kv kvpb.KeyValue
		if err != nil || proto.Unmarshal(row, &kv) != nil {
			return
		}
		if !bytes.Equal(h.key, kv.Key) || h.create != kv.CreateRevision || h.mod != kv.ModRevision || h.version != kv.Version || h.lease != kv.Lease {
			t.Fatalf("%+v, the message is %v", h, &kv)
		}
	})
}
