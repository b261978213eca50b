package expr

import (
	"fmt"
	"reflect"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// names gives cel-go the values of an Input without a map of them.
type names struct {
	in                *Input
	features, profile numbers
	headers           texts
}

// ResolveName implements interpreter.Activation.
func (n *names) ResolveName(name string) (any, bool) {
	in := n.in
	switch name {
	case "features":
		n.features.table = &in.Features
		return &n.features, true
	case "profile":
		n.profile.table = &in.Profile
		return &n.profile, true
	case "headers":
		n.headers.table = &in.Headers
		return &n.headers, true
	case "priority":
		return types.Int(in.Priority), true
	case "topic":
		return types.String(in.Topic), true
	case "id":
		return types.String(in.ID), true
	case "from":
		return types.String(in.From), true
	case "age":
		return types.Double(in.Age), true
	case "now":
		return types.Timestamp{Time: in.Now}, true
	case "payload":
		return in.document().value(), true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (n *names) Parent() interpreter.Activation { return nil }

// numbers and texts are maps whose absent entries are 0 and "". They are no traits.Mapper, since
// cel-go takes an entry that a Mapper does not find for an error.
type (
	numbers struct{ mapping[float64] }
	texts   struct{ mapping[string] }
)

type mapping[V float64 | string] struct{ table *Table[V] }

// Get implements traits.Indexer.
func (m *numbers) Get(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key)
	}
	v, _ := m.table.Get(string(name))
	return types.Double(v)
}

// Get implements traits.Indexer.
func (m *texts) Get(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key)
	}
	v, _ := m.table.Get(string(name))
	return types.String(v)
}

// Contains implements traits.Container.
func (m *mapping[V]) Contains(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if !ok {
		return types.False
	}
	_, found := m.table.Get(string(name))
	return types.Bool(found)
}

// IsSet implements traits.FieldTester.
func (m *mapping[V]) IsSet(key ref.Val) ref.Val { return m.Contains(key) }

// Size implements traits.Sizer.
func (m *mapping[V]) Size() ref.Val { return types.Int(m.table.Len()) }

// Iterator implements traits.Iterable.
func (m *mapping[V]) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, m.table.sortedNames()).Iterator()
}

// ConvertToNative implements ref.Val.
func (m *mapping[V]) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("a map can't be converted to %v", t)
}

// ConvertToType implements ref.Val.
func (m *mapping[V]) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return types.MapType
	}
	return types.NewErr("a map can't be converted to %s", t)
}

// Equal implements ref.Val: whole maps can't be compared.
func (m *mapping[V]) Equal(ref.Val) ref.Val { return types.NewErr("whole maps can't be compared") }

// Type implements ref.Val.
func (m *mapping[V]) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (m *mapping[V]) Value() any { return m.table }
