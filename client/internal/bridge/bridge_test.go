package bridge

import (
	"bytes"
	"errors"
	"net"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// A frame goes through a router where the schema of its requests has a field of the frame's number,
// and no other does.
func TestWhatTravelsThroughARouter(t *testing.T) {
	fields := (&pushmeshv1.SubscribeRequest{}).ProtoReflect().Descriptor().Oneofs().ByName("request").Fields()
	for n := range wirev1.FrameType_name {
		if has := fields.ByNumber(protoreflect.FieldNumber(n)) != nil; travels(wirev1.FrameType(n)) != has {
			t.Errorf("%v travels: %v, there is a field for it: %v", wirev1.FrameType(n), travels(wirev1.FrameType(n)), has)
		}
	}
}

// Events of a router are frames of a connection, one for one; what is none is an error, and no
// frame.
func TestEventsAreFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		resp, want := &pushmeshv1.SubscribeResponse{}, []byte("before")
		for range rapid.IntRange(0, 5).Draw(t, "events") {
			size := rapid.SampledFrom([]int{0, 1, 100, 5000}).Draw(t, "size")
			m := &wirev1.Message{Topic: "a", Seq: 1, Payload: make([]byte, size)}
			p := &wirev1.Progress{Topic: "a", To: uint64(size)}
			var err error
			if rapid.Bool().Draw(t, "message") {
				resp.Events = append(resp.Events, &pushmeshv1.SubscribeEvent{Event: &pushmeshv1.SubscribeEvent_Message{Message: m}})
				want, err = wire.Append(want, wirev1.FrameType_FRAME_TYPE_MESSAGE, m)
			} else {
				resp.Events = append(resp.Events, &pushmeshv1.SubscribeEvent{Event: &pushmeshv1.SubscribeEvent_Progress{Progress: p}})
				want, err = wire.Append(want, wirev1.FrameType_FRAME_TYPE_PROGRESS, p)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		body, err := proto.Marshal(resp)
		if err != nil {
			t.Fatal(err)
		}
		got, err := appendFrames([]byte("before"), body)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v: %d bytes, want %d", err, len(got), len(want))
		}
		if len(body) > 0 {
			if _, err := appendFrames(nil, body[:len(body)-1]); err == nil {
				t.Fatal("a response that was cut off is taken")
			}
		}
	})
	bytesField := func(num protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), b)
	}
	number := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	for name, bad := range map[string][]byte{
		"no events": number, "an event that is none": bytesField(1, number), "a frame type beyond a byte": bytesField(1, bytesField(256, nil)),
		"a frame longer than any": bytesField(1, bytesField(1, make([]byte, wire.MaxBody+1))),
	} {
		if _, err := appendFrames(nil, bad); !errors.Is(err, errBadEvent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, good := range map[string][]byte{"the last frame type": bytesField(1, bytesField(255, nil)), "the longest frame": bytesField(1, bytesField(1, make([]byte, wire.MaxBody)))} {
		if _, err := appendFrames(nil, good); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever a response holds, it becomes whole frames or an error.
func FuzzAppendFrames(f *testing.F) {
	f.Add([]byte{10, 4, 0x3a, 2, 0x10, 1})
	f.Fuzz(func(t *testing.T, resp []byte) {
		if frames, err := appendFrames(nil, resp); err == nil && len(frames) > 2*len(resp)+4 {
			t.Errorf("%d bytes of %d", len(frames), len(resp))
		}
	})
}

// unwritten is a connection that nothing may be written to.
type unwritten struct {
	net.Conn
	t *testing.T
}

func (u unwritten) Write(p []byte) (int, error) {
	u.t.Errorf("wrote %x", p)
	return len(p), nil
}

// What wants no answer, and what is nonsense, gets none of the bridge to a router.
func TestTheBridgeAnswersWhatHasAnID(t *testing.T) {
	b := &bridge{pipe: unwritten{t: t}}
	otherField := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 5)
	otherType := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "x")
	for _, body := range [][]byte{nil, {0xff}, otherField, otherType} {
		b.refuse(wirev1.FrameType_FRAME_TYPE_PUBLISH, body)
	}
}
