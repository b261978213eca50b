// Package assignment decides for one shared subscription which member gets which message. It has no
// clock, goroutine or I/O: members, live messages, ranges of the log, ACKs and time are put in;
// assignments, reads and positions to store come out.
//
// A message is queued once, with one member at a time, and queued again until it is settled: ACKed,
// or made a dead letter. Messages of a durable topic are queued in the order of its log; what the
// queue has no room for is read from the log later.
package assignment

import (
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// MemberID names a member in the whole mesh.
type MemberID struct {
	Edge string
	ID   uint64
}

// Config of a Core.
type Config struct {
	// User and Session under which the group's positions and dead letters are stored.
	User, Session string
	// Key is "" (message by message), KeyTopic, or KeyHeader and a header's name.
	Key string
	// MaxAttempts of a topic's messages before they are dead letters. The last of them is one of
	// which a member gave word: it refused the message, let it time out, or its connection ended.
	MaxAttempts func(topic string) uint32
	// Topics is the most that the group may have; 0: 1,000.
	Topics int
	// QueueMessages (1,024) and QueueBytes (4 MiB) bound what waits for a member.
	QueueMessages, QueueBytes int
	// Full reports whether all groups together keep so much that nothing more is to be queued than
	// one message; nil: never.
	Full func() bool
}

// Core of one group. It is not safe for concurrent use.
type Core struct {
	cfg  Config
	keys Keys

	now    int64  // nanoseconds, monotonic
	wall   uint64 // Unix time in microseconds
	paused bool
	begun  bool
	// nothing is assigned before: members that know the dispatcher before say what they have
	begins int64

	unclean bool                             // as Begin said
	resumed bool                             // as Begin said
	stored  map[string]*meshv1.SessionCursor // of topics that were not found yet

	places  map[string]*place
	exact   string   // the filter, where it is one topic
	behind  []*place // wait to read on
	members map[MemberID]*member
	idle    memberHeap     // with room, the least loaded first
	gen     uint64         // of the set of members
	edges   map[string]int // members, by edge
	turns   uint64

	lanes   map[string]*lane
	todo    []*lane // may have something to assign
	delayed taskHeap
	order   uint64 // of arrival
	queued  int    // tasks that no member has
	bytes   int    // of them
	tasks   int    // all
	kept    int    // bytes of them
	starved bool   // Full has kept something out since Starved was called
	held    map[key]holder

	changed []*place
	letters []*meshv1.DeadLetter
	out     Output
	stats   Stats
}

// key of a message.
type key struct {
	topic      string
	epoch, seq uint64
}

// holder has a message that was not read yet since the dispatcher began.
type holder struct {
	m       *member
	attempt uint32
	lane    *lane
}

// Stats of a core.
type Stats struct {
	Assigned, Redelivered, DeadLetters uint64
	// Missed messages that retention took before any member had them.
	Missed uint64
	// Dropped ephemeral messages: EXPIRED or NO_SUBSCRIBER.
	Expired, NoMember uint64
}

// Assignment is a message for a member.
type Assignment struct {
	Member  MemberID
	Message *exchange.Message
	Attempt uint32
}

// Read asks for a topic's log from a seq on; answered with Range.
type Read struct {
	Topic string
	Epoch uint64
	From  uint64
}

// Output since the last Take.
type Output struct {
	Assigned []Assignment
	Reads    []Read
	// Over is not OK once the group can't go on: TOO_MANY_TOPICS.
	Over wirev1.Code
}

// New makes a core without members that stands nowhere yet.
func New(cfg Config) *Core {
	if cfg.Topics == 0 {
		cfg.Topics = 1000
	}
	if cfg.QueueMessages == 0 {
		cfg.QueueMessages = 1024
	}
	if cfg.QueueBytes == 0 {
		cfg.QueueBytes = 4 << 20
	}
	return &Core{
		cfg: cfg, keys: KeysOf(cfg.Key), places: map[string]*place{}, members: map[MemberID]*member{},
		// 0 is none
		edges: map[string]int{}, lanes: map[string]*lane{}, held: map[key]holder{}, turns: 1,
	}
}

// Advance tells the time: monotonic nanoseconds since any point, and Unix microseconds. What is due
// happens.
func (c *Core) Advance(now int64, wall uint64) {
	c.now, c.wall = now, wall
	for len(c.delayed) > 0 && c.delayed[0].due <= now {
		c.ready(c.delayed.take(0))
	}
}

// Next is when Advance has something to do; 0: nothing is due.
func (c *Core) Next() int64 {
	next := int64(0)
	if c.begins > c.now {
		next = c.begins
	}
	if len(c.delayed) > 0 && (next == 0 || c.delayed[0].due < next) {
		next = c.delayed[0].due
	}
	for _, p := range c.behind {
		if p.retryAt > c.now && (next == 0 || p.retryAt < next) {
			next = p.retryAt
		}
	}
	return next
}

// Pause has nothing assigned until it is called with false.
func (c *Core) Pause(paused bool) { c.paused = paused }

// Take returns what came out since it was called last; its slices are the caller's.
func (c *Core) Take() Output {
	c.assign()
	c.read()
	out := c.out
	c.out = Output{Over: out.Over}
	return out
}

// Stats so far.
func (c *Core) Stats() Stats { return c.stats }

// Members now.
func (c *Core) Members() int { return len(c.members) }

// MemberIDs of the members, in any order.
func (c *Core) MemberIDs() []MemberID {
	out := make([]MemberID, 0, len(c.members))
	for id := range c.members {
		out = append(out, id)
	}
	return out
}

// Waiting messages that no member has.
func (c *Core) Waiting() int { return c.queued }

// Bytes that each thing takes that is kept, about, without what it points to.
const (
	coreBytes   = 1536
	placeBytes  = 512
	memberBytes = 256
	laneBytes   = 192
	heldBytes   = 128
	taskBytes   = 256
)

// Memory is how many bytes the core keeps, about.
func (c *Core) Memory() int {
	return coreBytes + len(c.places)*placeBytes + len(c.members)*memberBytes + len(c.lanes)*laneBytes + len(c.held)*heldBytes + c.kept
}

// MemoryOf is how many bytes so many topics take, about.
func MemoryOf(topics int) int { return topics * placeBytes }

// Starved reports whether Full has kept something out since it was called last. Take lets it in
// once Full allows that.
func (c *Core) Starved() bool {
	was := c.starved
	c.starved = false
	return was
}

// full reports whether something is to be kept out. One message goes on, so that no group waits for
// others alone.
func (c *Core) full() bool {
	if c.cfg.Full == nil || c.tasks == 0 || !c.cfg.Full() {
		return false
	}
	c.starved = true
	return true
}

// Changed reports whether there is something to be stored.
func (c *Core) Changed() bool { return len(c.changed)+len(c.letters) > 0 }

// Save is what came since it was called last, to be stored by one write: a dead letter's message is
// settled in its topic's position. The positions are those that changed; with all, every one that
// has something un-ACKed too.
func (c *Core) Save(all bool) ([]*meshv1.SessionCursor, []*meshv1.DeadLetter) {
	if all {
		for _, p := range c.places {
			if len(p.tasks) > 0 {
				c.mark(p)
			}
		}
		for k, h := range c.held {
			if p := c.places[k.topic]; p != nil {
				p.cur.Attempted(k.seq, h.attempt+1)
				c.mark(p)
			}
		}
	}
	var out []*meshv1.SessionCursor
	for _, p := range c.changed {
		p.changed = false
		out = append(out, p.encode())
	}
	letters := c.letters
	c.changed, c.letters = nil, nil
	return out, letters
}

// Clean reports whether the positions tell all that the next dispatcher must know. Without it, what
// one before may have delivered was not looked at yet.
func (c *Core) Clean() bool {
	for _, p := range c.places {
		if p.pos < p.suspect {
			return false
		}
	}
	return c.begun
}

func (c *Core) mark(p *place) {
	if !p.changed && p.epoch != 0 {
		p.changed = true
		c.changed = append(c.changed, p)
	}
}

// letter makes a message a dead letter, which settles it.
func (c *Core) letter(p *place, m *exchange.Message, attempts uint32, why wirev1.Code) {
	c.stats.DeadLetters++
	c.letters = append(c.letters, &meshv1.DeadLetter{
		Topic: m.Topic, Epoch: m.Epoch, Seq: m.Seq, Body: slices.Clone(m.Body()), Reason: why, Attempts: attempts, User: c.cfg.User, Session: c.cfg.Session, At: c.wall,
	})
	p.cur.Settle(m.Seq, m.Seq)
	c.mark(p)
}

// Head of a topic as far as is known; 0 and 0 where it has no log.
func (c *Core) Head(topic string) (epoch, head uint64) {
	if p := c.places[topic]; p != nil {
		return p.epoch, p.head
	}
	return 0, 0
}

// HasEdge reports whether an edge has members.
func (c *Core) HasEdge(edge string) bool {
	return c.edges[edge] > 0
}

// Edges that have members.
func (c *Core) Edges() []string {
	out := make([]string, 0, len(c.edges))
	for edge := range c.edges {
		out = append(out, edge)
	}
	return out
}
