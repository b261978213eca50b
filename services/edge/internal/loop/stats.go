package loop

import (
	"net/netip"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/counters"
)

// Stats are a loop's counters as of the last 100 ms.
type Stats struct {
	counters.Stats
	Lag  Lag
	Held Held
	// Shedding says that the loop refuses newcomers; Sheds, how often it has begun to.
	Shedding bool
	Sheds    uint64

	Turns      uint64
	Accepts    uint64
	AcceptFull uint64 // times that no descriptor was left for a connection
	// times that connections were left to the kernel until the next tick, because as many came as
	// the edge takes in a second
	AcceptWaits uint64
	// ProxyHeaders counts headers of the PROXY protocol that were read.
	ProxyHeaders uint64
	// NoDescriptors says that the last try met that.
	NoDescriptors bool
	// AddressRefusals counts connections refused because of their address; LastRefused is the last
	// one's, and RefusedFor why.
	AddressRefusals uint64
	LastRefused     netip.Addr
	RefusedFor      wirev1.Code

	Reads     uint64
	ReadBytes uint64
	Deferred  uint64 // times that reading a connection was put off, because it had used its share
	// times that a connection was not read until the next tick, because it had sent more than it
	// may in a second
	Paced       uint64
	FrameMemory int64 // bytes kept of frames that have not come whole
	Writes      uint64
	WriteBytes  uint64
	StaleEvents uint64 // events for connections that were gone
	PollErrors  uint64
	Secure      int64  // connections with TLS held now, those that shake hands among them
	Records     uint64 // of TLS that were opened, and that were sealed
	Sealed      uint64
	webStats
	// MailboxRefused counts events that found the mailbox full.
	MailboxRefused uint64
	// SendMode is how the loop sends; "" before it was started.
	SendMode SendMode
}

// Stats may be called by anyone at any time.
func (l *Loop) Stats() Stats { return *l.snapshot.Load() }

// publishStats makes a copy that others may read, so that counting takes no atomic operation.
func (l *Loop) publishStats() {
	s := l.stats
	s.Stats = l.hub.Stats()
	l.gate.Holds(l.cfg.Index, s.Connections)
	s.FrameMemory = int64(l.peers.kept)
	s.MailboxRefused = l.box.Refused()
	if l.sender != nil {
		s.SendMode = l.sender.Mode()
	}
	l.snapshot.Store(&s)
}
