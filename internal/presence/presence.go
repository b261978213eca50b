// Package presence carries a set of members from processes that know parts of it (Reporter) to
// processes that follow it (Follower), over frames that may be lost, doubled or reordered. It has
// no I/O: frames and the time come in, frames and events go out. Its callers serialise the calls of
// each.
//
// A follower asks for reports by leases. A reporter answers each ask with a stream of its own:
// numbered without gaps, a snapshot in parts, and changes between and after them. When the follower
// finds that something is missing it asks again, and of the next snapshot it reports the difference
// alone. So each net change is reported once.
package presence

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

const (
	// LeaseFor is how long a reporter continues after the follower's last lease.
	LeaseFor = 3 * time.Second
	// RenewEvery is how often a follower renews its leases.
	RenewEvery = time.Second
	// SilentAfter is how long a follower waits for any report before it asks anew.
	SilentAfter = 3 * time.Second
	// lookEvery is how late the end of a lease may be noticed.
	lookEvery = 500 * time.Millisecond
	// askAgain is the least time between two asks.
	askAgain = 200 * time.Millisecond
)

const (
	// partSize is how many members one report carries at most, and partBytes how many bytes of
	// names and states, but for the last member.
	partSize  = 1000
	partBytes = 256 << 10
	// snapshotAhead is how many reports of a snapshot may be sent beyond those that the follower
	// has acknowledged.
	snapshotAhead = 16
	// ackEvery is after how many reports of a snapshot a follower acknowledges them.
	ackEvery = snapshotAhead / 2
)

// Member of a topic.
type Member = meshv1.PresenceMember

// Topics are those whose members are of interest.
type Topics struct {
	// Filter is a topic, or has wildcards.
	Filter string
	// Named says that it is a topic, and that its members are clients with a subscription that
	// names it: no wildcards, no backends. Otherwise every subscription that matches makes one.
	Named bool
}

// wild reports whether members have a topic of their own.
func (t Topics) wild() bool { return topic.IsFilter(t.Filter) }

// key of a member, unique within one incarnation of a reporter.
type key struct {
	connection uint64
	topic      string
}

func keyOf(m *Member) key { return key{m.GetConnectionId(), m.GetTopic()} }
