package api_test

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"pgregory.net/rapid"

	_ "github.com/coordd/coordd/api/authpb"
	_ "github.com/coordd/coordd/api/coorddpb"
	_ "github.com/coordd/coordd/api/leasepb"
	_ "github.com/coordd/coordd/api/peerpb"
	_ "github.com/coordd/coordd/api/requestpb"
	_ "github.com/coordd/coordd/api/services"
)

// vtMessage is what generated code offers for every message of the API.
type vtMessage interface {
	proto.Message
	SizeVT() int
	MarshalVT() ([]byte, error)
	UnmarshalVT([]byte) error
	UnmarshalVTUnsafe([]byte) error
}

// allMessages gives the types of all messages of the API, in order of their names.
func allMessages() []protoreflect.MessageType {
	var types []protoreflect.MessageType
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		if strings.HasPrefix(string(mt.Descriptor().FullName()), "coordd.") {
			types = append(types, mt)
		}
		return true
	})
	slices.SortFunc(types, func(a, b protoreflect.MessageType) int {
		return strings.Compare(string(a.Descriptor().FullName()), string(b.Descriptor().FullName()))
	})
	return types
}

// drawMessage fills m with random values, to a depth of embedded messages.
func drawMessage(t *rapid.T, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if fd.Message() != nil && depth == 0 || !rapid.Bool().Draw(t, "set") {
			continue
		}
		if !fd.IsList() {
			m.Set(fd, drawValue(t, m.NewField(fd), fd, depth))
			continue
		}
		list := m.Mutable(fd).List()
		for range rapid.IntRange(1, 3).Draw(t, "elements") {
			list.Append(drawValue(t, list.NewElement(), fd, depth))
		}
	}
}

// drawValue gives a random value for an element of field fd; fresh is a new value of its type.
func drawValue(t *rapid.T, fresh protoreflect.Value, fd protoreflect.FieldDescriptor, depth int) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "bool"))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64().Draw(t, "int64"))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(rapid.Uint64().Draw(t, "uint64"))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rapid.Uint32().Draw(t, "uint32"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.Int32Range(-1, 9).Draw(t, "enum")))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.StringN(0, 5, -1).Draw(t, "string"))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes"))
	case protoreflect.MessageKind:
		drawMessage(t, fresh.Message(), depth-1)
		return fresh
	}
	t.Fatalf("field %s is of kind %s, which the API has nowhere else; teach this test", fd.FullName(), fd.Kind())
	return fresh
}
