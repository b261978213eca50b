package loop

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// Whole frames that the edge put off are no part of a frame: publishers of one address that keep to
// their windows are all served, and what waits stays within its memory.
func TestFramesThatWaitAreNoParts(t *testing.T) {
	for _, x := range []struct{ loops, conns int }{{32, 100}, {8, 300}} {
		t.Run(fmt.Sprintf("loops=%d", x.loops), func(t *testing.T) {
			l, _ := byHand(t, poll.ModeWrite)
			l.cfg.FrameMemory, l.cfg.Limits.MaxFrame = 256<<20/x.loops, 1<<20 // the defaults
			all := subscribed(t, l, x.conns)
			var window []byte
			for id := range uint32(64) {
				window = append(window, frameOf(t, wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: 10 + id, Topic: "up/1", Payload: bytes.Repeat([]byte{'x'}, 1000)})...)
			}
			frames := l.hub.Frames()
			var group sync.WaitGroup
			for _, c := range all {
				group.Go(func() { c.write(window) })
			}
			group.Wait()
			most := 0
			turnUntil(t, l, "all was taken", func() bool {
				most = max(most, l.peers.kept)
				return l.hub.Frames()-frames == uint64(64*x.conns) || l.hub.Stats().Closes[wirev1.Code_CODE_OVERLOADED] > 0
			})
			if n := l.hub.Stats().Closes[wirev1.Code_CODE_OVERLOADED]; n > 0 {
				t.Fatalf("%d of %d were closed", n, x.conns)
			}
			if bound := l.cfg.FrameMemory/addressParts + readSize + x.conns*smallRest; most > bound {
				t.Fatalf("%d bytes were kept, of %d", most, bound)
			}
		})
	}
}
