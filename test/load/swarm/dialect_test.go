package swarm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

func frame(tb testing.TB, t wirev1.FrameType, m proto.Message) string {
	tb.Helper()
	b, err := wire.Append(nil, t, m)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

const size = 40

var payload = "@@TS" + strings.Repeat("x", size-4)

// said is what a server of each kind sends: an answer to hello, two messages, signs of life.
func said(tb testing.TB) map[string]struct {
	dialect Dialect
	text    string
	want    []Kind
} {
	tb.Helper()
	message := frame(tb, wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "t", Payload: []byte(payload)})
	redis := fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$%d\r\n%s\r\n", size, payload)
	nats := fmt.Sprintf("MSG t 1 %d\r\n%s\r\n", size, payload)
	mqtt := string(packet(0x30, append(text("t"), payload...)))
	return map[string]struct {
		dialect Dialect
		text    string
		want    []Kind
	}{
		"push": {
			&Push{Topics: func(int) []string { return []string{"t"} }},
			frame(tb, wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{Edge: "e"}) + frame(tb, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: 1}) +
				message + message + frame(tb, wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{}),
			[]Kind{Other, Ready, Message, Message, Alive},
		},
		"redis": {
			Redis("t", size), "*3\r\n$9\r\nsubscribe\r\n$1\r\nt\r\n:1\r\n" + redis + redis + "*2\r\n$4\r\npong\r\n$0\r\n\r\n",
			[]Kind{Other, Other, Other, Other, Other, Ready, Message, Message, Other, Other, Alive, Other, Other},
		},
		"nats":      {NATS("t", size), "INFO {}\r\nPONG\r\n" + nats + nats + "PING\r\n", []Kind{Other, Ready, Message, Message, Asked}},
		"mosquitto": {&MQTT{Topic: "t"}, "\x20\x02\x00\x00\x90\x03\x00\x01\x00" + mqtt + mqtt + "\xd0\x00", []Kind{Other, Ready, Message, Message, Alive}},
		"bare":      {&Bare{Size: size}, "s" + payload + payload, []Kind{Ready, Message, Message}},
	}
}

// A stream is cut into the same frames however it arrives.
func TestFramesOfEveryDialect(t *testing.T) {
	for name, c := range said(t) {
		for _, step := range []int{1, 7, len(c.text)} {
			var got []Kind
			have := ""
			for at := 0; at < len(c.text); at += step {
				have += c.text[at:min(len(c.text), at+step)]
				for have != "" {
					n, kind, err := c.dialect.Next([]byte(have))
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					if n == 0 {
						break
					}
					got = append(got, kind)
					have = have[n:]
				}
			}
			if !slices.Equal(got, c.want) || have != "" {
				t.Errorf("%s by %d: got %v and %q, want %v", name, step, got, have, c.want)
			}
		}
	}
}

func TestRefusalsAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		dialect Dialect
		text    string
	}{
		"push":      {&Push{}, frame(t, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Message: "no"})},
		"goaway":    {&Push{}, frame(t, wirev1.FrameType_FRAME_TYPE_GO_AWAY, &wirev1.GoAway{})},
		"redis":     {Redis("t", size), "-DENIED\r\n"},
		"nats":      {NATS("t", size), "-ERR 'no'\r\n"},
		"mosquitto": {&MQTT{}, "\x20\x02\x00\x05"},
		"bare":      {&Bare{Size: size}, "x"},
	} {
		if _, _, err := c.dialect.Next([]byte(c.text)); err == nil {
			t.Errorf("%s: %q was taken", name, c.text)
		}
	}
}

func FuzzNext(f *testing.F) {
	all := said(f)
	for _, c := range all {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, c := range all {
			for rest := b; len(rest) > 0; {
				n, _, err := c.dialect.Next(rest)
				if err != nil || n == 0 {
					break
				}
				if n < 0 || n > len(rest) {
					t.Fatalf("%s: a frame of %d bytes in %d", name, n, len(rest))
				}
				rest = rest[n:]
			}
		}
	})
}
