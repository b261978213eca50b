package intake

import (
	"reflect"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// What decoded fields take, in bytes, on a 64-bit machine.
const (
	pointerBytes = 16 // of an element of a list, with what append leaves free
	// of a string beside its bytes: where it is said to be, and what sizes are rounded by
	textBytes    = 32
	mapBytes     = 256 // of a map with few entries
	entryBytes   = 48  // of each entry
	numberBytes  = 8
	unknownBytes = 2 // for each byte of a field that is not known
	// deepest is how deep messages in messages are looked at.
	deepest = 32
)

// plan says what messages of a type take up when they are decoded. It is a guess from below twice
// to above twice of it, made from the encoded message in a fraction of the time that decoding
// takes.
type plan struct {
	size   int64   // of the Go struct
	fields []field // by number
}

type field struct {
	kind   kind
	within *plan  // of a message
	bit    uint64 // of a map
}

type kind int

const (
	unknown kind = iota
	number
	fixed // a number of a fixed size
	text
	message
	entries
)

// plans of messages, by their names.
type plans map[protoreflect.FullName]*plan

func (all plans) plan(d protoreflect.MessageDescriptor) *plan {
	if p := all[d.FullName()]; p != nil {
		return p
	}
	p := &plan{size: structSize(d)}
	all[d.FullName()] = p // first: messages may hold messages of their own type
	maps := 0
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		for int(f.Number()) >= len(p.fields) {
			p.fields = append(p.fields, field{})
		}
		p.fields[f.Number()] = all.field(f, &maps)
	}
	return p
}

func (all plans) field(f protoreflect.FieldDescriptor, maps *int) field {
	if f.IsMap() {
		bit := uint64(1) << min(*maps, 63)
		*maps++
		return field{kind: entries, within: all.plan(f.Message()), bit: bit}
	}
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return field{kind: message, within: all.plan(f.Message())}
	case protoreflect.StringKind, protoreflect.BytesKind:
		return field{kind: text}
	case protoreflect.FloatKind, protoreflect.DoubleKind, protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return field{kind: fixed}
	}
	return field{kind: number}
}

// structSize of a message; that of an entry of a map is counted otherwise.
func structSize(d protoreflect.MessageDescriptor) int64 {
	if d.IsMapEntry() {
		return 0
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return mapBytes
	}
	return int64(reflect.TypeOf(t.Zero().Interface()).Elem().Size())
}

// weigh is about how many bytes an encoded message takes once it is decoded. Of more than one piece
// of data the first is looked at alone. What is no message weighs what stands before the fault.
func (p *plan) weigh(data mem.BufferSlice) int64 {
	if p == nil || len(data) == 0 {
		return 0
	}
	return p.of(data[0].ReadOnlyData(), deepest)
}

// items is how many messages stand side by side in an encoded message: those of a batch. Of more
// than one piece of data the first is looked at alone.
func (p *plan) items(data mem.BufferSlice) (n int64) {
	if p == nil || len(data) == 0 {
		return 0
	}
	for b := data[0].ReadOnlyData(); len(b) > 0; {
		num, _, size := protowire.ConsumeField(b)
		if size < 0 {
			return n
		}
		if int(num) < len(p.fields) && p.fields[num].kind == message {
			n++
		}
		b = b[size:]
	}
	return n
}

func (p *plan) of(b []byte, depth int) int64 {
	total := p.size
	if depth == 0 {
		return total + int64(len(b))*numberBytes
	}
	var maps uint64 // that have an entry
	for len(b) > 0 {
		num, wireType, n := protowire.ConsumeTag(b)
		if n < 0 {
			return total
		}
		size := protowire.ConsumeFieldValue(num, wireType, b[n:])
		if size < 0 {
			return total
		}
		value := b[n : n+size]
		b = b[n+size:]
		f := field{}
		if int(num) < len(p.fields) {
			f = p.fields[num]
		}
		switch {
		case f.kind == unknown:
			total += int64(n+size) * unknownBytes
		case wireType == protowire.BytesType:
			value, _ = protowire.ConsumeBytes(value)
			total += f.of(value, depth)
			if f.kind == entries && maps&f.bit == 0 {
				maps |= f.bit
				total += mapBytes
			}
		case f.within != nil: // a group
			total += f.within.size + int64(size)*numberBytes
		default:
			total += numberBytes
		}
	}
	return total
}

// of is what a value with a length takes.
func (f field) of(value []byte, depth int) int64 {
	switch f.kind {
	case message:
		return pointerBytes + f.within.of(value, depth-1)
	case entries:
		return entryBytes + f.within.of(value, depth-1)
	case text:
		return textBytes + int64(len(value))
	case fixed: // many of them, packed
		return int64(len(value)) * 3 / 2
	}
	return int64(len(value)) * numberBytes
}
