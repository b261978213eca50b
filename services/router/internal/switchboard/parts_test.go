package switchboard

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// FuzzParts: what protobuf reads as a part of a snapshot is read as the same, and one decoder reads
// one after the other.
func FuzzParts(f *testing.F) {
	whole := &meshv1.EdgeSnapshot{
		EdgeId: "e", EdgeIncarnation: 1 << 63, Version: 1 << 40, Part: 3, Parts: 4, Filters: []string{"a", "", "b/+", strings.Repeat("x", 255)},
	}
	f.Add(encode(f, whole))
	f.Add(encode(f, &meshv1.EdgeSnapshot{}))
	// a part beyond 32 bits, and a field that nobody knows
	f.Add([]byte{0x20, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xfd, 0x01, 1, 2, 3, 4})
	f.Add([]byte{0x32, 5, 'x'})
	// field 2^29 + 6: beyond protobuf's, and the filters' number once shifted in 32 bits
	f.Add([]byte{0xb2, 0x80, 0x80, 0x80, 0x10, 1, 'x'})
	var p parts
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := p.decode(encode(t, whole)); err != nil || !proto.Equal(got, whole) {
			t.Fatalf("%v, %v", got, err)
		}
		want := &meshv1.EdgeSnapshot{}
		wrong := proto.Unmarshal(data, want)
		got, err := p.decode(data)
		if err != nil {
			if wrong == nil {
				t.Fatalf("%v of what is %v", err, want)
			}
			return
		}
		for _, name := range append(got.GetFilters(), got.GetEdgeId()) {
			if !utf8.ValidString(name) {
				// protobuf refuses such names; the table takes them for topics that nobody
				// publishes to
				return
			}
		}
		if wrong != nil {
			t.Fatalf("%v is %v", wrong, got)
		}
		want.ProtoReflect().SetUnknown(nil)
		if !proto.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
