// Package protoyaml has messages of the API as people write them in YAML: fields by the names that
// the API gives them, durations like 7d, and enums by the words that flags have.
package protoyaml

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/strictyaml"
)

// Reader fills messages, and collects what is wrong.
type Reader struct {
	Faults []strictyaml.Fault
	// Lines is where each field is, by its path.
	Lines map[string]int
}

// Fault adds one.
func (r *Reader) Fault(line int, format string, args ...any) {
	r.Faults = append(r.Faults, strictyaml.At(line, format, args...))
}

// Fields are those of the map that n must be, whose path is at.
func (r *Reader) Fields(at string, n *yaml.Node) []strictyaml.Field {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil // a name without lines below it
	}
	if n.Kind != yaml.MappingNode {
		r.Fault(n.Line, "%s must have lines of the form NAME: VALUE below it", at)
		return nil
	}
	fields, faults := strictyaml.Fields(n)
	r.Faults = append(r.Faults, faults...)
	return fields
}

// Unknown says that there is no such field.
func (r *Reader) Unknown(at string, f strictyaml.Field, known []string) {
	r.Fault(f.Line, "%s has no field %.60q%s", at, f.Name, strictyaml.Near(f.Name, known))
}

// Message fills m, whose path is at, from fields. Those of known are its own names: other fields
// are faults.
func (r *Reader) Message(at string, fields []strictyaml.Field, m proto.Message, known ...string) {
	r.message(at, "", fields, m.ProtoReflect(), known)
}

// message has the path within the message beside the whole one.
func (r *Reader) message(at, within string, fields []strictyaml.Field, m protoreflect.Message, known []string) {
	of := m.Descriptor().Fields()
	if known == nil {
		for i := range of.Len() {
			known = append(known, string(of.Get(i).Name()))
		}
	}
	for _, f := range fields {
		field := of.ByName(protoreflect.Name(f.Name))
		if field == nil || !slices.Contains(known, f.Name) {
			r.Unknown(at, f, known)
			continue
		}
		path, inside := at+"."+f.Name, f.Name
		if within != "" {
			inside = within + "." + f.Name
		}
		if r.Lines != nil {
			r.Lines[inside] = f.Line
		}
		r.field(path, inside, f, m, field)
	}
}

func (r *Reader) field(path, inside string, f strictyaml.Field, m protoreflect.Message, field protoreflect.FieldDescriptor) {
	switch {
	case field.IsMap():
		all := m.Mutable(field).Map()
		for _, one := range r.Fields(path, f.Value) {
			v, err := value(one.Value, field.MapValue())
			if err != nil {
				r.Fault(one.Line, "%s.%s: %w", path, one.Name, err)
				continue
			}
			all.Set(protoreflect.ValueOfString(one.Name).MapKey(), v)
		}
	case field.IsList():
		texts, err := strictyaml.Scalars(f.Value)
		if err != nil {
			r.Fault(f.Line, "%s: %w", path, err)
			return
		}
		all := m.Mutable(field).List()
		for _, text := range texts {
			all.Append(protoreflect.ValueOfString(text))
		}
	case field.Message() != nil && !single(field):
		if f.Value.Kind == yaml.ScalarNode && f.Value.Tag == "!!null" {
			r.Fault(f.Line, "%s has nothing below it: leave the line out, or write {} where all of it has defaults", path)
			return
		}
		r.message(path, inside, r.Fields(path, f.Value), m.Mutable(field).Message(), nil)
	default:
		v, err := value(f.Value, field)
		if err != nil {
			r.Fault(f.Line, "%s: %w", path, err)
			return
		}
		if isDefault(v, field) {
			return
		}
		m.Set(field, v)
	}
}

// isDefault reports whether a value is a duration of 0, which stands for the default.
func isDefault(v protoreflect.Value, field protoreflect.FieldDescriptor) bool {
	if field.Message() == nil {
		return false
	}
	d, is := v.Message().Interface().(*durationpb.Duration)
	return is && d.AsDuration() == 0
}

// single reports whether a message is written as one value.
func single(field protoreflect.FieldDescriptor) bool {
	name := field.Message().FullName()
	return name == "google.protobuf.Duration" || name == "google.protobuf.Timestamp"
}

// value reads one.
func value(n *yaml.Node, field protoreflect.FieldDescriptor) (v protoreflect.Value, err error) {
	text, err := strictyaml.Scalar(n)
	if err != nil {
		return v, err
	}
	switch field.Kind() {
	case protoreflect.BoolKind:
		if n.Tag != "!!bool" {
			return v, fmt.Errorf("%.60q must be true or false", text)
		}
		var is bool
		err := n.Decode(&is)
		return protoreflect.ValueOfBool(is), err
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text), nil
	case protoreflect.Uint32Kind:
		whole, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return v, fmt.Errorf("%.60q must be a whole number, from 0 to %d", text, uint32(math.MaxUint32))
		}
		return protoreflect.ValueOfUint32(uint32(whole)), nil
	case protoreflect.Uint64Kind:
		whole, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return v, fmt.Errorf("%.60q must be a whole number, from 0 on", text)
		}
		return protoreflect.ValueOfUint64(whole), nil
	case protoreflect.DoubleKind:
		number, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(number) || math.IsInf(number, 0) {
			return v, fmt.Errorf("%.60q must be a number", text)
		}
		return protoreflect.ValueOfFloat64(number), nil
	case protoreflect.EnumKind:
		return enum(text, field.Enum())
	case protoreflect.MessageKind:
		if field.Message().FullName() == "google.protobuf.Timestamp" {
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				return v, fmt.Errorf("%.60q must be a time like 2027-01-31T08:00:00Z", text)
			}
			return protoreflect.ValueOfMessage(timestamppb.New(at).ProtoReflect()), nil
		}
		d, err := cmdline.ParseDuration(text)
		if err != nil {
			return v, err
		}
		return protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()), nil
	}
	return v, errors.New("this version can't read it from a file")
}

// enum reads a value by its word, or by its whole name.
func enum(text string, of protoreflect.EnumDescriptor) (v protoreflect.Value, err error) {
	var words []string
	for i := range of.Values().Len() {
		one := of.Values().Get(i)
		if text == word(one) || text == string(one.Name()) {
			return protoreflect.ValueOfEnum(one.Number()), nil
		}
		words = append(words, word(one))
	}
	return v, fmt.Errorf("%.60q must be one of %s", text, strings.Join(words, ", "))
}

// word is what people call a value: its name without the enum's, in lower case.
func word(v protoreflect.EnumValueDescriptor) string {
	var prefix strings.Builder
	for i, letter := range string(v.Parent().Name()) {
		if i > 0 && letter >= 'A' && letter <= 'Z' {
			prefix.WriteByte('_')
		}
		prefix.WriteRune(letter)
	}
	name := strings.TrimPrefix(string(v.Name()), strings.ToUpper(prefix.String())+"_")
	return strings.ReplaceAll(strings.ToLower(strings.TrimSuffix(name, "_UNSPECIFIED")), "_", "-")
}
