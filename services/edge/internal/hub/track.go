package hub

import (
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

type trackKind uint8

const (
	// kindPlain is shared by all subscriptions of a connection that began LIVE: one Message for all, without subs.
	kindPlain trackKind = iota
	// kindSession is shared by all subscriptions of a connection's session: one cursor for each topic.
	kindSession
	// kindOwn belongs to one subscription that names where it starts.
	kindOwn
)

// track is where a connection stands in one topic, for the subscriptions that share the delivery.
type track struct {
	c        *conn
	topic    *topicState
	atTopic  uint32 // in topic.tracks
	atConn   uint32 // in c.tracks
	kind     trackKind
	overflow wirev1.Overflow
	holeCode wirev1.Code
	ack      bool
	behind   bool
	reading  bool // waits for a range
	runs     bool // in hub.runnable
	waits    bool // for a window or the queue
	gone     bool
	held     bool // its subscription is not open yet
	changed  bool // its cursor has something to be saved

	// epoch and pos: everything up to pos was handed on or named as a hole. epoch 0: nothing known yet, the next message says.
	epoch, pos uint64
	window     uint32 // 0: only the connection's
	unacked    uint32
	queued     uint32 // messages in the queue

	first *sub   // of the subscriptions that share it
	also  []*sub // the others
	win   *window

	// A hole that the client has not been told of: before the next Message, or at holeDue.
	holeFrom, holeTo uint64
	holeDue          int64

	asked   uint64            // first seq of the range that is waited for
	retryAt int64             // of a read that failed
	rng     *exchange.Range   // being handed on
	rngAt   int               //
	latest  *exchange.Message // CONFLATE: the newest, which waits
	cur     *cursor.Cursor    // of the session
}

// holeDelay is how long a hole may go unnamed on a quiet topic.
const holeDelay = 10 * time.Second

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

// open says whether messages may go out: Subscribed was sent for one of its subscriptions.
func (t *track) open() bool {
	return t.first.open || slices.ContainsFunc(t.also, func(s *sub) bool { return s.open })
}

func (t *track) has(s *sub) bool { return t.first == s || slices.Contains(t.also, s) }

func (t *track) hasID(id uint32) bool {
	return t.first.id == id || slices.ContainsFunc(t.also, func(s *sub) bool { return s.id == id })
}

// settle works out what the subscriptions together ask for.
func (h *Hub) settle(t *track) {
	t.ack, t.window, t.overflow = false, 0, t.first.overflow
	for i := -1; i < len(t.also); i++ {
		s := t.first
		if i >= 0 {
			s = t.also[i]
		}
		t.ack = t.ack || s.ack
		if s.window > 0 && (t.window == 0 || s.window < t.window) {
			t.window = s.window
		}
		if s.overflow != t.overflow {
			// They get one Message for all, so nothing may be left out that one of them wants.
			t.overflow = wirev1.Overflow_OVERFLOW_DEFAULT
		}
	}
	if t.overflow == wirev1.Overflow_OVERFLOW_DEFAULT {
		t.overflow = h.policy(t.topic).Overflow
	}
	if t.overflow == wirev1.Overflow_OVERFLOW_DROP_OLDEST && (t.ack || t.kind == kindSession) {
		t.overflow = wirev1.Overflow_OVERFLOW_DEFAULT
	}
	if !t.ack && t.win != nil {
		h.dropWindow(t)
	}
}

const manyTracks = 16

// tracksOf are the connection's tracks at ts; dst is used for the answer where there are few.
func (h *Hub) tracksOf(c *conn, ts *topicState) []*track {
	if c.byTop != nil {
		return c.byTop[ts]
	}
	h.found = h.found[:0]
	for _, t := range c.tracks {
		if t.topic == ts {
			h.found = append(h.found, t)
		}
	}
	return h.found
}

// trackFor finds the track that s shares at ts.
func (h *Hub) trackFor(s *sub, ts *topicState) *track {
	for _, t := range h.tracksOf(s.c, ts) {
		if t.kind == s.kind && (s.kind != kindOwn || t.first == s) {
			return t
		}
	}
	return nil
}

// addTrack gives s a track at ts; it stands nowhere yet.
func (h *Hub) addTrack(s *sub, ts *topicState) *track {
	c := s.c
	t := &track{c: c, topic: ts, kind: s.kind, first: s, atTopic: uint32(len(ts.tracks)), atConn: uint32(len(c.tracks))}
	h.settle(t)
	ts.tracks = append(ts.tracks, t)
	c.tracks = append(c.tracks, t)
	switch {
	case c.byTop != nil:
		c.byTop[ts] = append(c.byTop[ts], t)
	case len(c.tracks) > manyTracks:
		c.byTop = map[*topicState][]*track{}
		for _, t := range c.tracks {
			c.byTop[t.topic] = append(c.byTop[t.topic], t)
		}
	}
	return t
}

// share makes s one of the track's subscriptions.
func (h *Hub) share(t *track, s *sub) {
	if !t.has(s) {
		t.also = append(t.also, s)
		h.settle(t)
	}
}

// unshare takes s away; false where nobody is left.
func (h *Hub) unshare(t *track, s *sub) bool {
	if t.first == s {
		if len(t.also) == 0 {
			return false
		}
		t.first, t.also = t.also[0], t.also[1:]
	} else if i := slices.Index(t.also, s); i >= 0 {
		t.also = slices.Delete(t.also, i, i+1)
	}
	h.settle(t)
	return true
}

// dropTrack ends a track: nothing of it is sent any more.
func (h *Hub) dropTrack(t *track) {
	c, ts := t.c, t.topic
	t.gone = true
	h.purge(t, true)
	h.releaseRange(t)
	h.dropWindow(t)
	h.notWaiting(t)
	last := c.tracks[len(c.tracks)-1]
	c.tracks[t.atConn], last.atConn = last, t.atConn
	c.tracks[len(c.tracks)-1] = nil
	c.tracks = c.tracks[:len(c.tracks)-1]
	if c.byTop != nil {
		if rest := slices.DeleteFunc(c.byTop[ts], func(o *track) bool { return o == t }); len(rest) > 0 {
			c.byTop[ts] = rest
		} else {
			delete(c.byTop, ts)
		}
	}
	h.unlinkTrack(ts, t)
	h.letGoTopic(ts)
}

// unlinkTrack takes t out of the topic's list. Where a fan-out is walking it, those it has not reached stay ahead of it.
func (h *Hub) unlinkTrack(ts *topicState, t *track) {
	at, last := int(t.atTopic), len(ts.tracks)-1
	if h.fan.ts == ts && at < h.fan.at {
		h.fan.at--
		edge := ts.tracks[h.fan.at]
		ts.tracks[at], edge.atTopic = edge, uint32(at)
		at = h.fan.at
	}
	moved := ts.tracks[last]
	ts.tracks[at], moved.atTopic = moved, uint32(at)
	ts.tracks[last] = nil
	ts.tracks = ts.tracks[:last]
}
