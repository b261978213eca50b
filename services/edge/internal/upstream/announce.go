package upstream

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
)

// announce tells routers what changed. A lost announcement is found by the next digest, which
// repairs it.
func (m *Mesh) announce() {
	for _, a := range m.table.Announce() {
		m.publishTo(bus.EdgeAnnounce, a)
		m.stats.Announcements.Add(1)
	}
	for _, w := range m.joins.takeUnannounced() {
		if m.table.Announced(w.Filter) == 0 { // everyone left before it was announced
			m.answer(w, nil, code.New(wirev1.Code_CODE_CANCELLED, "the subscription ended"))
			continue
		}
		m.admit(w)
	}
}

// digest says what routers should hold.
func (m *Mesh) digest() {
	m.announce() // a digest is compared with what was announced
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
