package acks

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Whatever is to be ACKed stands in Ack frames, each entry once and whole, none of them longer than
// an edge takes.
func TestAckFramesSayWhatIsToBeACKed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pending Pending
		var want []*wirev1.Ack_Entry
		for range rapid.IntRange(1, 4).Draw(t, "runs") {
			r := &Run{
				Topic: strings.Repeat("x", rapid.IntRange(1, 255).Draw(t, "topic")), Sub: rapid.SampledFrom([]uint32{0, 1, 300, 1 << 31}).Draw(t, "sub"),
				Epoch: rapid.SampledFrom([]uint64{0, 1, 1 << 63}).Draw(t, "epoch"), through: rapid.SampledFrom([]uint64{0, 1, 127, 128, 1 << 60}).Draw(t, "through"),
			}
			for range rapid.SampledFrom([]int{0, 1, 2, 600}).Draw(t, "singles") {
				r.singles = append(r.singles, r.through+uint64(len(r.singles)*7+1))
			}
			if r.through > 0 {
				want = append(want, &wirev1.Ack_Entry{Topic: r.Topic, Sub: r.Sub, Epoch: r.Epoch, Seq: r.through, Through: true})
			}
			for _, seq := range r.singles {
				want = append(want, &wirev1.Ack_Entry{Topic: r.Topic, Sub: r.Sub, Epoch: r.Epoch, Seq: seq})
			}
			pending.runs = append(pending.runs, r)
		}
		before := []byte("what was there")
		out := pending.Append(slices.Clone(before))
		if !bytes.HasPrefix(out, before) {
			t.Fatal("what was in the buffer is gone")
		}
		in := bytes.NewReader(out[len(before):])
		for frames := 0; in.Len() > 0; frames++ {
			ft, body, err := wire.Read(in, nil, wire.MaxBody)
			var a wirev1.Ack
			if err != nil || ft != wirev1.FrameType_FRAME_TYPE_ACK || proto.Unmarshal(body, &a) != nil || len(body) > 33<<10 {
				t.Fatalf("frame %d of %d bytes: %v, %v", frames, len(body), ft, err)
			}
			if in.Len() > 0 && len(body)+wire.HeaderSize <= 32<<10 {
				t.Fatalf("frame %d has %d bytes, and is not the last", frames, len(body))
			}
			for _, e := range a.GetEntries() {
				if len(want) == 0 || !proto.Equal(e, want[0]) {
					t.Fatalf("%v, want %v", e, want)
				}
				want = want[1:]
			}
		}
		if len(want) > 0 {
			t.Fatalf("%v was not ACKed", want)
		}
	})
}

// Whatever was added is said once it is sent, in whichever order: "all up to" an early one takes
// nothing of a later one that waits.
func TestNothingThatWasAddedIsForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pending Pending
		r := &Run{Topic: "a"}
		dealt := map[uint64]bool{}
		for range rapid.IntRange(1, 30).Draw(t, "adds") {
			seq := rapid.Uint64Range(1, 20).Draw(t, "seq")
			dealt[seq] = true
			through := true
			for s := uint64(1); s <= seq; s++ {
				through = through && dealt[s]
			}
			pending.Add(r, seq, through)
		}
		_, body, err := wire.Read(bytes.NewReader(pending.Append(nil)), nil, wire.MaxBody)
		var a wirev1.Ack
		if err != nil || proto.Unmarshal(body, &a) != nil {
			t.Fatal(err)
		}
		for _, e := range a.GetEntries() {
			for s := range dealt {
				if s == e.GetSeq() || e.GetThrough() && s < e.GetSeq() {
					delete(dealt, s)
				}
			}
			for s := uint64(1); e.GetThrough() && s < e.GetSeq(); s++ {
				delete(dealt, s)
			}
		}
		if len(dealt) > 0 {
			t.Fatalf("%v were not ACKed by %v", dealt, &a)
		}
	})
}
