package wire

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// generated is what Body must equal.
func generated(m *wirev1.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(&wirev1.Message{
		Payload: m.GetPayload(), PublishedAt: m.GetPublishedAt(), Id: m.GetId(), Headers: m.GetHeaders(),
		Priority: m.GetPriority(), Traceparent: m.GetTraceparent(), From: m.GetFrom(), Mesh: m.GetMesh(),
	})
}

// same fails where Body and the generated code disagree about m, in bytes or in whether it can be
// encoded.
func same(t rapid.TB, m *wirev1.Message) {
	t.Helper()
	want, wantErr := generated(m)
	got, err := Body(m)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("Body: %v, generated: %v", err, wantErr)
	}
	if err == nil && !bytes.Equal(got, want) {
		t.Fatalf("Body of %v\n got %x\nwant %x", m, got, want)
	}
	if err == nil && len(got) != cap(got) {
		t.Fatalf("sized %d for %d bytes", cap(got), len(got))
	}
}

// texts are strings, some of which are empty, long enough for a two-byte length, or not UTF-8.
func texts() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(), rapid.StringN(0, 300, 400), rapid.Just(""), rapid.Just("a\xff"),
		rapid.Map(rapid.IntRange(120, 140), func(n int) string { return strings.Repeat("x", n) }),
	)
}

func messages() *rapid.Generator[*wirev1.Message] {
	return rapid.Custom(func(t *rapid.T) *wirev1.Message {
		valid := rapid.Custom(func(t *rapid.T) string { return strings.ToValidUTF8(texts().Draw(t, "text"), "?") })
		text := valid
		if rapid.IntRange(0, 9).Draw(t, "broken") == 0 {
			text = texts()
		}
		return &wirev1.Message{
			// not of the body
			Topic: valid.Draw(t, "topic"), Seq: rapid.Uint64().Draw(t, "seq"), Attempt: 3, Score: 1, Subs: []uint32{1},
			Payload:     rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "payload"),
			PublishedAt: rapid.OneOf(rapid.Uint64(), rapid.Just(uint64(0))).Draw(t, "published_at"),
			Id:          rapid.SliceOfN(rapid.Byte(), 0, 16).Draw(t, "id"),
			Headers:     rapid.MapOfN(text, text, 0, 12).Draw(t, "headers"),
			Priority:    rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(0, 9)).Draw(t, "priority"),
			Traceparent: text.Draw(t, "traceparent"),
			From:        text.Draw(t, "from"),
			Mesh:        rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "mesh"),
		}
	})
}

func TestBodyIsTheGeneratedCodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { same(t, messages().Draw(t, "message")) })
}

// What follows the body in the frame, or precedes it, must not change what it says.
func TestFrameOfAnyMessageIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := messages().Draw(t, "message")
		m.Subs = rapid.SliceOfN(rapid.Uint32(), 0, 5).Draw(t, "subs")
		body, err := Body(m)
		if err != nil {
			return // not UTF-8, which is the other test's
		}
		frame := AppendTail(AppendMessage(nil, m.GetTopic(), m.GetSeq(), body), m.GetAttempt(), m.GetScore(), m.GetSubs())
		var got wirev1.Message
		if err := proto.Unmarshal(frame[HeaderSize:], &got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(&got, m) {
			t.Fatalf("got %v, want %v", &got, m)
		}
	})
}

// A field that wire.proto gets one day must be in the head, the body or the tail.
func TestNoFieldIsForgotten(t *testing.T) {
	want := &wirev1.Message{Headers: map[string]string{"a": "b"}, Subs: []uint32{300}}
	fields := want.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f, one := fields.Get(i), protoreflect.Value{}
		switch f.Kind() {
		case protoreflect.StringKind:
			one = protoreflect.ValueOfString("text")
		case protoreflect.BytesKind:
			one = protoreflect.ValueOfBytes([]byte("bytes"))
		case protoreflect.Uint32Kind:
			one = protoreflect.ValueOfUint32(7)
		case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
			one = protoreflect.ValueOfUint64(1 << 40)
		case protoreflect.DoubleKind:
			one = protoreflect.ValueOfFloat64(-1.5)
		case protoreflect.BoolKind:
			one = protoreflect.ValueOfBool(true)
		}
		switch {
		case want.ProtoReflect().Has(f): // headers and subs, from above
		case f.IsMap() || f.IsList() || !one.IsValid():
			t.Fatalf("%s is of a kind that this test must learn", f.Name())
		default:
			want.ProtoReflect().Set(f, one)
		}
	}
	body, err := Body(want)
	if err != nil {
		t.Fatal(err)
	}
	frame := AppendUnranked(AppendTail(AppendMessage(nil, want.GetTopic(), want.GetSeq(), body), want.GetAttempt(), want.GetScore(), want.GetSubs()))
	var got wirev1.Message
	if err := proto.Unmarshal(frame[HeaderSize:], &got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&got, want) {
		t.Fatalf("got %v, want %v", &got, want)
	}
}

func TestBodyOfNothing(t *testing.T) {
	same(t, nil)
	same(t, &wirev1.Message{})
	same(t, &wirev1.Message{Headers: map[string]string{"": ""}})
	same(t, &wirev1.Message{Payload: make([]byte, 1<<20)})
}

// FuzzBody takes any bytes for a Message: where they are one, Body must agree with the generated
// code.
func FuzzBody(f *testing.F) {
	seed, err := proto.Marshal(&wirev1.Message{
		Payload: []byte("hi"), PublishedAt: 1, Id: make([]byte, 16), Headers: map[string]string{"a": "b", "c": ""}, Priority: 9, From: "ann",
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, in []byte) {
		var m wirev1.Message
		if proto.Unmarshal(in, &m) == nil {
			same(t, &m)
		}
	})
}

// The router makes one body for each message: the message given stays on the stack, and the body is
// all that is allocated.
func TestBodyIsOneAllocation(t *testing.T) {
	payload, id, headers := make([]byte, 128), make([]byte, 16), map[string]string{"content-type": "text/plain", "a": "b", "lang": "en"}
	n := testing.AllocsPerRun(100, func() {
		if _, err := Body(&wirev1.Message{Payload: payload, PublishedAt: 1, Id: id, Headers: headers, Traceparent: "00-1", From: "ann"}); err != nil {
			t.Fatal(err)
		}
	})
	if n != 1 {
		t.Errorf("%v allocations, want 1", n)
	}
}
