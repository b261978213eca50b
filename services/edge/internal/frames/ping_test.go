package frames

import (
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A Ping says what the schema says, with fields that nobody knows yet among them, and its Pong
// brings the same time back.
func TestPingIsWhatTheSchemaSays(t *testing.T) {
	for _, want := range []*wirev1.Ping{{}, {SentAt: 7}, {LastRttUs: 300}, {SentAt: math.MaxUint64, LastRttUs: math.MaxUint32}} {
		body, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		body = append(body, 0x78, 1) // field 15
		at, rtt, ok := Ping(body)
		if !ok || at != want.GetSentAt() || rtt != want.GetLastRttUs() {
			t.Errorf("%v is %d, %d, %v", want, at, rtt, ok)
		}
		pong := &wirev1.Pong{}
		if b := AppendPong(nil, at); len(b) > MaxPong || proto.Unmarshal(b, pong) != nil || pong.GetSentAt() != at {
			t.Errorf("%d comes back as %v", at, pong)
		}
	}
	for _, body := range [][]byte{{9}, {9, 1, 2}, {16, 0x80}, {0x80}, {0x7a, 5, 1}} {
		if _, _, ok := Ping(body); ok {
			t.Errorf("%x is a Ping", body)
		}
	}
}
