package wireclient

import (
	"bufio"
	"net"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// A Subscribe that an edge can't serve for the moment is sent again when the edge said to, with
// everything that it asked for.
func TestARefusedSubscribeIsSentAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	asked := make(chan []*wirev1.Subscribe, 1)
	go func() { asked <- refuseOnce(l) }()
	want := &wirev1.Subscribe{Id: 7, Filter: "jobs/+", Group: "workers", Ack: true}
	if got := Dial(t, l.Addr().String()).Subscribe(want); got.GetId() != 7 {
		t.Errorf("subscribed: %v", got)
	}
	for _, got := range <-asked {
		if !proto.Equal(got, want) {
			t.Errorf("asked for %v, want %v", got, want)
		}
	}
}

// refuseOnce is an edge that refuses the first of two Subscribes; it returns both, or what it got.
func refuseOnce(l net.Listener) (asked []*wirev1.Subscribe) {
	conn, err := l.Accept()
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	for range 2 {
		_, body, err := wire.Read(r, nil, wire.MaxBody)
		s := &wirev1.Subscribe{}
		if err != nil || proto.Unmarshal(body, s) != nil {
			return asked
		}
		asked = append(asked, s)
		answer, m := wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, proto.Message(&wirev1.Subscribed{Id: s.GetId()})
		if len(asked) == 1 {
			answer, m = wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_UNAVAILABLE, Ref: s.GetId(), RetryAfterMs: 1}
		}
		b, err := wire.Append(nil, answer, m)
		if err == nil {
			_, err = conn.Write(b)
		}
		if err != nil {
			return asked
		}
	}
	return asked
}
