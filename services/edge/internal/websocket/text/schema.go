package text

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// kind is how a field's values are written.
type kind uint8

const (
	kindString kind = iota
	kindBytes
	kindJSON // bytes that are a JSON value, or are written in base64 under another name
	kindBool
	kindUint32
	kindUint64
	kindFixed64
	kindDouble
	kindFloat
	kindEnum
	kindObject
	kindMap
)

// maxNumber is the highest number of a field, so that a tag is one byte.
const maxNumber = 15

// field is a member of an object.
type field struct {
	name  string // in JSON
	key   string // the name with quotes and colon
	proto string // the name in the schema
	num   protowire.Number
	kind  kind
	wire  protowire.Type // of one value
	tag   byte
	list  bool
	// always: it is written even where it is empty.
	always bool
	// onlyRead: another field of the same number is written.
	onlyRead bool
	object   *object  // of kindObject, and of kindMap with the fields key and value
	names    []string // of kindEnum, by number
}

// packable reports whether the values of a list may share a field on the wire.
func (f *field) packable() bool { return f.list && f.wire != protowire.BytesType }

// object is a message of the schema. Its fields are in the order in which they are written.
type object struct {
	fields   []field
	byNumber [maxNumber + 1]*field
}

// before is how many fields are written before the one of a name.
func (o *object) before(name string) int {
	return slices.IndexFunc(o.fields, func(f field) bool { return f.name == name })
}

// frame is a message of the schema with a type of its own.
type frame struct {
	object
	t         wirev1.FrameType
	name      string
	beginning string // {"name":{
}

// tables are made once, of the schema.
var byName, byType = tables()

func tables() (map[string]*frame, []*frame) {
	names, types := map[string]*frame{}, make([]*frame, len(wirev1.FrameType_name))
	messages := wirev1.File_pushmesh_wire_v1_wire_proto.Messages()
	for number, constant := range wirev1.FrameType_name {
		name := camel(strings.TrimPrefix(constant, "FRAME_TYPE_"))
		d := messages.ByName(protoreflect.Name(strings.ToUpper(name[:1]) + name[1:]))
		if d == nil {
			continue // FRAME_TYPE_UNSPECIFIED
		}
		f := &frame{object: *objectOf(d), t: wirev1.FrameType(number), name: name, beginning: `{"` + name + `":{`}
		names[name], types[number] = f, f
	}
	return names, types
}

// camel makes claimState of CLAIM_STATE.
func camel(constant string) string {
	first, rest, _ := strings.Cut(strings.ToLower(constant), "_")
	for word := range strings.SplitSeq(rest, "_") {
		if word != "" {
			first += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return first
}

func objectOf(d protoreflect.MessageDescriptor) *object {
	o := &object{}
	for i := range d.Fields().Len() {
		f := fieldOf(d.Fields().Get(i))
		switch {
		case d.Name() == "Message" && f.name == "mesh": // edges cut it off
			continue
		case d.Name() == "Message" && f.name == "topic": // what follows begins with a comma
			f.always = true
		case f.name == "payload":
			f.kind = kindJSON
			o.fields = append(o.fields, field{name: "payloadBase64", proto: "payload_base64", onlyRead: true, num: f.num, kind: kindBytes, wire: f.wire, tag: f.tag})
		}
		o.fields = append(o.fields, f)
	}
	if d.Name() == "Message" {
		// What differs between subscribers comes last.
		slices.SortStableFunc(o.fields, func(a, b field) int { return ofTail(a.name) - ofTail(b.name) })
	}
	for i := range o.fields {
		o.byNumber[o.fields[i].num] = &o.fields[i]
	}
	return o
}

// ofTail is 1 for the fields of a Message that AppendTail writes.
func ofTail(name string) int {
	switch name {
	case "attempt", "score", "subs", "unranked":
		return 1
	}
	return 0
}

func fieldOf(d protoreflect.FieldDescriptor) field {
	f := field{name: d.JSONName(), key: `"` + d.JSONName() + `":`, proto: string(d.Name()), num: d.Number(), list: d.IsList()}
	switch d.Kind() {
	case protoreflect.StringKind:
		f.kind, f.wire = kindString, protowire.BytesType
	case protoreflect.BytesKind:
		f.kind, f.wire = kindBytes, protowire.BytesType
	case protoreflect.BoolKind:
		f.kind, f.wire = kindBool, protowire.VarintType
	case protoreflect.Uint32Kind:
		f.kind, f.wire = kindUint32, protowire.VarintType
	case protoreflect.Uint64Kind:
		f.kind, f.wire = kindUint64, protowire.VarintType
	case protoreflect.Fixed64Kind:
		f.kind, f.wire = kindFixed64, protowire.Fixed64Type
	case protoreflect.DoubleKind:
		f.kind, f.wire = kindDouble, protowire.Fixed64Type
	case protoreflect.FloatKind:
		f.kind, f.wire = kindFloat, protowire.Fixed32Type
	case protoreflect.EnumKind:
		f.kind, f.wire = kindEnum, protowire.VarintType
		f.names = namesOf(d.Enum())
	case protoreflect.MessageKind:
		f.kind, f.wire = kindObject, protowire.BytesType
		f.object = objectOf(d.Message())
	default:
		panic("text: the schema has a kind of field that this codec does not know: " + string(d.FullName()))
	}
	if d.IsMap() {
		f.kind = kindMap
	}
	if f.num > maxNumber || f.kind == kindObject && !f.list {
		panic("text: the schema has a field that this codec does not know: " + string(d.FullName()))
	}
	f.tag = byte(protowire.EncodeTag(f.num, f.wire))
	if f.packable() {
		f.tag = byte(protowire.EncodeTag(f.num, protowire.BytesType))
	}
	return f
}

func namesOf(d protoreflect.EnumDescriptor) []string {
	names := make([]string, d.Values().Len())
	for i := range names {
		v := d.Values().Get(i)
		if int(v.Number()) != i {
			panic("text: the schema has an enum whose numbers are not its places: " + string(d.FullName()))
		}
		names[i] = string(v.Name())
	}
	return names
}
