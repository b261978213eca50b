// Package counters is what one loop counts, and the gauges beside.
package counters

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/members"
	"github.com/pushmesh/pushmesh/services/edge/internal/permissions"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
)

// Stats are the plain counters of one loop, copied for whoever reads them.
type Stats struct {
	Connections   int64 // held now
	Subscriptions int64 // held now
	// with a subscription of their own, or durable and seen under a wildcard
	Topics      int64
	Unacked     int64 // messages in windows now
	KeptBytes   int64 // kept for connections beside their queues
	QueuedBytes int64 // in send queues now
	BudgetBytes int64 // of the budget, used now
	// of them, what the kernel holds for sockets that are stalled
	KernelBytes  int64
	Stalled      int64                  // connections whose socket is stalled now
	QueuesBySize [len(QueueSizes)]int64 // queues of at least so many bytes now
	// bytes of the largest queue, to an eighth; 0: none is large
	LargestQueue int64
	// of those, the ones that stand still behind a message that is never ACKed
	StandingNow int64
	// subscriptions that read on from the log, as of the last second or so
	BehindNow int64
	// messages between those and the heads of their topics, together
	Lag        int64
	LongestLag int64 // of one of them

	Deliveries   uint64 // Message frames that left for the kernel
	Redeliveries uint64 // of them, with attempt above 0 on this connection
	Frames       uint64 // frames read
	Behind       uint64 // times a subscription fell behind
	Resumed      uint64 // times one came level again
	StandStills  uint64 // messages read again because a session stood still behind them
	LogReads     uint64 // ranges asked for
	// crossings of a level of a queue that were not told, for their number
	HeldBack uint64
	// times that a queue was trimmed, because the budget was used up
	Trims       uint64
	Acks        uint64 // messages ACKed
	Nacks       uint64
	StaleAcks   uint64 // entries of a wrong epoch, or for nothing that was un-ACKed
	AckTimeouts uint64 // messages that left a window un-ACKed
	Released    uint64 // messages in windows whose bytes are not kept
	DeadLetters uint64
	// DeadLettersDelayed counts how often a message had to wait to become one.
	DeadLettersDelayed uint64
	StaleEvents        uint64 // events for connections that were gone
	// messages of groups that went back unsent, because their member's client did not read
	Recalled uint64

	linkhealth.Stats

	Rooms
	Users

	Unranked ByCode // messages that were to be ranked and were not, by why

	Drops   ByCode // messages that did not come, by why
	Closes  ByCode // connections; OK: the client ended it
	Refused ByCode // requests answered with an Error
}

// Rooms count what clients hold and watch beside subscriptions.
type Rooms struct {
	Claims claims.Stats
	// Members of topics, as clients watch them.
	Members members.Stats
}

// Users counts what users are let in with, and may do.
type Users struct {
	Principals  principals.Stats
	Permissions permissions.Stats
}

// QueueSizes are the sizes by which queues are counted: bytes at least, kernel memory of stalled
// sockets included.
var QueueSizes = [...]int{1, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

// Codes is the room of a counter by code.
const Codes = 64

// ByCode counts by wirev1.Code.
type ByCode [Codes]uint64

// Add counts n more of a code.
func (b *ByCode) Add(c wirev1.Code, n uint64) {
	if c >= 0 && c < Codes {
		b[c] += n
	}
}
