package delivery

import (
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/unacked"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/gaps"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

type trackKind uint8

const (
	// kindPlain is shared by all subscriptions of a connection that began LIVE: one Message for
	// all, without subs.
	kindPlain trackKind = iota
	// kindSession is shared by all subscriptions of a connection's session: one cursor for each
	// topic.
	kindSession
	// kindOwn belongs to one subscription that names where it starts.
	kindOwn
)

// track is where a connection stands in one topic, for the subscriptions that share the delivery.
// It lies in the hub's slab: lists that may outlive it hold a trackRef. The order of its fields
// leaves no gaps: it is a part of what an idle connection takes.
type track struct {
	sendq.Stream        // what the send queue knows of it: the first field, see trackOf
	atTopic      uint32 // in topic.tracks
	atConn       uint32 // in c.tracks
	gen          uint32
	c            *conn
	topic        *topicState
	unacked      uint32
	window       uint16 // 0: only the connection's, which is greater
	overflow     uint8  // one of those below
	kind         trackKind
	ack          bool
	behind       bool
	reading      bool // waits for a range
	runs         bool // in replayer.runnable
	waits        bool // for a window or the queue
	held         bool // its subscription is not open yet
	// another subscription's answer says where it is: it stays there until that shares it
	told bool
	lags bool // in lagging.tracks

	// epoch and pos: everything up to pos was handed on or is part of a gap. epoch 0: nothing known
	// yet, the next message says.
	epoch, pos uint64

	first *sub // of the subscriptions that share it
	*trackMore
}

// Overflows, in as few bytes as they need.
const (
	overflowDefault    = uint8(wirev1.Overflow_OVERFLOW_DEFAULT)
	overflowDropOldest = uint8(wirev1.Overflow_OVERFLOW_DROP_OLDEST)
	overflowConflate   = uint8(wirev1.Overflow_OVERFLOW_CONFLATE)
	overflowDisconnect = uint8(wirev1.Overflow_OVERFLOW_DISCONNECT)
)

// trackMore is what few tracks have at a time. It is written through tracks.more alone: without
// any it is noTrackMore.
type trackMore struct {
	also []*sub // that share it, but for the first
	win  *unacked.Window

	gap gaps.Gap // that the client has not been told of

	asked uint64 // first seq of the range that is waited for
	// of the message that is read because the track stands still behind it; 0: none is
	first uint64
	// of a read that failed, or, with few, for a window that has little room; few and 0: it has
	// waited
	retryAt int64
	rng     *exchange.Range   // being handed on
	rngAt   int               //
	latest  *exchange.Message // CONFLATE: the newest, which waits
	cur     *cursor.Cursor    // of the session
	changed bool              // cur has something to be saved

	// An Ack through a seq settles messages up to ackTo; ackSerial names its entry.
	ackTo     uint64
	ackSerial uint32

	few bool
	// unnamed says that the client was not told the epoch yet, which a live message or a read
	// brought: it is, ahead of what comes first.
	unnamed bool

	rank *rankState // nil: it was never ranked
}

var noTrackMore = slab.None[trackMore]()

// tracks are what each connection is sent of each topic, on one loop.
type tracks struct {
	hub   *Hub
	slab  slab.Slab[track]
	mores slab.Pool[trackMore]
	found []*track // scratch
	// gens are given to subscriptions and tracks, so that what refers to one that is gone is seen.
	gens uint32
}

// more is the track's trackMore, to be written to.
func (p *tracks) more(t *track) *trackMore {
	if t.trackMore == noTrackMore {
		t.trackMore = p.mores.Take()
	}
	return t.trackMore
}

// less gives trackMore back where nothing is in it.
func (p *tracks) less(t *track) {
	m := t.trackMore
	if m != noTrackMore && m.also == nil && m.win == nil && !m.gap.IsOpen() && m.retryAt == 0 && !m.few && m.rng == nil && m.latest == nil && m.cur == nil && m.rank == nil && !m.changed && !m.unnamed && m.first == 0 && !t.held && !t.reading {
		p.mores.Give(m)
		t.trackMore = noTrackMore
	}
}

// trackRef finds a track, or nil once it is gone.
type trackRef struct {
	t   *track
	gen uint32
}

func (t *track) ref() trackRef { return trackRef{t, t.gen} }

func (r trackRef) get() *track {
	if r.t == nil || r.t.gen != r.gen {
		return nil
	}
	return r.t
}

// nextGen is never 0.
func (p *tracks) nextGen() uint32 {
	p.gens = max(p.gens+1, 1)
	return p.gens
}

// ids are the client's numbers of the subscriptions that are open.
func (t *track) ids(dst []uint32) []uint32 {
	if t.first.open {
		dst = append(dst, t.first.id)
	}
	for _, s := range t.also {
		if s.open {
			dst = append(dst, s.id)
		}
	}
	return dst
}

// open reports whether messages may go out: Subscribed was sent for one of its subscriptions.
func (t *track) open() bool {
	return t.first.open || slices.ContainsFunc(t.also, func(s *sub) bool { return s.open })
}

func (t *track) has(s *sub) bool { return t.first == s || slices.Contains(t.also, s) }

func (t *track) hasID(id uint32) bool {
	return t.first.id == id || slices.ContainsFunc(t.also, func(s *sub) bool { return s.id == id })
}

// combine works out what the subscriptions together ask for.
func (p *tracks) combine(t *track) {
	p.hub.addCost(len(t.also))
	t.ack, t.window, t.overflow = false, 0, t.first.overflow
	alike := true
	for i := -1; i < len(t.also); i++ {
		s := t.first
		if i >= 0 {
			s = t.also[i]
		}
		t.ack = t.ack || s.ack
		alike = alike && wantAlike(s, t.first)
		if s.window > 0 && (t.window == 0 || s.window < t.window) {
			t.window = s.window
		}
		if s.overflow != t.overflow {
			// They get one Message for all, so nothing may be left out that one of them wants.
			t.overflow = overflowDefault
		}
	}
	if t.overflow == overflowDefault {
		t.overflow = uint8(p.hub.topics.policy(t.topic).Overflow)
	}
	if t.overflow == overflowConflate && !alike {
		t.overflow = overflowDefault // the newest may be wanted by one of them alone
	}
	if t.overflow == overflowDropOldest && (t.ack || t.kind == kindSession) {
		t.overflow = overflowDefault
	}
	if !t.ack && t.win != nil {
		p.hub.windows.drop(t)
	}
	p.hub.ranked.setTopK(t)
}

// manyOf is how many subscriptions or tracks of a connection are looked through; more are indexed.
const manyOf = 16

// of are the connection's tracks at ts; dst is used for the answer where there are few.
func (p *tracks) of(c *conn, ts *topicState) []*track {
	if c.byTop != nil {
		all := c.byTop[ts]
		p.hub.addCost(len(all))
		return all
	}
	p.found = p.found[:0]
	for _, t := range c.tracks.All() {
		if t.topic == ts {
			p.found = append(p.found, t)
		}
	}
	return p.found
}

// sharedBy finds the track that s shares at ts.
func (p *tracks) sharedBy(s *sub, ts *topicState) *track {
	for _, t := range p.of(s.c, ts) {
		if t.kind == s.kind && (s.kind != kindOwn || t.first == s) {
			return t
		}
	}
	return nil
}

// add gives s a track at ts; it stands nowhere yet.
func (p *tracks) add(s *sub, ts *topicState) *track {
	c := s.c
	t := p.slab.Take()
	*t = track{
		c: c, topic: ts, kind: s.kind, first: s, atTopic: uint32(ts.tracks.Len()), atConn: uint32(c.tracks.Len()),
		gen: p.nextGen(), trackMore: noTrackMore,
	}
	p.combine(t)
	ts.tracks.Append(&p.hub.arrays, t)
	p.link(c, t)
	return t
}

func (p *tracks) link(c *conn, t *track) {
	c.displaced()
	c.tracks.Append(&p.hub.arrays, t)
	switch {
	case c.byTop != nil:
		c.byTop[t.topic] = append(c.byTop[t.topic], t)
	case c.tracks.Len() > manyOf:
		byTop := map[*topicState][]*track{}
		for _, t := range c.tracks.All() {
			byTop[t.topic] = append(byTop[t.topic], t)
		}
		p.hub.conns.more(c).byTop = byTop
	}
}

func (p *tracks) unlink(c *conn, t *track) {
	c.displaced()
	if moved := c.tracks.Take(&p.hub.arrays, int(t.atConn)); moved != nil {
		moved.atConn = t.atConn
	}
	if c.byTop == nil {
		return
	}
	if rest := slices.DeleteFunc(c.byTop[t.topic], func(o *track) bool { return o == t }); len(rest) > 0 {
		c.byTop[t.topic] = rest
	} else {
		delete(c.byTop, t.topic)
	}
	if c.tracks.Len() == 0 {
		p.hub.conns.more(c).byTop = nil
		p.hub.conns.less(c)
	}
}

// share makes s one of the track's subscriptions.
func (p *tracks) share(t *track, s *sub) {
	if !t.has(s) {
		more := p.more(t)
		more.also = append(more.also, s)
		p.combine(t)
	}
}

// unshare takes s away; false where nobody is left.
func (p *tracks) unshare(t *track, s *sub) bool {
	if t.first == s {
		if len(t.also) == 0 {
			return false
		}
		more := p.more(t)
		t.first, more.also = more.also[0], more.also[1:]
	} else if i := slices.Index(t.also, s); i >= 0 {
		p.more(t).also = slices.Delete(t.also, i, i+1)
	}
	if t.also != nil && len(t.also) == 0 {
		p.more(t).also = nil
		p.less(t)
	}
	p.combine(t)
	return true
}

// drop ends a track: nothing of it is sent any more.
func (p *tracks) drop(t *track) {
	c, ts := t.c, t.topic
	p.hub.purge(t, true)
	p.hub.replay.releaseRange(t)
	p.hub.windows.drop(t)
	p.hub.replay.notWaiting(t)
	p.unlink(c, t)
	p.leaveTopic(ts, t)
	p.hub.letGoTopic(ts)
	if t.trackMore != noTrackMore {
		p.mores.Give(t.trackMore)
	}
	*t = track{}
	p.slab.Free(t)
}

// leaveTopic takes t out of the topic's list. Where a fan-out is walking it, those it has not
// reached stay ahead of it.
func (p *tracks) leaveTopic(ts *topicState, t *track) {
	at := int(t.atTopic)
	if p.hub.fan.ts == ts && at < p.hub.fan.at {
		p.hub.fan.at--
		edge := ts.tracks.At(p.hub.fan.at)
		ts.tracks.Set(at, edge)
		edge.atTopic = uint32(at)
		at = p.hub.fan.at
	}
	if moved := ts.tracks.Take(&p.hub.arrays, at); moved != nil {
		moved.atTopic = uint32(at)
	}
}
