package link

import (
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// StartPings sends the first Ping at a random part of the heartbeat, so that thousands of
// connections opened together don't ping together, and then one every heartbeat.
func (c *Conn) StartPings() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.pinger = time.AfterFunc(time.Duration(rand.Int64N(int64(c.beat))), c.ping)
	}
}

func (c *Conn) ping() {
	// WIRE: an edge that is alive answers every Ping; 2.5 heartbeats without a byte and it is gone.
	// A reader that is held up by a handler doesn't wait for the socket and proves nothing.
	silent := 5 * c.beat / 2
	if since := time.Duration(c.waiting.Load()); since > 0 && c.clock.now()-since > silent || c.stuckFor() > silent {
		c.Close()
		return
	}
	// The next turn is set first: it is what notices that this one's write never ends.
	c.mu.Lock()
	if !c.closed {
		c.pinger.Reset(c.beat)
	}
	c.mu.Unlock()
	// A write that fails closes the connection; the reader reports it.
	_ = c.Send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: uint64(c.clock.now()), LastRttUs: c.unreported.Swap(0)})
}

// Pong takes the answer to a Ping.
func (c *Conn) Pong(body []byte) {
	var p wirev1.Pong
	if proto.Unmarshal(body, &p) != nil {
		return
	}
	rtt := c.clock.now() - time.Duration(p.GetSentAt())
	if rtt >= 0 && rtt < time.Hour {
		us := uint32(max(rtt.Microseconds(), 1))
		c.rtt.Store(us)
		c.unreported.Store(us)
	}
}

// RTT of the last Ping that was answered; 0: none was yet.
func (c *Conn) RTT() time.Duration { return time.Duration(c.rtt.Load()) * time.Microsecond }
