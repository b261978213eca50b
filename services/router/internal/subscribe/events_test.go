package subscribe

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// impossible are frames that no stream can bring about: what a client can't ask for, and what would
// answer it.
var impossible = map[wirev1.FrameType]string{
	wirev1.FrameType_FRAME_TYPE_UNSPECIFIED:   "no frame",
	wirev1.FrameType_FRAME_TYPE_PUBLISH:       "backends publish with PublishService",
	wirev1.FrameType_FRAME_TYPE_PUBLISHED:     "the answer",
	wirev1.FrameType_FRAME_TYPE_CLAIM:         "not a subscriber's",
	wirev1.FrameType_FRAME_TYPE_CLAIM_STATE:   "the answer",
	wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN: "a backend has a ticket",
	wirev1.FrameType_FRAME_TYPE_REFRESHED:     "the answer",
	wirev1.FrameType_FRAME_TYPE_WATCH:         "backends watch with PresenceService",
	wirev1.FrameType_FRAME_TYPE_PRESENCE:      "the answer",
	wirev1.FrameType_FRAME_TYPE_STATE:         "a stream is nobody in a topic",
	wirev1.FrameType_FRAME_TYPE_STATED:        "the answer",
}

// Every frame of the protocol is a request or an event under its number and as its message, or
// impossible.
func TestEveryFrameIsTranslatedOrImpossible(t *testing.T) {
	requests := (&pushmeshv1.SubscribeRequest{}).ProtoReflect().Descriptor().Oneofs().ByName("request").Fields()
	events := (&pushmeshv1.SubscribeEvent{}).ProtoReflect().Descriptor().Oneofs().ByName("event").Fields()
	for number, name := range wirev1.FrameType_name {
		_, no := impossible[wirev1.FrameType(number)]
		found := 0
		for _, fields := range []protoreflect.FieldDescriptors{requests, events} {
			f := fields.ByNumber(protoreflect.FieldNumber(number))
			if f == nil {
				continue
			}
			found++
			if want := strings.ReplaceAll(strings.TrimPrefix(name, "FRAME_TYPE_"), "_", ""); !strings.EqualFold(string(f.Message().Name()), want) {
				t.Errorf("%s is a %s", name, f.Message().FullName())
			}
		}
		if found > 1 || no == (found == 1) {
			t.Errorf("%s: in %d of requests and events, impossible: %v", name, found, no)
		}
	}
	if n := requests.Len() + events.Len() + len(impossible); n != len(wirev1.FrameType_name) {
		t.Errorf("%d of %d frames", n, len(wirev1.FrameType_name))
	}
}

// The bytes of a frame become those of an event: whatever the edge says, the backend gets the same
// message.
func TestEventsAreTheFrames(t *testing.T) {
	fields := (&pushmeshv1.SubscribeEvent{}).ProtoReflect().Descriptor().Oneofs().ByName("event").Fields()
	rapid.Check(t, func(t *rapid.T) {
		var made events
		want := &pushmeshv1.SubscribeResponse{}
		for i := range rapid.IntRange(0, 5).Draw(t, "n") {
			f := fields.Get(rapid.IntRange(0, fields.Len()-1).Draw(t, fmt.Sprint("kind ", i)))
			m := dynamicpb.NewMessage(f.Message())
			fill(t, m)
			body, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			event := &pushmeshv1.SubscribeEvent{}
			if err := proto.Unmarshal(body, event.ProtoReflect().Mutable(f).Message().Interface()); err != nil {
				t.Fatal(err)
			}
			want.Events = append(want.Events, event)
			made.add(wirev1.FrameType(f.Number()), body)
		}
		got := &pushmeshv1.SubscribeResponse{}
		if err := proto.Unmarshal(made.buf, got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// fill sets the scalar fields of a message, and strings and bytes of any length.
func fill(t *rapid.T, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.IsList() || f.IsMap() {
			continue
		}
		switch f.Kind() {
		case protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(rapid.String().Draw(t, string(f.Name()))))
		case protoreflect.BytesKind:
			m.Set(f, protoreflect.ValueOfBytes(rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, string(f.Name()))))
		case protoreflect.Uint32Kind:
			m.Set(f, protoreflect.ValueOfUint32(rapid.Uint32().Draw(t, string(f.Name()))))
		case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
			m.Set(f, protoreflect.ValueOfUint64(rapid.Uint64().Draw(t, string(f.Name()))))
		case protoreflect.BoolKind:
			m.Set(f, protoreflect.ValueOfBool(rapid.Bool().Draw(t, string(f.Name()))))
		case protoreflect.EnumKind:
			m.Set(f, protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.Int32Range(0, 100).Draw(t, string(f.Name())))))
		}
	}
}
