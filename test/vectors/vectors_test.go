// Package vectors has Go's encoding of every frame, with every field set, for clients in other
// languages to compare theirs with.
package vectors

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const file = "../../clients/js/test/vectors.json"

var update = flag.Bool("update", false, "write "+file)

// large are fields that may have any 64 bits.
var large = []string{"connection_id", "sent_at", "token"}

// vector is a message as bytes and as JSON.
type vector struct {
	Message string          `json:"message"`
	Hex     string          `json:"hex"`
	JSON    json.RawMessage `json:"json"`
}

// scalar is a value of a field that is not its zero value, and not that of any other field.
func scalar(f protoreflect.FieldDescriptor, n int) protoreflect.Value {
	n += int(f.Number()) * 1000
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(f.Enum().Values().Len() - 1).Number())
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(1<<31 + uint32(n))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		if slices.Contains(large, string(f.Name())) {
			return protoreflect.ValueOfUint64(1<<63 + uint64(n))
		}
		return protoreflect.ValueOfUint64(1<<50 + uint64(n))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n) + 0.25)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(n) + 0.5)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0, 0xff, byte(n)})
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("grüße " + string(f.Name()) + " 🙂")
	}
	panic("a kind that frames did not have: " + f.Kind().String())
}

func value(f protoreflect.FieldDescriptor, n int) protoreflect.Value {
	if f.Message() == nil {
		return scalar(f, n)
	}
	m := dynamicpb.NewMessage(f.Message())
	fill(m)
	return protoreflect.ValueOfMessage(m)
}

// fill sets every field: lists to two values, maps to one entry.
func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("key").MapKey(), scalar(f.MapValue(), i))
		case f.IsList():
			list := m.Mutable(f).List()
			list.Append(value(f, 1))
			list.Append(value(f, 2))
		default:
			m.Set(f, value(f, 0))
		}
	}
}

// What clients compare with is what Go encodes today.
func TestVectorsAreOfTheseSchemas(t *testing.T) {
	var all []vector
	messages := wirev1.File_pushmesh_wire_v1_wire_proto.Messages()
	for i := range messages.Len() {
		m := dynamicpb.NewMessage(messages.Get(i))
		fill(m)
		wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		text, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, vector{Message: string(messages.Get(i).Name()), Hex: hex.EncodeToString(wire), JSON: text})
	}
	want, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(file, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is of other schemas (%v): go test ./test/vectors -update, then the tests of the clients", file, err)
	}
}
