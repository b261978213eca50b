package protoyaml

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Node is what Reader makes m from. Fields that have their defaults are left out, and so are those
// that are named; equal messages have equal nodes.
func Node(m proto.Message, without ...string) *yaml.Node { return node(m.ProtoReflect(), without) }

func node(m protoreflect.Message, without []string) *yaml.Node {
	n := Map()
	of := m.Descriptor().Fields()
	for i := range of.Len() {
		field := of.Get(i)
		if !m.Has(field) || slices.Contains(without, string(field.Name())) {
			continue
		}
		if d, is := message(m, field).(*durationpb.Duration); is && d.AsDuration() == 0 {
			continue
		}
		Set(n, string(field.Name()), valueNode(m.Get(field), field))
	}
	return n
}

// message is that of a field; nil: it is of another kind.
func message(m protoreflect.Message, field protoreflect.FieldDescriptor) proto.Message {
	if field.Message() == nil || field.IsMap() || field.IsList() {
		return nil
	}
	return m.Get(field).Message().Interface()
}

func valueNode(v protoreflect.Value, field protoreflect.FieldDescriptor) *yaml.Node {
	switch {
	case field.IsMap():
		n, keys := Map(), map[string]protoreflect.Value{}
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool { keys[k.String()] = v; return true })
		for _, k := range sorted(keys) {
			Set(n, k, scalar(keys[k], field.MapValue()))
		}
		return n
	case field.IsList():
		var all []string
		for i := range v.List().Len() {
			all = append(all, v.List().Get(i).String())
		}
		return List(all)
	case field.Message() != nil && !single(field):
		return node(v.Message(), nil)
	}
	return scalar(v, field)
}

func scalar(v protoreflect.Value, field protoreflect.FieldDescriptor) *yaml.Node {
	plain := func(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }
	switch field.Kind() {
	case protoreflect.DoubleKind:
		return plain(strconv.FormatFloat(v.Float(), 'g', -1, 64))
	case protoreflect.EnumKind:
		if one := field.Enum().Values().ByNumber(v.Enum()); one != nil {
			return plain(word(one))
		}
		return plain(strconv.Itoa(int(v.Enum()))) // of a newer version
	case protoreflect.MessageKind:
		switch one := v.Message().Interface().(type) {
		case *durationpb.Duration:
			return plain(Duration(one.AsDuration()))
		case *timestamppb.Timestamp:
			return plain(one.AsTime().Format(time.RFC3339Nano))
		}
	case protoreflect.StringKind:
		return Text(v.String())
	}
	return plain(v.String())
}

// Duration is d without units that are 0.
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Map is one without fields.
func Map() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"} }

// Text is a value that YAML takes for nothing but text.
func Text(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

// List of values.
func List(all []string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
	for _, one := range all {
		n.Content = append(n.Content, Text(one))
	}
	return n
}

// Set appends a field to a map.
func Set(m *yaml.Node, name string, value *yaml.Node) {
	m.Content = append(m.Content, Text(name), value)
}

func sorted[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
