package frames

import (
	"strings"
	"testing"

	flatbuffers "github.com/google/flatbuffers/go"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// typical is the message that the figures are about: 128 bytes for a topic of 24.
func typical(traced bool) *Message {
	m := &Message{
		Topic: "room/0123456789/messages", Seq: 1_000_000, Payload: []byte(strings.Repeat("x", 128)), PublishedAt: 1_795_000_000_123_456,
		ID: []byte("0123456789abcdef"), Headers: map[string]string{"content-type": "application/json"},
	}
	if traced {
		m.Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	}
	return m
}

// each runs a benchmark for the typical message without and with a traceparent.
func each(b *testing.B, run func(b *testing.B, m *Message)) {
	for name, traced := range map[string]bool{"plain": false, "traced": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			run(b, typical(traced))
		})
	}
}

// BenchmarkEncode makes what all subscribers share, in bytes of their own, as the router does once
// for each message.
func BenchmarkEncode(b *testing.B) {
	b.Run("protobuf-generated", func(b *testing.B) {
		each(b, func(b *testing.B, m *Message) {
			for b.Loop() {
				shared := &wirev1.Message{Payload: m.Payload, PublishedAt: m.PublishedAt, Id: m.ID, Headers: m.Headers, Traceparent: m.Traceparent}
				if _, err := (proto.MarshalOptions{Deterministic: true}).Marshal(shared); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run("protobuf-by-hand", func(b *testing.B) {
		each(b, func(b *testing.B, m *Message) {
			for b.Loop() {
				shared := &wirev1.Message{Payload: m.Payload, PublishedAt: m.PublishedAt, Id: m.ID, Headers: m.Headers, Traceparent: m.Traceparent}
				if _, err := wire.Body(shared); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run("flatbuffers", func(b *testing.B) {
		builder := flatbuffers.NewBuilder(512)
		each(b, func(b *testing.B, m *Message) {
			for b.Loop() {
				AppendFlat(nil, builder, m)
			}
		})
	})
	b.Run("fixed", func(b *testing.B) {
		each(b, func(b *testing.B, m *Message) {
			for b.Loop() {
				AppendFixed(nil, m)
			}
		})
	})
}

// BenchmarkFrame makes the frame from what is shared, into a buffer that is used again: each edge
// does it once for a message.
func BenchmarkFrame(b *testing.B) {
	buf := make([]byte, 0, 1024)
	frame := func(build func(dst []byte) []byte) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				out := build(buf[:0])
				if len(out) < 128 {
					b.Fatal("no frame")
				}
			}
		}
	}
	m := typical(false)
	body, err := wire.Body(generatedOf(m))
	if err != nil {
		b.Fatal(err)
	}
	subs := []uint32{7}
	whole := generatedOf(m)
	fixed, flat := AppendFixed(nil, m), AppendFlat(nil, flatbuffers.NewBuilder(512), m)
	head := []byte{0, 0, 0, 7}

	b.Run("protobuf-generated/whole", frame(func(dst []byte) []byte {
		out, err := wire.Append(dst, wirev1.FrameType_FRAME_TYPE_MESSAGE, whole)
		if err != nil {
			b.Fatal(err)
		}
		return out
	}))
	b.Run("protobuf-by-hand/head", frame(func(dst []byte) []byte { return wire.AppendMessage(dst, m.Topic, m.Seq, body) }))
	b.Run("protobuf-by-hand/head+tail", frame(func(dst []byte) []byte {
		return wire.AppendTail(wire.AppendMessage(dst, m.Topic, m.Seq, body), 1, 0, subs)
	}))
	b.Run("flatbuffers/seq", frame(func(dst []byte) []byte { return StampFlat(append(dst, head...), flat, m.Seq) }))
	b.Run("fixed/seq", frame(func(dst []byte) []byte { return StampFixed(append(dst, head...), fixed, m.Seq, nil) }))
	b.Run("fixed/seq+subs", frame(func(dst []byte) []byte { return StampFixed(append(dst, head...), fixed, m.Seq, subs) }))
}

// BenchmarkDecode reads every field of a frame.
//   - view: slices of the frame, nothing is kept;
//   - owned: the application keeps the message.
func BenchmarkDecode(b *testing.B) {
	for _, f := range formats() {
		if f.name == "protobuf-generated" {
			b.Run(f.name+"/owned", func(b *testing.B) {
				each(b, func(b *testing.B, m *Message) {
					in := f.encode(m)
					for b.Loop() {
						if err := proto.Unmarshal(in, &wirev1.Message{}); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
			continue
		}
		b.Run(f.name+"/view", func(b *testing.B) { each(b, func(b *testing.B, m *Message) { decode(b, f, m, false) }) })
		b.Run(f.name+"/owned", func(b *testing.B) { each(b, func(b *testing.B, m *Message) { decode(b, f, m, true) }) })
	}
}

func decode(b *testing.B, f format, m *Message, own bool) {
	in := f.encode(m)
	var v View
	var kept *Message
	for b.Loop() {
		if err := f.decode(&v, in); err != nil {
			b.Fatal(err)
		}
		if own {
			kept = v.Own()
		}
	}
	if own && kept.Seq != m.Seq {
		b.Fatal("another message")
	}
}
