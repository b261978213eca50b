package frames

import (
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	flatbuffers "github.com/google/flatbuffers/go"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// format is one way to write a message.
type format struct {
	name   string
	encode func(m *Message) []byte
	decode func(v *View, b []byte) error
}

func formats() []format {
	builder := flatbuffers.NewBuilder(512)
	return []format{
		{"protobuf-generated", encodeGenerated, decodeGenerated},
		{"protobuf-by-hand", encodeByHand, DecodeProtobuf},
		{"flatbuffers", func(m *Message) []byte { return AppendFlat(nil, builder, m) }, DecodeFlat},
		{"fixed", func(m *Message) []byte { return AppendFixed(nil, m) }, DecodeFixed},
	}
}

func encodeGenerated(m *Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(generatedOf(m))
	if err != nil {
		panic(err)
	}
	return b
}

// encodeByHand is what router and edge do together.
func encodeByHand(m *Message) []byte {
	body, err := wire.Body(generatedOf(m))
	if err != nil {
		panic(err)
	}
	return wire.AppendTail(append(wire.AppendHead(nil, m.Topic, m.Seq), body...), m.Attempt, m.Score, m.Subs)
}

// decodeGenerated makes a View of what the generated code reads.
func decodeGenerated(v *View, b []byte) error {
	var m wirev1.Message
	if err := proto.Unmarshal(b, &m); err != nil {
		return err
	}
	*v = View{
		Topic: []byte(m.GetTopic()), Payload: m.GetPayload(), ID: m.GetId(), Traceparent: []byte(m.GetTraceparent()), From: []byte(m.GetFrom()),
		Seq: m.GetSeq(), PublishedAt: m.GetPublishedAt(), Attempt: m.GetAttempt(), Priority: m.GetPriority(), Score: m.GetScore(), Subs: m.GetSubs(),
	}
	for k, val := range m.GetHeaders() {
		v.Headers = append(v.Headers, Header{[]byte(k), []byte(val)})
	}
	return nil
}

// normal makes no difference between empty and absent, which no format tells apart.
func normal(m *Message) *Message {
	n := *m
	if len(n.Payload) == 0 {
		n.Payload = nil
	}
	if len(n.ID) == 0 {
		n.ID = nil
	}
	if len(n.Headers) == 0 {
		n.Headers = nil
	}
	if len(n.Subs) == 0 {
		n.Subs = nil
	}
	return &n
}

func messages() *rapid.Generator[*Message] {
	return rapid.Custom(func(t *rapid.T) *Message {
		return &Message{
			Topic: rapid.StringN(1, 60, 255).Draw(t, "topic"), Traceparent: rapid.StringN(0, 55, 255).Draw(t, "traceparent"),
			From: rapid.StringN(0, 60, 255).Draw(t, "from"), Payload: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload"),
			ID:  slices.Repeat([]byte{7}, 16*rapid.IntRange(0, 1).Draw(t, "id")),
			Seq: rapid.Uint64().Draw(t, "seq"), PublishedAt: rapid.Uint64().Draw(t, "published_at"), Attempt: rapid.Uint32().Draw(t, "attempt"),
			Priority: rapid.Uint32Range(0, 9).Draw(t, "priority"), Score: rapid.Float64().Draw(t, "score"),
			Headers: rapid.MapOfN(rapid.StringN(0, 30, 90), rapid.StringN(0, 60, 200), 0, 12).Draw(t, "headers"),
			Subs:    rapid.SliceOfN(rapid.Uint32(), 0, 4).Draw(t, "subs"),
		}
	})
}

func TestEveryFormatBringsTheMessage(t *testing.T) {
	for _, f := range formats() {
		t.Run(f.name, func(t *testing.T) {
			var v View // one for all: what an earlier message left must not show
			rapid.Check(t, func(t *rapid.T) {
				want := messages().Draw(t, "message")
				if err := f.decode(&v, f.encode(want)); err != nil {
					t.Fatal(err)
				}
				if got := normal(v.Own()); !reflect.DeepEqual(got, normal(want)) {
					t.Fatalf("got %+v\nwant %+v", got, want)
				}
			})
		})
	}
}

// The shared encoding plus what comes later is the message that was meant.
func TestStamps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := messages().Draw(t, "message")
		shared := *want
		shared.Seq, shared.Subs = 0, nil
		var v View
		if err := DecodeFixed(&v, StampFixed(nil, AppendFixed(nil, &shared), want.Seq, want.Subs)); err != nil {
			t.Fatal(err)
		}
		if got := normal(v.Own()); !reflect.DeepEqual(got, normal(want)) {
			t.Fatalf("fixed: got %+v\nwant %+v", got, want)
		}
		if err := DecodeFlat(&v, StampFlat(nil, AppendFlat(nil, flatbuffers.NewBuilder(0), &shared), want.Seq)); err != nil {
			t.Fatal(err)
		}
		shared.Seq = want.Seq
		if got := normal(v.Own()); !reflect.DeepEqual(got, normal(&shared)) {
			t.Fatalf("flat: got %+v\nwant %+v", got, &shared)
		}
	})
}

// The sizes that docs/adr/0005-message-frame.md states, frame header included.
func TestSizes(t *testing.T) {
	want := map[string][2]int{ // without and with a traceparent
		"protobuf-generated": {226, 283}, "protobuf-by-hand": {226, 283}, "flatbuffers": {324, 396}, "fixed": {250, 305},
	}
	for _, f := range formats() {
		got := [2]int{wire.HeaderSize + len(f.encode(typical(false))), wire.HeaderSize + len(f.encode(typical(true)))}
		if got != want[f.name] {
			t.Errorf("%s: %d bytes, want %d", f.name, got, want[f.name])
		}
	}
}

// Only the decoders that check lengths can be given what a stranger sent.
func TestWhoReadsBrokenFrames(t *testing.T) {
	for _, f := range formats() {
		whole, panics := f.encode(typical(true)), 0
		for n := range whole {
			panics += panicsAt(f, whole[:n])
		}
		if want := f.name == "flatbuffers"; panics > 0 != want {
			t.Errorf("%s: %d of %d beginnings make the decoder panic", f.name, panics, len(whole))
		}
	}
}

func panicsAt(f format, b []byte) (panics int) {
	defer func() {
		if recover() != nil {
			panics = 1
		}
	}()
	var v View
	if f.decode(&v, b) == nil {
		runtime.KeepAlive(v.Own())
	}
	return 0
}

// FuzzDecodeProtobuf holds the decoder by hand to the generated one, for any bytes.
func FuzzDecodeProtobuf(f *testing.F) {
	f.Add(encodeByHand(typical(true)))
	f.Add([]byte{0x58, 1, 0x5a, 2, 3, 4, 0x32, 0, 0x32, 2, 0x10, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		var want, got View
		wantErr, err := decodeGenerated(&want, in), DecodeProtobuf(&got, in)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("by hand: %v, generated: %v", err, wantErr)
		}
		if err != nil {
			return
		}
		a, b := normal(got.Own()), normal(want.Own())
		if math.IsNaN(a.Score) && math.IsNaN(b.Score) {
			a.Score, b.Score = 0, 0
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("by hand %+v\ngenerated %+v", a, b)
		}
	})
}

// FuzzDecodeFixed: what is taken for a message is written back as it was, and nothing panics.
func FuzzDecodeFixed(f *testing.F) {
	f.Add(AppendFixed(nil, typical(true)))
	f.Add([]byte(strings.Repeat("\x00", fixedSize)))
	f.Fuzz(func(t *testing.T, in []byte) {
		var v, again View
		if DecodeFixed(&v, in) != nil {
			return
		}
		m := v.Own()
		if err := DecodeFixed(&again, AppendFixed(nil, m)); err != nil {
			t.Fatal(err)
		}
		n := again.Own()
		if math.IsNaN(m.Score) && math.IsNaN(n.Score) {
			m.Score, n.Score = 0, 0
		}
		if !reflect.DeepEqual(normal(m), normal(n)) {
			t.Fatalf("got %+v, want %+v", n, m)
		}
	})
}
