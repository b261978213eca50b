package play

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// frameType of a name, such as go_away.
func frameType(name string) (wirev1.FrameType, error) {
	t, ok := wirev1.FrameType_value["FRAME_TYPE_"+strings.ToUpper(name)]
	if !ok || t == 0 {
		return 0, fmt.Errorf("there is no frame %q", name)
	}
	return wirev1.FrameType(t), nil
}

func frameName(t wirev1.FrameType) string {
	return strings.ToLower(strings.TrimPrefix(t.String(), "FRAME_TYPE_"))
}

// newFrame is an empty message of a type: GO_AWAY is a GoAway.
func newFrame(t wirev1.FrameType) (protoreflect.Message, error) {
	var camel strings.Builder
	for word := range strings.SplitSeq(frameName(t), "_") {
		camel.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	m, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("pushmesh.wire.v1." + camel.String()))
	if err != nil {
		return nil, fmt.Errorf("a frame of type %d: %w", t, err)
	}
	return m.New(), nil
}

// decode makes of a frame what scenes compare with.
func decode(t wirev1.FrameType, body []byte) (map[string]any, error) {
	m, err := newFrame(t)
	if err != nil {
		return nil, err
	}
	if err := proto.Unmarshal(body, m.Interface()); err != nil {
		return nil, fmt.Errorf("%s can't be decoded: %w", frameName(t), err)
	}
	return members(m), nil
}

// encode makes a frame's message of what a scene says.
func encode(t wirev1.FrameType, said map[string]any) (proto.Message, error) {
	m, err := newFrame(t)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(standard(m.Descriptor(), said))
	if err != nil {
		return nil, err
	}
	return m.Interface(), protojson.Unmarshal(b, m.Interface())
}

// members are a message's fields by name, the empty ones among them.
func members(m protoreflect.Message) map[string]any {
	out := map[string]any{}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		v := m.Get(f)
		switch {
		case f.IsMap():
			entries := map[string]any{}
			v.Map().Range(func(k protoreflect.MapKey, one protoreflect.Value) bool {
				entries[k.String()] = member(f.MapValue(), one)
				return true
			})
			out[string(f.Name())] = entries
		case f.IsList():
			list := make([]any, v.List().Len())
			for i := range list {
				list[i] = member(f, v.List().Get(i))
			}
			out[string(f.Name())] = list
		default:
			out[string(f.Name())] = member(f, v)
		}
	}
	return out
}

func member(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return members(v.Message())
	case protoreflect.BytesKind:
		return string(v.Bytes())
	case protoreflect.EnumKind:
		if d := f.Enum().Values().ByNumber(v.Enum()); d != nil {
			return strings.TrimPrefix(string(d.Name()), prefix(f.Enum()))
		}
		return json.Number(fmt.Sprint(v.Enum()))
	case protoreflect.StringKind, protoreflect.BoolKind:
		return v.Interface()
	}
	return json.Number(fmt.Sprint(v.Interface()))
}

// prefix of the names of an enum's values.
func prefix(e protoreflect.EnumDescriptor) string { return strings.ToUpper(string(e.Name())) + "_" }

// standard makes protobuf's JSON of a scene's.
func standard(d protoreflect.MessageDescriptor, said map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range said {
		f := d.Fields().ByName(protoreflect.Name(k))
		list, isList := v.([]any)
		switch {
		case f == nil || f.IsMap():
			out[k] = v // what there is not is refused when it is read
		case isList:
			all := make([]any, len(list))
			for i, one := range list {
				all[i] = standardMember(f, one)
			}
			out[k] = all
		default:
			out[k] = standardMember(f, v)
		}
	}
	return out
}

func standardMember(f protoreflect.FieldDescriptor, v any) any {
	said, isText := v.(string)
	m, isObject := v.(map[string]any)
	switch {
	case f.Kind() == protoreflect.MessageKind && isObject:
		return standard(f.Message(), m)
	case f.Kind() == protoreflect.BytesKind && isText:
		return base64.StdEncoding.EncodeToString([]byte(said))
	case f.Kind() == protoreflect.EnumKind && isText:
		return prefix(f.Enum()) + said
	}
	return v
}
