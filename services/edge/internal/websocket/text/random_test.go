package text

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// newMessage makes an empty message of a frame.
func newMessage(t testing.TB, f *frame) proto.Message {
	t.Helper()
	name := "pushmesh.wire.v1." + strings.ToUpper(f.name[:1]) + f.name[1:]
	mt, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		t.Fatal(err)
	}
	return mt.New().Interface()
}

func allFrames() []*frame {
	return slices.SortedFunc(maps.Values(byName), func(a, b *frame) int { return int(a.t) - int(b.t) })
}

func native(t rapid.TB, f *frame, m proto.Message) []byte {
	t.Helper()
	b, err := wire.Append(nil, f.t, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// decoded is the message of a native frame.
func decoded(t testing.TB, b []byte) proto.Message {
	t.Helper()
	n, ft, ok := wire.Header(b)
	if !ok || n != len(b)-wire.HeaderSize || int(ft) >= len(byType) || byType[ft] == nil {
		t.Fatalf("no frame: %x", b)
	}
	m := newMessage(t, byType[ft])
	if err := proto.Unmarshal(b[wire.HeaderSize:], m); err != nil {
		t.Fatalf("%x: %v", b, err)
	}
	return m
}

// strange are payloads and strings that tell the ways of writing them apart.
var strange = []string{
	"", "{}", " {\"a\" : [1, -2.5e+7, null]}\r\n\t", `"a\u2028"`, "\"\u2028\"", "\"\xff\"", "{", "nulls", "null", "0", "-", "00", "\x00", `"\ud800"`,
	"é\u2028\"\\/\b\f\n\r\t\x01\x7f", "\U0001f600", "\xed\xa0\x80", "\ufeff{}", "[[[[]]]]", "1 2",
}

// fill sets fields of m at random.
func fill(t *rapid.T, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if m.Descriptor().Name() == "Message" && f.Name() == "mesh" || rapid.IntRange(0, 3).Draw(t, "unset") == 0 {
			continue
		}
		n := rapid.IntRange(0, 4).Draw(t, "n")
		switch {
		case f.IsMap():
			all := m.Mutable(f).Map()
			for range n {
				all.Set(scalar(t, f.MapKey()).MapKey(), scalar(t, f.MapValue()))
			}
		case f.IsList():
			all := m.Mutable(f).List()
			for range n {
				if f.Message() != nil {
					one := all.NewElement()
					fill(t, one.Message())
					all.Append(one)
				} else {
					all.Append(scalar(t, f))
				}
			}
		default:
			m.Set(f, scalar(t, f))
		}
	}
}

func scalar(t *rapid.T, f protoreflect.FieldDescriptor) protoreflect.Value {
	name := string(f.Name())
	texts := rapid.OneOf(rapid.SampledFrom(strange), rapid.String(), rapid.StringN(100, 300, -1))
	numbers := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 1<<53 + 1, 1<<64 - 1}))
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(strings.ToValidUTF8(texts.Draw(t, name), "?"))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(texts.Draw(t, name)))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, name))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(numbers.Draw(t, name)))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(numbers.Draw(t, name))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, 1e-7, 1e21, 123456789.5})).Draw(t, name))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(rapid.OneOf(rapid.Float32(), rapid.SampledFrom([]float32{0, 1e-7, 1e21, 0.1})).Draw(t, name))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.Int32Range(-1, 50).Draw(t, name)))
	}
	t.Fatalf("%s is of a kind that this test must learn", f.FullName())
	return protoreflect.Value{}
}

// wanted is what a frame's JSON says, by protojson and encoding/json.
func wanted(t rapid.TB, f *frame, m proto.Message) any {
	t.Helper()
	b, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	members := jsonOf(t, b).(map[string]any)
	var payload []byte
	switch m := m.(type) {
	case *wirev1.Message:
		payload = m.GetPayload()
		if m.GetTopic() == "" {
			members["topic"] = ""
		}
	case *wirev1.Publish:
		payload = m.GetPayload()
	}
	if len(payload) > 0 {
		if isJSON(payload) {
			members["payload"] = jsonOf(t, payload)
		} else {
			members["payloadBase64"] = members["payload"]
			delete(members, "payload")
		}
	}
	return map[string]any{f.name: members}
}

func jsonOf(t rapid.TB, b []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	return v
}

// isJSON is IsJSON by encoding/json.
func isJSON(b []byte) bool {
	return json.Valid(b) && utf8.Valid(b) && depthOf(b) <= MaxDepth
}

// depthOf valid JSON.
func depthOf(b []byte) (most int) {
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == '{' || c == '['):
			depth++
			most = max(most, depth)
		case !inString && (c == '}' || c == ']'):
			depth--
		}
	}
	return most
}
