package shardlog

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const (
	// DefaultPositions is how many positions of ordered producers a lane remembers, of about 160
	// bytes and the topic's name each.
	DefaultPositions = 500_000
	// DefaultPositionWindow is how long a position is remembered after its last use however many
	// there are. What is sent again comes within seconds of the first time, but for an outage; and
	// while nothing is appended no position is forgotten. It is longer than sentSlack.
	DefaultPositionWindow = 5 * time.Minute
	// positionsKept is how long one is remembered where there is room.
	positionsKept = 8 * 24 * time.Hour
	// sentSlack is more than a message takes from its producer to the log after it was said how
	// long ago it was first sent: a process that stands still with one loses its connection after
	// 40 s (gRPC's keepalives), and there are two on the way.
	sentSlack = 2 * time.Minute
	// forgetMost positions are forgotten between two commits at most; a commit adds fewer.
	forgetMost = 2 * maxBatch
)

type producerKey struct {
	id    backend.ProducerID
	topic string
}

// position is the last number taken from an ordered producer in a topic.
type position struct {
	key          producerKey
	older, newer *position // in the order of use
	producerSeq  uint64
	epoch, seq   uint64
	at           uint64 // of the last use
	shard        int32
	dirty        bool
}

// positions of a lane, in the order of their last use, so that forgetting takes no search. What was
// forgotten is remembered by its shard as a time (shard.forgot): a number without a position that
// was first sent after it can't have been published.
type positions struct {
	most   int
	window uint64 // microseconds

	by             map[producerKey]*position
	of             map[backend.ProducerID]int // how many positions each producer has
	oldest, newest *position
	dirty          int
}

func newPositions(most int, window time.Duration) positions {
	return positions{most: most, window: micros(window), by: map[producerKey]*position{}, of: map[backend.ProducerID]int{}}
}

// moved takes a position that is not behind the one that is known.
func (ps *positions) moved(to position) {
	p := ps.by[to.key]
	switch {
	case p == nil:
		p = &position{key: to.key}
		ps.by[to.key] = p
		ps.of[to.key.id]++
	case p.epoch < to.epoch || p.producerSeq < to.producerSeq:
		ps.unlink(p)
	default:
		return
	}
	if p.dirty {
		ps.dirty--
	}
	to.key = p.key // one name for the map and for what it points to
	*p = to
	p.older, p.newer = ps.newest, nil
	ps.link(p)
	if p.dirty {
		ps.dirty++
	}
}

// link puts a position behind its older one.
func (ps *positions) link(p *position) {
	if p.older == nil {
		ps.oldest = p
	} else {
		p.older.newer = p
	}
	ps.newest = p
}

func (ps *positions) unlink(p *position) {
	if p.older == nil {
		ps.oldest = p.newer
	} else {
		p.older.newer = p.newer
	}
	if p.newer == nil {
		ps.newest = p.older
	} else {
		p.newer.older = p.older
	}
}

func (ps *positions) remove(p *position) {
	ps.unlink(p)
	delete(ps.by, p.key)
	if ps.of[p.key.id]--; ps.of[p.key.id] == 0 {
		delete(ps.of, p.key.id)
	}
	if p.dirty {
		ps.dirty--
	}
}

// merge takes positions of shards that had none here, in whatever order.
func (ps *positions) merge(loaded *positions) {
	all := make([]*position, 0, len(loaded.by)+len(ps.by))
	for p := loaded.oldest; p != nil; p = p.newer {
		all = append(all, p)
	}
	for p := ps.oldest; p != nil; p = p.newer {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *position) int { return cmp.Compare(a.at, b.at) })
	for key, p := range loaded.by {
		ps.by[key] = p
		ps.of[key.id]++
	}
	ps.dirty += loaded.dirty
	ps.oldest, ps.newest = nil, nil
	for _, p := range all {
		p.older, p.newer = ps.newest, nil
		ps.link(p)
	}
}

// drop lets go of positions of shards that are no longer owned.
func (ps *positions) drop(gone func(shard int) bool) {
	for p := ps.oldest; p != nil; {
		next := p.newer
		if gone(int(p.shard)) {
			ps.remove(p)
		}
		p = next
	}
}

// free is how many positions there is room for.
func (ps *positions) free() int { return ps.most - len(ps.by) }

// forget lets go of what was not used for positionsKept; and, where more than half of the room is
// taken, so many more included, of what was not used for the window: the longest unused first, and
// at most so many. So what is only remembered because there is room leaves half of it free, and
// takes nothing of a producer's share. Shards remember from when on nothing was forgotten.
func (s *state) forget(now uint64, room, most int) (unused, crowded int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ps := &s.positions
	for unused+crowded < most && ps.oldest != nil {
		p := ps.oldest
		p.at = min(p.at, now) // a clock that went back
		switch silent := now - p.at; {
		case silent >= micros(positionsKept):
			unused++
		case silent >= ps.window && len(ps.by)+room > ps.most/2:
			crowded++
		default:
			return unused, crowded
		}
		if sh := s.knownShard(int(p.shard)); sh != nil {
			sh.forgot, sh.dirty = max(sh.forgot, p.at+1), true
		}
		ps.remove(p)
	}
	return unused, crowded
}

// known reports whether the position of a number that was first sent so long ago, in milliseconds,
// would be here, had the number been published.
func (sh *shard) known(now, sentMsAgo uint64) bool {
	span := min(sentMsAgo, uint64(positionsKept.Milliseconds())*2)*1000 + micros(sentSlack)
	return sh.forgot == 0 || now-min(now, span) >= sh.forgot
}

// crowding is why a producer gets no new position.
type crowding int

const (
	roomy crowding = iota
	overShare
	overFull
)

// room reports whether a producer may have one more position, when so many of its own and of others
// are about to be added. A producer may have as many as are free: so each has a share, whoever
// comes, and nobody uses up what others need.
func (ps *positions) room(id backend.ProducerID, own, all int) crowding {
	switch free := ps.free() - all; {
	case free <= 0:
		return overFull
	case ps.of[id]+own >= free:
		return overShare
	}
	return roomy
}

// positionsRetry is when to come back for a position: they become free one after the other.
const positionsRetry = 250 * time.Millisecond

// refusal of a producer for which there is no room.
func (c crowding) refusal(ps *positions, id backend.ProducerID) error {
	window := time.Duration(ps.window) * time.Microsecond
	if c == overFull {
		return code.Retry(wirev1.Code_CODE_OVERLOADED, positionsRetry, fmt.Sprintf("the store remembers %d numbers of ordered producers, %d at most, used within %s: "+
			"keep a producer_id for all that a process publishes, or publish without producer_seq", len(ps.by), ps.most, window))
	}
	return code.Retry(wirev1.Code_CODE_RATE_LIMITED, positionsRetry, fmt.Sprintf("the store remembers numbers of this producer_id in %d topics, used within %s, and has room for %d: "+
		"publish to fewer topics in that time, or without producer_seq", ps.of[id], window, max(0, ps.free())))
}
