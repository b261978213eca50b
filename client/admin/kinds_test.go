package admin

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// fill sets every field of a message, or with sparse some, to values that are none's default, and
// adds one that this edition does not know.
func fill(t *rapid.T, m protoreflect.Message, sparse bool) {
	switch m.Descriptor().FullName() {
	case "google.protobuf.Duration", "google.protobuf.Timestamp":
		fields := m.Descriptor().Fields()
		m.Set(fields.ByName("seconds"), protoreflect.ValueOfInt64(rapid.Int64Range(1, 1e9).Draw(t, "seconds")))
		m.Set(fields.ByName("nanos"), protoreflect.ValueOfInt32(rapid.Int32Range(0, 999_999_999).Draw(t, "nanos")))
		return
	}
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		if sparse && rapid.Bool().Draw(t, "absent") {
			continue
		}
		switch {
		case f.IsMap():
			value := protoreflect.ValueOfFloat64(rapid.Float64Range(0.1, 9).Draw(t, "feature"))
			if f.MapValue().Kind() == protoreflect.StringKind {
				value = protoreflect.ValueOfString("value")
			}
			m.Mutable(f).Map().Set(protoreflect.ValueOfString(rapid.StringMatching("[a-z]{1,3}").Draw(t, "key")).MapKey(), value)
		case f.IsList() && f.Message() != nil:
			fill(t, m.Mutable(f).List().AppendMutable().Message(), sparse)
		case f.IsList():
			m.Mutable(f).List().Append(scalar(t, f))
		case f.Message() != nil:
			fill(t, m.Mutable(f).Message(), sparse)
		default:
			m.Set(f, scalar(t, f))
		}
	}
	m.SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 7))
}

func scalar(t *rapid.T, f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.Int32Range(1, 40).Draw(t, string(f.Name()))))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rapid.Uint32Min(1).Draw(t, string(f.Name())))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(rapid.Uint64Range(1, 1<<50).Draw(t, string(f.Name())))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(rapid.Float64Range(0.1, 9).Draw(t, string(f.Name())))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.StringMatching("[a-z]{1,9}").Draw(t, string(f.Name())))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(rapid.SliceOfN(rapid.Byte(), 16, 16).Filter(func(b []byte) bool { return b[0] > 0 }).Draw(t, string(f.Name())))
	}
	t.Fatalf("%s has a kind that is not filled", f.FullName())
	return protoreflect.Value{}
}

// A policy that is read and put back is the same, whatever of it is set, and what a later mesh has
// in it stays.
func TestPoliciesComeBack(t *testing.T) {
	for _, sparse := range []bool{false, true} {
		rapid.Check(t, func(t *rapid.T) {
			m := &pushmeshv1.Policy{}
			fill(t, m.ProtoReflect(), sparse)
			p := policyOf(m)
			if got := p.proto(); !proto.Equal(got, m) {
				t.Fatalf("came back as\n%v, was\n%v", got, m)
			}
		})
	}
	if p := policyOf(nil); !reflect.DeepEqual(p, Policy{}) || p.proto() == nil {
		t.Error("no policy")
	}
}

// Nothing of an answer is forgotten: what has every field set has them all set here.
func TestAnswersAreWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		namespace, member, stored, session := &pushmeshv1.Namespace{}, &pushmeshv1.Member{}, &pushmeshv1.StoredMessage{}, &pushmeshv1.Session{}
		dead, model, place := &pushmeshv1.DeadLetter{}, &pushmeshv1.Model{}, &pushmeshv1.ClaimPlace{}
		for _, m := range []proto.Message{namespace, member, stored, session, dead, model, place} {
			fill(t, m.ProtoReflect(), false)
		}
		for _, x := range []struct {
			ours any
			of   proto.Message
		}{
			{namespaceOf(namespace), namespace},
			{policyOf(namespace.GetPolicy()), namespace.GetPolicy()},
			{*rankOf(namespace.GetPolicy().GetRank()), namespace.GetPolicy().GetRank()},
			{*claimsOf(namespace.GetPolicy().GetClaims()), namespace.GetPolicy().GetClaims()},
			{memberOf(member), member},
			{storedOf(stored), stored},
			{sessionOf(session), session},
			{sessionOf(session).Cursors[0], session.GetCursors()[0]},
			{deadLetterOf(dead), dead},
			{modelOf(model), model},
			{placeOf(place), place},
		} {
			v, fields := reflect.ValueOf(x.ours), 0
			for i := range v.NumField() {
				if !v.Type().Field(i).IsExported() {
					continue
				}
				fields++
				if v.Field(i).IsZero() {
					t.Errorf("%T.%s is not set", x.ours, v.Type().Field(i).Name)
				}
			}
			if want := x.of.ProtoReflect().Descriptor().Fields().Len(); fields != want {
				t.Errorf("%T has %d fields, the mesh's has %d", x.ours, fields, want)
			}
		}
	})
}
