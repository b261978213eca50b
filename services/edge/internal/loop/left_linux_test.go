package loop

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// A client that waited for a loop that was held up, and left, may have its session elsewhere by
// now: that Hello must not take it away from there.
func TestAHelloWhoseClientLeftTakesNoSession(t *testing.T) {
	hello := &wirev1.Hello{Version: 1, ClientId: "ann", Session: "s"}
	l, _ := byHand(t, poll.ModeAuto)
	const clients = 10
	for range clients {
		c := dial(t, l)
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, hello)
		_ = c.Close()
	}
	turnUntil(t, l, "all are accepted", func() bool { return l.hub.Stats().Connections == clients })
	for slot := range l.peers.len() {
		fds := []unix.PollFd{{Fd: l.peers.get(slot).fd, Events: unix.POLLRDHUP}}
		for fds[0].Revents == 0 {
			if _, err := unix.Poll(fds, int(patience.Milliseconds())); err != nil && !errors.Is(err, unix.EINTR) {
				t.Fatal(err)
			}
		}
	}
	turnUntil(t, l, "all are closed", func() bool { return l.hub.Stats().Closes[wirev1.Code_CODE_HANDSHAKE_TIMEOUT] == clients })

	l, mesh := run(t, Limits{})
	mesh.Hold()
	c := dial(t, l)
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, hello)
	eventually(t, "Hello was read", func() bool { return l.Stats().Frames == 1 })
	_ = c.Close()
	eventually(t, "who waits for a session is heard to leave", func() bool { return l.Stats().Connections == 0 })
	mesh.Release()
}
