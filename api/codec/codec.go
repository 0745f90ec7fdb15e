package codec

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// name is the content subtype. It has to be this one, since it is part of the content type that
// clients send.
const name = "proto"

// Encoded is a message that is already bytes.
type Encoded interface {
	// EncodedBuffers gives the encoding of the message as a sequence of buffers. The call passes one
	// reference to each buffer on to the caller, who frees it when the bytes are sent; and the slice
	// itself, which must be a new one for each call. For bytes shared by several messages take
	// mem.SliceBuffer: it needs no counting, the garbage collector does it. The bytes must not
	// change from then on.
	EncodedBuffers() mem.BufferSlice
}

// fastMessage is what generated code offers for the messages of this API.
type fastMessage interface {
	Reset()
	SizeVT() int
	MarshalToSizedBufferVT(data []byte) (int, error)
	UnmarshalVTUnsafe(data []byte) error
}

// Codec is the codec; see the package comment. Its zero value is ready to use.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// New gives a codec.
func New() Codec { return Codec{} }

// Name gives "proto".
func (Codec) Name() string { return name }

// Marshal encodes v, which is an Encoded, a message of this API, or any other protobuf message. The
// caller owns one reference to each buffer.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case Encoded:
		return m.EncodedBuffers(), nil
	case fastMessage:
		return fill(m.SizeVT(), m.MarshalToSizedBufferVT)
	}
	m, err := reflected(v)
	if err != nil {
		return nil, err
	}
	return fill(proto.Size(m), func(data []byte) (int, error) {
		out, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(data[:0], m)
		return len(out), err
	})
}

// fill gives a buffer of size bytes, from gRPC's pool if it is worth it, with what encode writes.
// encode tells how much it wrote, which must be all of the buffer.
func fill(size int, encode func(data []byte) (int, error)) (mem.BufferSlice, error) {
	if mem.IsBelowBufferPoolingThreshold(size) {
		data := make([]byte, size)
		if n, err := encode(data); err != nil || n != size {
			return nil, incomplete(n, size, err)
		}
		return mem.BufferSlice{mem.SliceBuffer(data)}, nil
	}
	pool := mem.DefaultBufferPool()
	data := pool.Get(size)
	if n, err := encode(*data); err != nil || n != size {
		pool.Put(data)
		return nil, incomplete(n, size, err)
	}
	return mem.BufferSlice{mem.NewBuffer(data, pool)}, nil
}

// incomplete gives the error of an encoding that failed with err or wrote n bytes where size were
// announced.
func incomplete(n, size int, err error) error {
	if err != nil {
		return fmt.Errorf("codec: encode: %w", err)
	}
	return fmt.Errorf("codec: a message was changed while it was encoded (%d bytes, was %d)", n, size)
}

// Unmarshal decodes data into v, which is a message of this API or any other protobuf message. What
// v held before is lost. Nothing in v points into data afterwards.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(fastMessage); ok {
		own := data.Materialize()
		if err := checkNesting(m, own); err != nil {
			return err
		}
		m.Reset()
		return m.UnmarshalVTUnsafe(own)
	}
	m, err := reflected(v)
	if err != nil {
		return err
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return proto.Unmarshal(buf.ReadOnlyData(), m)
}

// reflected gives v as a message the protobuf library can handle.
func reflected(v any) (proto.Message, error) {
	switch m := v.(type) {
	case proto.Message:
		return m, nil
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(m), nil
	}
	return nil, fmt.Errorf("codec: %T is neither a protobuf message nor an encoded one", v)
}
