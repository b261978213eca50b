package text

import (
	"bytes"
	"math"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Every frame is written as protojson writes it, but for payloads, and is read again as it was.
func TestFramesAreThoseOfProtobufJSON(t *testing.T) {
	for _, f := range allFrames() {
		t.Run(f.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				m := newMessage(t, f)
				fill(rt, m.ProtoReflect())
				frame := native(rt, f, m)
				text, err := AppendFrame([]byte("before"), frame)
				if err != nil || !bytes.HasPrefix(text, []byte("before")) {
					rt.Fatal(err)
				}
				text = text[len("before"):]
				if got, want := jsonOf(rt, text), wanted(rt, f, m); !reflect.DeepEqual(got, want) {
					rt.Fatalf("got  %v\nwant %v", got, want)
				}
				again, err := Parse([]byte("before"), text)
				if err != nil {
					rt.Fatalf("%s: %v", text, err)
				}
				got := decoded(t, again[len("before"):])
				trimmed(m)
				if !proto.Equal(got, m) {
					rt.Fatalf("%s\ngot  %v\nwant %v", text, got, m)
				}
			})
		})
	}
}

// trimmed takes off the white space around a payload that is JSON: a value begins and ends without.
func trimmed(m proto.Message) {
	trim := func(b []byte) []byte {
		if isJSON(b) {
			return bytes.Trim(b, " \t\r\n")
		}
		return b
	}
	switch m := m.(type) {
	case *wirev1.Message:
		m.Payload = trim(m.GetPayload())
	case *wirev1.Publish:
		m.Payload = trim(m.GetPayload())
	}
}

// A message whose shared part and tail are made apart is the one that is made of the whole frame.
func TestMessageAndTailAreTheFrame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &wirev1.Message{}
		fill(rt, m.ProtoReflect())
		body, err := wire.Body(m)
		if err != nil {
			rt.Fatal(err)
		}
		shared := wire.AppendMessage(nil, m.GetTopic(), m.GetSeq(), body)
		score := m.GetScore()
		if score == 0 {
			score = 0 // not -0
		}
		whole := wire.AppendTail(bytes.Clone(shared), m.GetAttempt(), score, m.GetSubs())
		if m.GetUnranked() {
			whole = wire.AppendUnranked(whole)
		}
		wire.PutHeader(whole, len(whole)-wire.HeaderSize, wirev1.FrameType_FRAME_TYPE_MESSAGE)
		want, err := AppendFrame(nil, whole)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := AppendMessage(nil, shared[wire.HeaderSize:])
		if err != nil {
			rt.Fatal(err)
		}
		if got = AppendTail(got, m.GetAttempt(), score, m.GetUnranked(), m.GetSubs()); !bytes.Equal(got, want) {
			rt.Fatalf("got  %s\nwant %s", got, want)
		}
		if got, err = AppendMessage(nil, whole[wire.HeaderSize:]); err != nil || !bytes.HasPrefix(want, got) {
			rt.Fatalf("with a tail, the shared part is %s (%v)", got, err)
		}
	})
}

func TestPayloadsGoThroughUnchanged(t *testing.T) {
	for _, payload := range strange {
		frame, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "a", Payload: []byte(payload)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := AppendFrame(nil, frame)
		if err != nil {
			t.Fatal(err)
		}
		want := `{"message":{"topic":"a","payload":` + payload + `}}`
		switch {
		case payload == "":
			want = `{"message":{"topic":"a"}}`
		case !isJSON([]byte(payload)):
			want = `{"message":{"topic":"a","payloadBase64":` + string(appendBase64(nil, []byte(payload))) + `}}`
		}
		if string(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestNumbersThatJSONHasNotAreStrings(t *testing.T) {
	for v, want := range map[float64]string{math.Inf(1): `"Infinity"`, math.Inf(-1): `"-Infinity"`, 1e-9: "1e-9", 0.5: "0.5", 1e300: "1e+300"} {
		if got := string(AppendTail(nil, 0, v, false, nil)); got != `,"score":`+want+"}}" {
			t.Errorf("%v is %s", v, got)
		}
	}
	if got := string(AppendTail(nil, 2, math.NaN(), true, []uint32{1, 300})); got != `,"attempt":2,"score":"NaN","subs":[1,300],"unranked":true}}` {
		t.Error(got)
	}
	if got := string(AppendTail(nil, 0, 0, false, nil)); got != "}}" {
		t.Error(got)
	}
}

func TestWhatIsNoFrameIsNotWritten(t *testing.T) {
	hello, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for name, frame := range map[string][]byte{
		"nothing": nil, "a part of a header": hello[:3], "a part": hello[:len(hello)-1], "more": append(bytes.Clone(hello), 0),
		"no type": {0, 0, 0, 0}, "an unknown type": {0, 0, 0, 200}, "a tag that is cut off": {0, 0, 1, 1, 0x80}, "a value that is cut off": {0, 0, 2, 1, 0x12, 5},
		"a string that is not UTF-8": {0, 0, 3, 1, 0x12, 1, 0xff}, "a packed number that is cut off": {0, 0, 3, 7, 11<<3 | 2, 1, 0x80},
		"an entry that is cut off": {0, 0, 3, 7, 6<<3 | 2, 1, 0x80},
	} {
		if got, err := AppendFrame([]byte("x"), frame); err == nil || string(got) != "x" {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	for _, body := range [][]byte{{0x80}, {0x1a, 5}, {0x0a, 1, 0xff}} {
		if got, err := AppendMessage([]byte("x"), body); err == nil || string(got) != "x" {
			t.Errorf("%x is a Message: %s, %v", body, got, err)
		}
	}
}
