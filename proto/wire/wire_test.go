package wire

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestMessageFromParts(t *testing.T) {
	want := &wirev1.Message{
		Topic: "room/7/chat", Seq: 1 << 40, Payload: []byte("hi"), PublishedAt: 123456, Id: bytes.Repeat([]byte{9}, 16),
		Headers: map[string]string{"a": "b"}, Attempt: 3, Priority: 4, Traceparent: "00-x", Score: -1.5, Subs: []uint32{1, 300}, From: "ann",
	}
	body, err := Body(want)
	if err != nil {
		t.Fatal(err)
	}
	frame := AppendMessage(nil, want.GetTopic(), want.GetSeq(), body)
	frame = AppendTail(frame, want.GetAttempt(), want.GetScore(), want.GetSubs())
	PutHeader(frame, len(frame)-HeaderSize, wirev1.FrameType_FRAME_TYPE_MESSAGE)

	ft, got, err := Read(bytes.NewReader(frame), nil, MaxBody)
	if err != nil || ft != wirev1.FrameType_FRAME_TYPE_MESSAGE {
		t.Fatalf("Read: %v %v", ft, err)
	}
	var m wirev1.Message
	if err := proto.Unmarshal(got, &m); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&m, want) {
		t.Fatalf("got %v, want %v", &m, want)
	}
}

func TestReadRefusesLargeFrames(t *testing.T) {
	frame, err := Append(nil, wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Payload: make([]byte, 100)})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(bytes.NewReader(frame), nil, 50); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("got %v, want ErrTooLarge", err)
	}
}

func TestDetect(t *testing.T) {
	hello, _ := Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	for _, c := range []struct {
		in   []byte
		want Protocol
		more bool
	}{
		{nil, Unknown, true},
		{hello, Push, false},
		{hello[:3], Push, true},
		{[]byte{0, 0, 1, 3}, Unknown, false},
		{[]byte{0, 0x10, 1, 1}, Push, false}, // too large, and a Hello
		{[]byte("GET / HTTP/1.1"), WebSocket, false},
		{[]byte{0x10}, MQTT, false},
		{[]byte{0x16, 3, 1}, TLS, false},
		{[]byte("PROXY TCP4"), ProxyV1, false},
		{[]byte{0x0d, 0x0a}, ProxyV2, false},
		{[]byte("SSH-2.0"), Unknown, false},
	} {
		if got, more := Detect(c.in); got != c.want || more != c.more {
			t.Errorf("Detect(%q) = %v, %v, want %v, %v", c.in, got, more, c.want, c.more)
		}
	}
}

func FuzzRead(f *testing.F) {
	hello, _ := Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "c"})
	f.Add(hello)
	f.Add([]byte{0xff, 0xff, 0xff, 7})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		for {
			ft, body, err := Read(r, nil, DefaultMaxFrame)
			if err != nil {
				return
			}
			if len(body) > DefaultMaxFrame {
				t.Fatalf("frame %v of %d bytes", ft, len(body))
			}
		}
	})
}
