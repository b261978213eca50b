package wire

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// What Body makes is cut without a copy into the body of the message without the field, and the
// field.
func TestBodyIsCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := messages().Draw(t, "message")
		body, err := Body(m)
		if err != nil {
			return // not UTF-8, which is another test's
		}
		m.Mesh = nil
		want, err := Body(m)
		shared, mesh := Cut(body)
		if err != nil || !bytes.Equal(shared, want) {
			t.Fatalf("shared is %x, want %x", shared, want)
		}
		var whole wirev1.Message
		if err := proto.Unmarshal(body, &whole); err != nil || !bytes.Equal(mesh, whole.GetMesh()) {
			t.Fatalf("mesh is %x, want %x (%v)", mesh, whole.GetMesh(), err)
		}
		if len(body) > 0 && len(shared) > 0 && &shared[0] != &body[0] {
			t.Fatal("shared is a copy")
		}
	})
}

// Wherever the field is, nothing of it is left.
func TestFieldsAnywhereAreCut(t *testing.T) {
	body, err := Body(&wirev1.Message{Payload: []byte("hi"), From: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	one := protowire.AppendBytes(protowire.AppendTag(nil, meshField, protowire.BytesType), []byte("one"))
	two := protowire.AppendBytes(protowire.AppendTag(nil, meshField, protowire.BytesType), []byte("two"))
	shared, mesh := Cut(slices.Concat(one, body, two))
	if !bytes.Equal(shared, body) || string(mesh) != "two" {
		t.Errorf("got %x and %q", shared, mesh)
	}
	if shared, mesh = Cut(slices.Concat(one, body)); !bytes.Equal(shared, body) || string(mesh) != "one" {
		t.Errorf("got %x and %q", shared, mesh)
	}
}

// FuzzCut takes any bytes: where they are a Message, the rest is that Message without the field.
func FuzzCut(f *testing.F) {
	for _, m := range []*wirev1.Message{{}, {Payload: []byte("hi"), Mesh: []byte("x")}, {Mesh: make([]byte, 300)}} {
		body, err := Body(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
		f.Add(append(body, body...))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		shared, mesh := Cut(slices.Clone(in))
		if len(shared) > len(in) || len(mesh) > len(in) {
			t.Fatalf("%d bytes became %d and %d", len(in), len(shared), len(mesh))
		}
		var whole, cut wirev1.Message
		if proto.Unmarshal(in, &whole) != nil {
			return
		}
		if err := proto.Unmarshal(shared, &cut); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mesh, whole.GetMesh()) {
			t.Fatalf("mesh is %x, want %x", mesh, whole.GetMesh())
		}
		whole.Mesh = nil
		if !proto.Equal(&cut, &whole) {
			t.Fatalf("%x was cut to %x", in, shared)
		}
	})
}

func BenchmarkCut(b *testing.B) {
	for name, mesh := range map[string][]byte{"without": nil, "with": make([]byte, 40)} {
		body, err := Body(&wirev1.Message{Payload: make([]byte, 128), PublishedAt: 1, Id: make([]byte, 16), Headers: map[string]string{"content-type": "text/plain"}, Mesh: mesh})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Cut(body)
			}
		})
	}
}
