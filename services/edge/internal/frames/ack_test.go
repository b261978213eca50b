package frames

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// The entries that are decoded in place are those that protobuf makes of the same bytes, with
// fields that nobody knows yet among them.
func TestAckEntriesAreWhatProtobufMakesOfThem(t *testing.T) {
	number := rapid.SampledFrom([]uint64{0, 1, 127, 128, 1 << 20, 1 << 63})
	rapid.Check(t, func(rt *rapid.T) {
		want := &wirev1.Ack{}
		for range rapid.IntRange(0, 4).Draw(rt, "entries") {
			want.Entries = append(want.Entries, &wirev1.Ack_Entry{
				Topic: rapid.StringN(0, 20, 60).Draw(rt, "topic"), Seq: number.Draw(rt, "seq"), Through: rapid.Bool().Draw(rt, "through"),
				Sub: rapid.Uint32().Draw(rt, "sub"), Epoch: number.Draw(rt, "epoch"),
			})
		}
		body, err := proto.Marshal(want)
		if err != nil {
			rt.Fatal(err)
		}
		body = protowire.AppendVarint(protowire.AppendTag(body, 15, protowire.VarintType), 9)
		got := &wirev1.Ack{}
		for len(body) > 0 {
			e, is, n := NextAckField(body)
			if n == 0 {
				rt.Fatal("it is malformed")
			}
			if body = body[n:]; is {
				got.Entries = append(got.Entries, &wirev1.Ack_Entry{Topic: string(e.Topic), Seq: e.Seq, Through: e.Through, Sub: e.Sub, Epoch: e.Epoch})
			}
		}
		if !proto.Equal(got, want) {
			rt.Fatalf("got %v\nwant %v", got, want)
		}
	})
}

func TestMalformedAckFields(t *testing.T) {
	for name, body := range map[string][]byte{
		"a tag": {0x80}, "a length": {1<<3 | 2, 5, 0}, "a tag in an entry": {1<<3 | 2, 1, 0x80}, "a number in an entry": {1<<3 | 2, 2, 2 << 3, 0xff},
		"a topic in an entry": {1<<3 | 2, 2, 1<<3 | 2, 9}, "an epoch in an entry": {1<<3 | 2, 3, 5<<3 | 1, 1, 2},
	} {
		if _, is, n := NextAckField(body); is || n != 0 {
			t.Errorf("%s that is cut off is taken for a field of %d bytes, an entry: %v", name, n, is)
		}
	}
}
