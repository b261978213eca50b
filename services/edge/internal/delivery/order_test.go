package delivery

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
)

// clientFrames are the frames that clients send.
var clientFrames = map[wirev1.FrameType]proto.Message{
	wirev1.FrameType_FRAME_TYPE_HELLO:         &wirev1.Hello{},
	wirev1.FrameType_FRAME_TYPE_SUBSCRIBE:     &wirev1.Subscribe{},
	wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE:   &wirev1.Unsubscribe{},
	wirev1.FrameType_FRAME_TYPE_ACK:           &wirev1.Ack{},
	wirev1.FrameType_FRAME_TYPE_NACK:          &wirev1.Nack{},
	wirev1.FrameType_FRAME_TYPE_PING:          &wirev1.Ping{},
	wirev1.FrameType_FRAME_TYPE_PUBLISH:       &wirev1.Publish{},
	wirev1.FrameType_FRAME_TYPE_CLAIM:         &wirev1.Claim{},
	wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN: &wirev1.RefreshToken{},
}

// exchanged is what a client is told that sends a frame with this body, and what the connection and
// the mesh have of it.
func exchanged(t tester, ft wirev1.FrameType, body []byte) string {
	w := newWorld(t, Limits{WildcardTopics: 3})
	w.mesh.Append("open/a", "1", "2", "3")
	c := w.dial()
	if ft != wirev1.FrameType_FRAME_TYPE_HELLO {
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "c1", Session: "s"})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/a", Ack: true, Start: wirev1.Start_START_EARLIEST})
	}
	frame := make([]byte, wire.HeaderSize, wire.HeaderSize+len(body))
	wire.PutHeader(frame, len(body), ft)
	c.bytes(append(frame, body...))
	s := w.h.Stats()
	return fmt.Sprint(c.texts(), c.ended, " un-ACKed ", s.Unacked, " refused ", s.Refused, " published ", len(w.mesh.Published))
}

// field of a frame, encoded.
func field(num protowire.Number, v any) []byte {
	switch v := v.(type) {
	case int:
		return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), uint64(v))
	case uint64:
		return protowire.AppendFixed64(protowire.AppendTag(nil, num, protowire.Fixed64Type), v)
	case string:
		return protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), v)
	}
	panic("no such field")
}

func times(n int, b []byte) (out [][]byte) {
	for range n {
		out = append(out, b)
	}
	return out
}

// Protobuf has fields come in any order: the id of a request may stand behind what there is too
// much of.
func TestRequestsWithTooMuchAreAnsweredWhereverTheirIDStands(t *testing.T) {
	header := string(append(field(1, "k"), field(2, "v")...))
	position := string(field(1, "open/a"))
	for _, c := range []struct {
		ft     wirev1.FrameType
		fields [][]byte
		want   string
	}{
		{wirev1.FrameType_FRAME_TYPE_PUBLISH, append(times(request.MaxHeaders+1, field(4, header)), field(2, "open/a"), field(1, 7)), "Error INVALID_ARGUMENT ref=7"},
		{wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, append(times(4, field(11, position)), field(2, "open/+"), field(1, 7)), "Error TOO_MANY_TOPICS ref=7"},
		{wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, append(times(4, field(11, position)), field(2, "open/+")), "Error INVALID_ARGUMENT ref=0"},
		// 0 of 32 bits
		{wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, append(times(4, field(11, position)), field(1, 1<<32)), "Error INVALID_ARGUMENT ref=0"},
	} {
		w := newWorld(t, Limits{WildcardTopics: 3})
		cl := w.connect(&wirev1.Hello{})
		body := slices.Concat(c.fields...)
		frame := make([]byte, wire.HeaderSize, wire.HeaderSize+len(body))
		wire.PutHeader(frame, len(body), c.ft)
		cl.bytes(append(frame, body...))
		cl.expect(c.want)
	}
}

// Whatever a frame holds, valid or not: its fields in any other order get the same answer, and have
// the same effect.
func TestFieldsComeInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		types := make([]wirev1.FrameType, 0, len(clientFrames))
		for ft := range clientFrames {
			types = append(types, ft)
		}
		slices.Sort(types)
		ft := rapid.SampledFrom(types).Draw(t, "frame")
		fields := drawFields(t, ft)
		// Fields of one number keep their order among themselves: protobuf gives that a meaning.
		other := slices.Clone(fields)
		order := rapid.Permutation(numbers(fields)).Draw(t, "order")
		slices.SortStableFunc(other, func(a, b []byte) int {
			return slices.Index(order, number(a)) - slices.Index(order, number(b))
		})
		// what is malformed can only be the last
		tail := rapid.SampledFrom([][]byte{nil, nil, nil, {0xff}, {1 << 3}, {4<<3 | 2, 9}}).Draw(t, "tail")
		one, two := slices.Concat(append(fields, tail)...), slices.Concat(append(other, tail)...)
		if a, b := exchanged(t, ft, one), exchanged(t, ft, two); a != b {
			t.Fatalf("%v %x: %s\nin another order, %x: %s", ft, one, a, two, b)
		}
	})
}

func number(f []byte) protowire.Number {
	num, _, _ := protowire.ConsumeTag(f)
	return num
}

func numbers(fields [][]byte) (out []protowire.Number) {
	for _, f := range fields {
		if !slices.Contains(out, number(f)) {
			out = append(out, number(f))
		}
	}
	return out
}

// drawFields draws fields of a frame, of any wire type, and such as nobody knows.
func drawFields(t *rapid.T, ft wirev1.FrameType) (fields [][]byte) {
	texts := []string{
		"", "open/a", "open/+", "room/1", "c1", "s", "\xff", "$x",
		string(field(1, "open/a")), string(append(field(2, 1), field(1, "open/a")...)), string(append(field(1, "k"), field(2, "v")...)),
	}
	known := clientFrames[ft].ProtoReflect().Descriptor().Fields()
	for i := range known.Len() {
		fd := known.Get(i)
		n := rapid.SampledFrom([]int{0, 1, 1, 1, 1, 1, 2}).Draw(t, "times")
		if fd.IsList() || fd.IsMap() {
			n = rapid.SampledFrom([]int{0, 1, 4, request.MaxHeaders + 1}).Draw(t, "many times")
		}
		if fd.Number() == 1 && ft == wirev1.FrameType_FRAME_TYPE_HELLO {
			// else it is nothing but UNSUPPORTED
			fields = append(fields, field(1, 1))
			continue
		}
		if n > 4 { // the same again
			fields = append(fields, times(n, drawField(t, fd, texts))...)
			continue
		}
		for range n {
			fields = append(fields, drawField(t, fd, texts))
		}
	}
	if rapid.Bool().Draw(t, "unknown") {
		fields = append(fields, field(99, "open/a"), field(98, 1))
	}
	return fields
}

// drawField draws a field, mostly of the wire type that it should have.
func drawField(t *rapid.T, fd protoreflect.FieldDescriptor, texts []string) []byte {
	kind := fd.Kind()
	if rapid.IntRange(0, 7).Draw(t, "other type") == 0 {
		kind = rapid.SampledFrom([]protoreflect.Kind{protoreflect.Uint32Kind, protoreflect.Fixed64Kind, protoreflect.StringKind}).Draw(t, "type")
	}
	switch kind {
	case protoreflect.Fixed64Kind:
		return field(fd.Number(), rapid.SampledFrom([]uint64{0, 1, 1000}).Draw(t, "fixed"))
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind, protoreflect.FloatKind:
		return field(fd.Number(), rapid.SampledFrom(texts).Draw(t, "text"))
	}
	return field(fd.Number(), rapid.SampledFrom([]int{0, 1, 2, 3, 7, 65_536}).Draw(t, "number"))
}

// A Hello that is too large is told so: it is this protocol's, and the client can mend it.
func TestHelloThatIsTooLarge(t *testing.T) {
	for _, c := range []struct {
		head []byte
		want string
	}{
		{[]byte{0, 0x30, 0x01, 0x01}, "Error FRAME_TOO_LARGE ref=0"},
		{[]byte{0, 0xff, 0xff, 0x01}, "Error FRAME_TOO_LARGE ref=0"},
		{[]byte{0, 0x30, 0x01, 0x03}, "Error BAD_FRAME ref=0"}, // no Hello
		{[]byte{1, 0x00, 0x00, 0x01}, "Error BAD_FRAME ref=0"}, // not this protocol
		{[]byte{0, 0x00, 0x00, 0x0a}, "Error BAD_FRAME ref=0"}, // a Ping
		{[]byte{0, 0x30, 0x00, 0x01}, ""},                      // 12,288 bytes
	} {
		cl := newWorld(t, Limits{}).dial()
		cl.bytes(c.head)
		if c.want == "" {
			cl.expect()
			continue
		}
		cl.expect(c.want)
		if !cl.ended {
			t.Errorf("%x: the connection goes on", c.head)
		}
	}
}
