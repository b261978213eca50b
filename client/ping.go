package pushmesh

import (
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// startPings sends the first Ping at a random part of the heartbeat, so that thousands of
// connections opened together don't ping together, and then one every heartbeat.
func (l *link) startPings() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.pinger = time.AfterFunc(time.Duration(rand.Int64N(int64(l.beat))), l.ping)
	}
}

func (l *link) ping() {
	// WIRE: an edge that is alive answers every Ping; 2.5 heartbeats without a byte and it is gone.
	// A reader that is held up by a handler doesn't wait for the socket and proves nothing.
	silent := 5 * l.beat / 2
	if since := time.Duration(l.waiting.Load()); since > 0 && time.Since(base)-since > silent || l.w.stuckFor() > silent {
		l.close()
		return
	}
	// The next turn is set first: it is what notices that this one's write never ends.
	l.mu.Lock()
	if !l.closed {
		l.pinger.Reset(l.beat)
	}
	l.mu.Unlock()
	// A write that fails closes the connection; the reader reports it.
	_ = l.w.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: uint64(time.Since(base)), LastRttUs: l.unreported.Swap(0)})
}

func (l *link) pong(body []byte) {
	var p wirev1.Pong
	if proto.Unmarshal(body, &p) != nil {
		return
	}
	rtt := time.Since(base) - time.Duration(p.GetSentAt())
	if rtt >= 0 && rtt < time.Hour {
		us := uint32(max(rtt.Microseconds(), 1))
		l.rtt.Store(us)
		l.unreported.Store(us)
	}
}
