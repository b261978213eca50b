//go:build linux

package loop

import (
	"bytes"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// A client that pings and reads nothing is closed, and its socket reset, on a real socket with
// either way of sending.
func TestAClientThatReadsNothingIsClosed(t *testing.T) {
	for _, send := range []SendMode{poll.ModeUring, poll.ModeWrite} {
		t.Run(string(send), func(t *testing.T) {
			l, mesh := runSending(t, Limits{QueueBytes: 64 << 10, StuckTimeout: 300 * time.Millisecond}, send)
			deaf := dial(t, l)
			deaf.hello(&wirev1.Hello{})
			deaf.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
			payload := string(bytes.Repeat([]byte("x"), 64<<10))
			eventually(t, "it is closed", func() bool {
				mesh.Send("room/1", payload)
				s := l.Stats()
				return s.StallCloses == 1 && s.Closes[wirev1.Code_CODE_SLOW_CONSUMER] == 1 && s.Connections == 0
			})
			if s := l.Stats(); s.KernelBytes != 0 || s.Stats.Stalled != 0 {
				t.Fatalf("its socket holds %d bytes", s.KernelBytes)
			}
		})
	}
}
