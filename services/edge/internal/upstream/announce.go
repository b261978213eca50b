package upstream

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
)

// announce tells routers of some of what changed, the oldest first: the table stays due while there
// is more. A lost announcement is found by the next digest, which repairs it.
func (m *Mesh) announce() {
	if a := m.table.Announce(); a != nil {
		m.publishTo(bus.EdgeAnnounce, a)
		m.stats.Announcements.Add(1)
	}
	m.passJoins()
}

// digest says what routers should hold: what was announced, though more may wait for that.
func (m *Mesh) digest() {
	d := m.table.Digest()
	d.Connections = uint32(m.cfg.Connections())
	d.SentAt = uint64(time.Now().UnixMicro())
	m.heartbeat.describe(d)
	if m.cfg.About != nil {
		m.cfg.About(d)
	}
	m.publishTo(bus.EdgeDigest, d)
}

func (m *Mesh) publishTo(subject string, msg proto.Message) {
	data, err := proto.Marshal(msg)
	if err != nil {
		m.stats.Unsent.Add(1)
		return
	}
	m.publishData(subject, data)
}

// publishData counts what could not be sent: without NATS nobody is told; the digests after its
// return repair that.
func (m *Mesh) publishData(subject string, data []byte) {
	if m.cfg.Bus.Publish(subject, data) != nil {
		m.stats.Unsent.Add(1)
	}
}
