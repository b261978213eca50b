package replay

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// pingSlices spreads a heartbeat's pings over so many moments.
const pingSlices = 30

// ping keeps the heartbeats of all connections, so that none needs a timer, and closes those that
// stayed silent.
func (f *fleet) ping(ctx context.Context) {
	tick := time.NewTicker(heartbeat / pingSlices)
	defer tick.Stop()
	for slice := 0; ; slice++ {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			frame, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: uint64(now.UnixMicro())})
			if err != nil {
				return // a Ping has nothing that can't be encoded
			}
			for i := slice % pingSlices; i < len(f.subs); i += pingSlices {
				f.subs[i].ping(now, frame)
			}
		}
	}
}

func (s *subscriber) ping(now time.Time, frame []byte) {
	at := s.conn.Load()
	if at == nil {
		return
	}
	conn := *at
	if now.UnixNano()-s.heard.Load() > int64(heartbeat*5/2) {
		_ = conn.Close() // its reader finds out and reconnects
		return
	}
	_ = conn.SetWriteDeadline(now.Add(2 * heartbeat))
	_, _ = conn.Write(frame) // a broken connection shows in its reader
}
