package python

import (
	"net"
	"sync/atomic"
	"testing"

	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/link"
)

// A laptop that was closed for an hour has connections of which neither end hears anything more.
// When it is opened its programs get everything that they missed, once and in order.
func TestALaptopThatWasClosedForAnHour(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	for _, how := range []string{"tcp", "websocket"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			var closed atomic.Bool
			l := link.New(t, m.EdgeAddr(), func(net.Addr) string {
				if closed.Load() {
					return "made since"
				}
				return "made before"
			})
			topic := "room/lid/" + how
			p := python(t, "lid.py", l.Addr(), topic, "100", "300", how)
			p.saysAll("joined")
			m.PublishBatch(t, topic, 100)
			p.saysAll("had 100")
			closed.Store(true)
			l.Set("made before", link.Fault{Up: true, Down: true})
			m.PublishBatch(t, topic, 200)
			p.tell("an hour")
			p.saysAll("wrong [] gaps [] connects 4")
			p.ends()
		})
	}
}
