package rpc

import (
	"context"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coordd/coordd/api/codec"
)

const (
	// pieceSize is the size in bytes of the pieces that long answers consist of.
	pieceSize = 32 << 10
	// copyBelow is the number of bytes of rows up to which an answer gets memory of its own: below it
	// a copy is cheaper than a whole piece that is away until a slow client has taken the answer.
	copyBelow = 8 << 10
	// checkRows is how many rows are written between two looks at the context.
	checkRows = 256
)

// piecePool keeps pieces for further use. Unlike gRPC's pool it does not clear them, since they are
// always written before they are read. Any goroutine may use it.
type piecePool struct{ free sync.Pool }

var _ mem.BufferPool = (*piecePool)(nil)

// Get gives a piece. Its length is as asked for, pieceSize at most.
func (p *piecePool) Get(length int) *[]byte {
	piece, ok := p.free.Get().(*[]byte)
	if !ok {
		b := make([]byte, pieceSize)
		piece = &b
	}
	*piece = (*piece)[:length]
	return piece
}

// Put takes a piece back. gRPC calls it when the last reference to a piece is gone.
func (p *piecePool) Put(piece *[]byte) { p.free.Put(piece) }

// rowBuffer gathers rows, encoded kvpb.KeyValue messages, as elements of a repeated field. It
// belongs to one goroutine, and serves one answer, or one stream of them, at a time.
//
// Rows are cut at the ends of pieces: to a reader the pieces are one sequence of bytes.
type rowBuffer struct {
	pieces *piecePool
	add    func(row []byte) error // the method addRow; made once, since every method value is an allocation

	ctx     context.Context // of the call
	keep    bool            // remember the last row's key
	lastKey []byte
	full    []*[]byte // pieces with pieceSize bytes
	cur     *[]byte   // piece being filled, its length is what is used; nil = none
	size    int       // bytes in full and cur
	rows    int
	head    [80]byte // scratch: what comes before the rows
	tail    [24]byte // and after them
}

// fieldKvs is the number of the field kvs of rpcpb.RangeResponse.
const fieldKvs = 2

// addRow appends a row, which is valid during the call only.
func (b *rowBuffer) addRow(row []byte) error {
	if b.rows++; b.rows%checkRows == 0 {
		if err := b.ctx.Err(); err != nil {
			return err
		}
	}
	if b.keep {
		key, err := rowKey(row)
		if err != nil {
			return err
		}
		b.lastKey = append(b.lastKey[:0], key...)
	}
	frame := protowire.AppendTag(b.tail[:0], fieldKvs, protowire.BytesType)
	b.write(protowire.AppendVarint(frame, uint64(len(row))))
	b.write(row)
	return nil
}

// write copies data in.
func (b *rowBuffer) write(data []byte) {
	b.size += len(data)
	for {
		if b.cur == nil {
			b.cur = b.pieces.Get(0)
		}
		n := min(len(data), pieceSize-len(*b.cur))
		*b.cur = append(*b.cur, data[:n]...)
		data = data[n:]
		if len(data) == 0 {
			return
		}
		b.full = append(b.full, b.cur)
		b.cur = nil
	}
}

// message gives head, the rows gathered and tail as one message, and goes on without rows. The
// memory of head and tail stays the caller's.
func (b *rowBuffer) message(head, tail []byte) codec.Encoded {
	defer b.emptied()
	if b.size <= copyBelow {
		out := make([]byte, 0, len(head)+b.size+len(tail))
		out = append(out, head...)
		if b.cur != nil {
			out = append(out, *b.cur...)
			*b.cur = (*b.cur)[:0]
		}
		return codec.Raw(append(out, tail...))
	}
	ends := make([]byte, 0, len(head)+len(tail))
	ends = append(append(ends, head...), tail...)
	out := make(mem.BufferSlice, 0, len(b.full)+3)
	out = append(out, mem.SliceBuffer(ends[:len(head)]))
	for _, piece := range b.full {
		out = append(out, mem.NewBuffer(piece, b.pieces))
	}
	if b.cur != nil {
		out = append(out, mem.NewBuffer(b.cur, b.pieces))
		b.cur = nil
	}
	return &onceEncoded{append(out, mem.SliceBuffer(ends[len(head):]))}
}

// emptied forgets the rows; the pieces in full belong to somebody else.
func (b *rowBuffer) emptied() {
	clear(b.full)
	b.full, b.size = b.full[:0], 0
}

// discard drops the rows, after an error.
func (b *rowBuffer) discard() {
	for _, piece := range b.full {
		b.pieces.Put(piece)
	}
	b.emptied()
	if b.cur != nil {
		*b.cur = (*b.cur)[:0]
	}
}

// onceEncoded is an encoded message with counted buffers. The one reference to each of them goes to
// who asks for them, so they can be asked for once only.
type onceEncoded struct{ buffers mem.BufferSlice }

// EncodedBuffers implements codec.Encoded.
func (o *onceEncoded) EncodedBuffers() mem.BufferSlice {
	b := o.buffers
	if b == nil {
		panic("rpc: an answer made of pooled memory is encoded a second time")
	}
	o.buffers = nil
	return b
}

// rowKey finds the key in an encoded kvpb.KeyValue.
func rowKey(row []byte) ([]byte, error) {
	for len(row) > 0 {
		field, typ, n := protowire.ConsumeTag(row)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		row = row[n:]
		if field == 1 && typ == protowire.BytesType {
			key, n := protowire.ConsumeBytes(row)
			if n < 0 {
				return nil, protowire.ParseError(n)
			}
			return key, nil
		}
		if n = protowire.ConsumeFieldValue(field, typ, row); n < 0 {
			return nil, protowire.ParseError(n)
		}
		row = row[n:]
	}
	return nil, nil
}
