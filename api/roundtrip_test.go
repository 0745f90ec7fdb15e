package api_test

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"
)

// TestRoundTrip holds the generated code without reflection against the protobuf library, for random
// values of every message.
func TestRoundTrip(t *testing.T) {
	for _, mt := range allMessages() {
		t.Run(string(mt.Descriptor().Name()), func(t *testing.T) {
			if mt.Descriptor().Fields().Len() == 0 {
				checkRoundTrip(t, mt.New().Interface().(vtMessage))
				return
			}
			rapid.Check(t, func(t *rapid.T) {
				msg := mt.New()
				drawMessage(t, msg, 4)
				checkRoundTrip(t, msg.Interface().(vtMessage))
			})
		})
	}
}

// checkRoundTrip encodes and decodes by generated code and by the library, each to the other.
func checkRoundTrip(t rapid.TB, want vtMessage) {
	data, err := want.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	if want.SizeVT() != len(data) || proto.Size(want) != len(data) {
		t.Fatalf("%v: %d bytes, SizeVT %d, library %d", want, len(data), want.SizeVT(), proto.Size(want))
	}
	fresh := func() vtMessage { return want.ProtoReflect().New().Interface().(vtMessage) }
	byLibrary := fresh()
	if err := proto.Unmarshal(data, byLibrary); err != nil || !proto.Equal(byLibrary, want) {
		t.Fatalf("library decodes %v as %v (%v)", want, byLibrary, err)
	}
	fromLibrary, err := proto.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, decode := range []func(vtMessage, []byte) error{vtMessage.UnmarshalVT, vtMessage.UnmarshalVTUnsafe} {
		got := fresh()
		if err := decode(got, bytes.Clone(fromLibrary)); err != nil || !proto.Equal(got, want) {
			t.Fatalf("%v is decoded as %v (%v)", want, got, err)
		}
	}
}

// TestInvalidUTF8 makes sure that a string no client could read is not let in.
func TestInvalidUTF8(t *testing.T) {
	tried := 0
	for _, mt := range allMessages() {
		fields := mt.Descriptor().Fields()
		for i := range fields.Len() {
			fd := fields.Get(i)
			if fd.Kind().String() != "string" || fd.Number() > 15 {
				continue
			}
			tried++
			data := []byte{byte(fd.Number()<<3 | 2), 3, 'a', 0xff, 'b'}
			for name, decode := range map[string]func(vtMessage, []byte) error{"UnmarshalVT": vtMessage.UnmarshalVT, "UnmarshalVTUnsafe": vtMessage.UnmarshalVTUnsafe} {
				if err := decode(mt.New().Interface().(vtMessage), data); err == nil || !strings.Contains(err.Error(), "UTF-8") {
					t.Errorf("%s of %s: error %v, want one about UTF-8", name, fd.FullName(), err)
				}
			}
		}
	}
	if tried < 40 {
		t.Errorf("only %d string fields were tried", tried)
	}
}

// FuzzDecode gives arbitrary bytes to the decoders of every message. What both the generated code and
// the protobuf library accept must mean the same to both, and what is encoded again must too. The
// generated code may refuse only a known field of a wrong wire type, which the library keeps as
// unknown.
func FuzzDecode(f *testing.F) {
	types := allMessages()
	for i, mt := range types {
		msg := rapid.Custom(func(t *rapid.T) vtMessage {
			m := mt.New()
			if rapid.Bool().Draw(t, "empty") || m.Descriptor().Fields().Len() > 0 {
				drawMessage(t, m, 3)
			}
			return m.Interface().(vtMessage)
		}).Example(i)
		data, err := msg.MarshalVT()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), data)
	}
	f.Add(uint8(0), []byte{0x82, 0x82, 0x00, 0x00}) // an unknown field whose tag is longer than needed
	f.Add(uint8(0), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Add(uint8(0), []byte{0x0b, 0x0c, 0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		mt := types[int(which)%len(types)]
		want := mt.New().Interface()
		libraryErr := proto.Unmarshal(data, want)
		for name, decode := range map[string]func(vtMessage, []byte) error{"UnmarshalVT": vtMessage.UnmarshalVT, "UnmarshalVTUnsafe": vtMessage.UnmarshalVTUnsafe} {
			got := mt.New().Interface().(vtMessage)
			err := decode(got, bytes.Clone(data))
			if libraryErr != nil {
				continue
			}
			if err != nil {
				if !strings.Contains(err.Error(), "wrong wireType") {
					t.Fatalf("%s of %s refuses %x: %v", name, mt.Descriptor().FullName(), data, err)
				}
				continue
			}
			// The library stores the tags of unknown fields in their shortest form, the generated
			// decoders as they came; so unknown fields are compared after encoding again.
			if !proto.Equal(got, want) && !hasUnknown(want.ProtoReflect()) {
				t.Fatalf("%s of %s: %x is %v, to the library %v", name, mt.Descriptor().FullName(), data, got, want)
			}
			again, err := got.MarshalVT()
			if err != nil || len(again) != got.SizeVT() {
				t.Fatalf("encode %v: %d bytes, %v", got, len(again), err)
			}
			back := mt.New().Interface()
			if err := proto.Unmarshal(again, back); err != nil || !proto.Equal(back, want) {
				t.Fatalf("%v encoded again is %v (%v)", want, back, err)
			}
		}
	})
}

// hasUnknown tells whether m or a message in it has unknown fields.
func hasUnknown(m protoreflect.Message) bool {
	found := len(m.GetUnknown()) > 0
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Message() == nil:
		case fd.IsList():
			for i := range v.List().Len() {
				found = found || hasUnknown(v.List().Get(i).Message())
			}
		default:
			found = found || hasUnknown(v.Message())
		}
		return !found
	})
	return found
}
