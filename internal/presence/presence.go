// Package presence carries a set of members from those who know parts of it (Reporter) to those who
// follow it (Follower), over frames that may be lost, doubled or overtaken. It has no I/O: frames
// and the time come in, frames and events go out. Its callers serialise each of the two.
//
// A follower asks for reports by leases. A reporter answers each ask with a stream of its own:
// numbered without holes, a snapshot in parts, changes between and behind them. What the follower
// finds to be missing makes it ask again, and of the next snapshot it tells the difference alone.
// So each net change is told once.
package presence

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

const (
	// LeaseFor is how long a reporter goes on without a word of the follower.
	LeaseFor = 3 * time.Second
	// RenewEvery is how often a follower says that it still follows.
	RenewEvery = time.Second
	// SilentAfter is how long a follower waits for any report before it asks anew.
	SilentAfter = 3 * time.Second
	// lookEvery is how late the end of a lease may be seen.
	lookEvery = 500 * time.Millisecond
	// askAgain is the least time between two asks.
	askAgain = 200 * time.Millisecond
)

const (
	// partSize is how many members one report carries at most: below 1 MiB with the longest names.
	partSize = 1000
	// window is how many reports a snapshot goes ahead of what the follower has.
	window = 16
	// ackEvery is how many reports of a snapshot make a follower say that it has them.
	ackEvery = window / 2
)

// Member of a topic.
type Member = meshv1.PresenceMember

// key of a member within one reporter's life.
type key struct {
	connection uint64
	topic      string
}

func keyOf(m *Member) key { return key{m.GetConnectionId(), m.GetTopic()} }
