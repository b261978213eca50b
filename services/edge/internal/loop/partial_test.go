package loop

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// Over a real socket: a frame that drips in is closed, and so is a Hello.
func TestFramesThatDripInAreClosed(t *testing.T) {
	l, _ := run(t, Limits{HandshakeTimeout: 300 * time.Millisecond, FrameTimeout: 300 * time.Millisecond})
	hello := frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	for _, x := range []struct {
		name  string
		whole []byte
		torn  []byte
		want  wirev1.Code
	}{
		{"Hello", nil, hello[:len(hello)-1], wirev1.Code_CODE_HANDSHAKE_TIMEOUT},
		{"first byte", nil, hello[:1], wirev1.Code_CODE_HANDSHAKE_TIMEOUT},
		{"nothing", nil, nil, wirev1.Code_CODE_HANDSHAKE_TIMEOUT},
		{"frame", hello, []byte{0, 0, 9}, wirev1.Code_CODE_IDLE_TIMEOUT},
		{"body", hello, []byte{0, 0, 9, 10, 9}, wirev1.Code_CODE_IDLE_TIMEOUT},
	} {
		t.Run(x.name, func(t *testing.T) {
			before := l.Stats().Closes[x.want]
			c := dial(t, l)
			if x.whole != nil {
				c.write(append(x.whole, x.torn...))
				if ft, _, err := c.frame(); ft == wirev1.FrameType_FRAME_TYPE_ERROR || err != nil {
					return // the machine stood still for longer than Hello has
				}
			} else if x.torn != nil {
				c.write(x.torn)
			}
			if e, whole := c.refusal(); whole && e.GetCode() != x.want {
				t.Fatalf("got %v, want %v", e, x.want)
			}
			eventually(t, "counted", func() bool { return l.Stats().Closes[x.want] > before })
		})
	}
}

// However many connections begin frames, what is kept of these is bounded: who has sent much is
// closed, who has sent little is not.
func TestPartsOfFramesAreBounded(t *testing.T) {
	l, _ := byHand(t, poll.ModeWrite)
	const most, size = 160 << 10, 90 << 10
	l.cfg.FrameMemory = most
	all := subscribed(t, l, 3)
	part := make([]byte, wire.HeaderSize+size)
	wire.PutHeader(part, size+1, wirev1.FrameType_FRAME_TYPE_PUBLISH)
	send := func(c *client, b []byte) {
		frames, read := l.stats.Reads, l.stats.ReadBytes
		c.write(b)
		turnUntil(t, l, "it was read", func() bool { return l.stats.Reads > frames && l.stats.ReadBytes-read == uint64(len(b)) && !l.turn() })
	}
	send(all[0], part[:10])
	send(all[1], part)
	if l.peers.kept < size || l.hub.Stats().Connections != 3 {
		t.Fatalf("%d bytes are kept of %d connections", l.peers.kept, l.hub.Stats().Connections)
	}
	all[2].write(part)
	turnUntil(t, l, "the third is closed", func() bool { return l.hub.Stats().Closes[wirev1.Code_CODE_OVERLOADED] == 1 })
	if l.peers.kept > most+smallRest {
		t.Fatalf("%d bytes are kept", l.peers.kept)
	}
	for _, c := range all {
		_ = c.Close()
	}
	turnUntil(t, l, "all have gone", func() bool { return l.hub.Stats().Connections == 0 })
	if l.peers.kept != 0 || l.peers.rests.Taken() != 0 {
		t.Fatalf("%d bytes in %d rests are left", l.peers.kept, l.peers.rests.Taken())
	}
}
