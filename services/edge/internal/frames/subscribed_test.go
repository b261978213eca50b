package frames

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

func subscribedOf(t *testing.T, frame []byte) *wirev1.Subscribed {
	t.Helper()
	m := &wirev1.Subscribed{}
	if n, ft, ok := wire.Header(frame); !ok || n != len(frame)-wire.HeaderSize || ft != wirev1.FrameType_FRAME_TYPE_SUBSCRIBED {
		t.Fatalf("a header of %d bytes and type %v for %d bytes", n, ft, len(frame))
	}
	if err := proto.Unmarshal(frame[wire.HeaderSize:], m); err != nil {
		t.Fatal(err)
	}
	return m
}

// What is encoded in place is what protobuf makes of the same answer, whatever its fields are.
func TestAnswersAreWhatProtobufMakesOfThem(t *testing.T) {
	number := rapid.SampledFrom([]uint64{0, 1, 127, 128, 1 << 20, 1 << 63})
	rapid.Check(t, func(rt *rapid.T) {
		want := &wirev1.Subscribed{
			Id: rapid.Uint32().Draw(rt, "id"), Epoch: number.Draw(rt, "epoch"), Head: number.Draw(rt, "head"), Recovered: rapid.Bool().Draw(rt, "recovered"),
			Missed: number.Draw(rt, "missed"),
		}
		a := Subscribed{Epoch: want.GetEpoch(), Head: want.GetHead(), Recovered: want.GetRecovered(), Missed: want.GetMissed()}
		for range rapid.IntRange(0, 4).Draw(rt, "positions") {
			p := &wirev1.Subscribed_TopicPosition{
				Topic: rapid.StringN(1, 200, 255).Draw(rt, "topic"), Epoch: number.Draw(rt, "epoch"), Head: number.Draw(rt, "head"),
				Recovered: rapid.Bool().Draw(rt, "recovered"), Missed: number.Draw(rt, "missed"),
			}
			want.Positions = append(want.Positions, p)
			a.AddPosition(p.GetTopic(), p.GetEpoch(), p.GetHead(), p.GetRecovered(), p.GetMissed())
		}
		if got := subscribedOf(t, a.Frame(want.GetId())); !proto.Equal(got, want) {
			rt.Fatalf("got %v\nwant %v", got, want)
		}
	})
}
