package pushmesh

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func asString(b []byte) string { return string(b) }

func TestDecodesWhatProtobufEncodes(t *testing.T) {
	m := &wirev1.Message{
		Topic: "room/7", Seq: 1 << 40, Payload: []byte("hi"), PublishedAt: 123456, Id: bytes.Repeat([]byte{9}, 16),
		Headers: map[string]string{"a": "b", "": "c", "d": ""}, Attempt: 3, Priority: 4, Traceparent: "00-x", Score: -1.5,
		Subs: []uint32{1, 300}, From: "ann", Unranked: true,
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, b, m)
}

func compare(t *testing.T, b []byte, m *wirev1.Message) {
	t.Helper()
	d := Delivery{subs: []uint32{7, 7, 7}} // an earlier message's
	if err := d.decode(b, asString); err != nil {
		t.Fatalf("protobuf takes %x, decode says %v", b, err)
	}
	if d.Topic != m.GetTopic() || d.Seq != m.GetSeq() || !bytes.Equal(d.Payload, m.GetPayload()) || d.publishedAt != m.GetPublishedAt() ||
		d.ID != idOf(m.GetId()) || !maps.Equal(d.Headers, m.GetHeaders()) || d.Attempt != m.GetAttempt() ||
		d.Priority != m.GetPriority() || d.Traceparent != m.GetTraceparent() ||
		math.Float64bits(d.Score) != math.Float64bits(m.GetScore()) || !slices.Equal(d.subs, m.GetSubs()) || d.From != m.GetFrom() ||
		d.Unranked != m.GetUnranked() {
		t.Fatalf("got %+v, want %v", d, m)
	}
}

func FuzzDecodeMessage(f *testing.F) {
	good, err := proto.Marshal(&wirev1.Message{Topic: "a", Seq: 3, Headers: map[string]string{"k": "v"}, Subs: []uint32{1, 2}, Score: 1, Unranked: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{0x58, 0x01, 0x5a, 0x01, 0x02})
	f.Add([]byte{0x32, 0x02, 0x0a})
	f.Fuzz(func(t *testing.T, in []byte) {
		var m wirev1.Message
		if proto.Unmarshal(in, &m) == nil && len(m.ProtoReflect().GetUnknown()) == 0 {
			compare(t, in, &m)
			return
		}
		_ = (&Delivery{}).decode(in, asString) // must not panic
	})
}
