// Package members is what an event loop knows of clients that watch who is in a topic, and of what
// its connections say of themselves there. Who is in a topic is found out by package follow, once
// for an edge; what is told comes as frames that all who watch a topic share.
package members

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Delivery is what members need of the loop's connections.
type Delivery interface {
	// ControlBytes is how many bytes of the edge's own frames are queued for a connection.
	ControlBytes(c exchange.Conn) int
	// Share queues a frame that others get, too.
	Share(c exchange.Conn, frame []byte)
	// Answer queues a frame for a connection alone.
	Answer(c exchange.Conn, t wirev1.FrameType, m proto.Message)
	// RefuseRequest answers a request with an Error; one with the id 0 is counted alone. Close
	// closes a connection with one.
	RefuseRequest(c exchange.Conn, ref uint32, why *code.Error)
	Close(c exchange.Conn, why *code.Error)
	// Asking is a connection as checks of its request with an id see it.
	Asking(c exchange.Conn, id uint32) request.Client
	// Names reports whether a connection has a subscription that names a topic.
	Names(c exchange.Conn, topic string) bool
	// Hold notes that the request in hand has begun what has an id, for what lasts because of a
	// permission, and Over that this is over.
	Hold(c exchange.Conn, id uint32)
	Over(slot, id uint32)
	// Fits reports whether so many bytes more may be kept for a connection, and Keep charges a
	// connection for so many bytes more that are kept for it.
	Fits(c exchange.Conn, bytes int) bool
	Keep(c exchange.Conn, bytes int)
	// Moved says that something of a connection in a topic is different.
	Moved(c exchange.Conn, topic string)
}

// Bounds of a connection.
const (
	// MaxWatches is how many topics a connection may watch.
	MaxWatches = 64
	// MaxStates is in how many topics it may have a state. Of so many more it is known that they
	// were emptied, so that it is told whatever comes next.
	MaxStates = 16
	// StateEvery is how often it may change one, and stateBurst how many changes may come at once.
	StateEvery = 100 * time.Millisecond
	stateBurst = MaxStates
	// MaxQueued is how many bytes of the edge's own frames may be queued for a connection before it
	// is told nothing more; once they are taken, it is told all that there is.
	MaxQueued = 64 << 10
	// maxPending is how many changes of a topic may wait until the loop has told everybody of the
	// one before.
	maxPending = 16
	// stepWatches is how many connections are told in one go.
	stepWatches = 64
	// requestItems is what a request counts for, in items of a walk: as much as a Subscribe.
	requestItems = walk.ItemsPerUnit
	// What is kept beside names and states, in bytes.
	watchBytes = 160
	stateBytes = 96
)

// Config of a Desk.
type Config struct {
	Loop     uint16
	Delivery Delivery
	Mesh     exchange.Members
	Rules    *request.Rules
	Jobs     *walk.Jobs
	Cost     *walk.Cost
	// Now is nanoseconds of a monotonic clock, and Unix time in microseconds.
	Now func() (int64, uint64)
}

// Desk is used by one loop alone.
type Desk struct {
	cfg    Config
	held   map[uint32]*held // by slot
	topics map[string]*watched
	all    []*watched // of topics, in no order, each knows its place
	behind int        // of watches
	stats  Stats
}

// Stats of a desk.
type Stats struct {
	Watches int64  // of connections
	States  int64  // that connections have set
	Told    uint64 // frames
	// Missed is how often a connection that did not read was told all anew.
	Missed uint64
	// Ended by the edge, by code.
	Ended code.Counts
}

// held is what one connection has.
type held struct {
	conn    exchange.Conn
	watches []*watching
	states  []state
	said    uint64 // when the newest of all states was said
	behind  int    // of watches
	credit  int64  // nanoseconds' worth of changes of state
	at      int64  // when that was so
}

// watching is one topic that one connection watches.
type watching struct {
	of     *held
	in     *watched
	id     uint32
	at     int    // in in.watches
	serial uint64 // of what it was told last
	begun  bool   // it was told all that there is
	behind bool   // it has missed something since
	asked  bool   // then: it has asked for all that there is
}

type state struct {
	topic string
	value []byte
	since uint64
}

// watched is a topic that somebody on the loop watches.
type watched struct {
	name    string
	place   int // in Desk.all
	watches []*watching
	pending walk.FIFO[exchange.MembersTold]
	telling bool // among the jobs
	// now is what is told, to so many that are left.
	now  exchange.MembersTold
	left int
}

// New makes a desk.
func New(cfg Config) *Desk {
	return &Desk{cfg: cfg, held: map[uint32]*held{}, topics: map[string]*watched{}}
}

// Stats of now.
func (d *Desk) Stats() *Stats { return &d.stats }

// Watches is how many topics a connection watches.
func (d *Desk) Watches(slot uint32) int {
	if h := d.held[slot]; h != nil {
		return len(h.watches)
	}
	return 0
}

// Kept is how many bytes are kept for a connection.
func (d *Desk) Kept(slot uint32) (bytes int) {
	h := d.held[slot]
	if h == nil {
		return 0
	}
	for _, w := range h.watches {
		bytes += adds(w.in.name)
	}
	for i := range h.states {
		bytes += h.states[i].bytes()
	}
	return bytes
}

// Uses reports whether an id is of something that a connection watches.
func (d *Desk) Uses(slot, id uint32) bool { return d.byID(slot, id) != nil }

func (d *Desk) byID(slot, id uint32) *watching {
	h := d.held[slot]
	if h == nil {
		return nil
	}
	for _, w := range h.watches {
		if w.id == id {
			return w
		}
	}
	return nil
}

// full is a refusal where a connection may watch no topic more, or watches this one.
func (d *Desk) full(slot uint32, topic string) *code.Error {
	h := d.held[slot]
	switch {
	case h == nil:
		return nil
	case d.isWatching(slot, topic):
		return code.New(wirev1.Code_CODE_CONFLICT, "the connection watches this topic already")
	case len(h.watches) >= MaxWatches:
		return code.New(wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS, "the connection is at its limit of topics that it watches, 64")
	}
	return nil
}

// adds is about how many bytes are kept for a topic that is watched.
func adds(topic string) int { return watchBytes + len(topic) }

// Watch has a connection told who is in a topic, or refuses that.
func (d *Desk) Watch(c exchange.Conn, m *wirev1.Watch) {
	d.cfg.Cost.Add(requestItems)
	if m.GetId() == 0 {
		d.cfg.Delivery.Close(c, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1"))
		return
	}
	why := d.full(c.Slot, m.GetTopic())
	if why == nil {
		why = d.cfg.Rules.Watch(d.cfg.Delivery.Asking(c, m.GetId()), m)
	}
	if why == nil && !d.cfg.Delivery.Fits(c, adds(m.GetTopic())) {
		why = request.NoMemory
	}
	if why != nil {
		d.cfg.Delivery.RefuseRequest(c, m.GetId(), why)
		return
	}
	d.cfg.Delivery.Hold(c, m.GetId())
	d.watch(c, m.GetId(), strings.Clone(m.GetTopic()))
}

func (d *Desk) watch(c exchange.Conn, id uint32, topic string) {
	h := d.of(c)
	in := d.topics[topic]
	if in == nil {
		in = &watched{name: topic, place: len(d.all)}
		d.topics[topic], d.all = in, append(d.all, in)
	}
	w := &watching{of: h, in: in, id: id, at: len(in.watches)}
	in.watches, h.watches = append(in.watches, w), append(h.watches, w)
	d.stats.Watches++
	d.cfg.Delivery.Keep(c, adds(topic))
	d.cfg.Mesh.Follow(c, topic)
}

func (d *Desk) of(c exchange.Conn) *held {
	h := d.held[c.Slot]
	if h == nil {
		now, _ := d.cfg.Now()
		h = &held{conn: c, at: now, credit: int64(stateBurst * StateEvery)}
		d.held[c.Slot] = h
	}
	return h
}

// Unwatch ends what has an id, for a reason, and says so; false where a connection watches nothing
// of that id.
func (d *Desk) Unwatch(slot, id uint32, why wirev1.Code, reason string) bool {
	w := d.byID(slot, id)
	if w == nil {
		return false
	}
	d.end(w, why, reason)
	return true
}

// end ends a watch and says so.
func (d *Desk) end(w *watching, why wirev1.Code, reason string) {
	if why != wirev1.Code_CODE_OK {
		d.stats.Ended.Add(why, 1)
	}
	conn, id := w.of.conn, w.id
	d.drop(w)
	d.cfg.Delivery.Over(conn.Slot, id)
	d.cfg.Delivery.Answer(conn, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id, Code: why, Reason: reason})
}

// drop takes a watch out of every list.
func (d *Desk) drop(w *watching) {
	h, in := w.of, w.in
	d.caughtUp(w)
	h.watches = slices.DeleteFunc(h.watches, func(o *watching) bool { return o == w })
	last := len(in.watches) - 1
	in.watches[w.at], in.watches[last].at = in.watches[last], w.at
	in.watches[last] = nil
	in.watches = in.watches[:last]
	d.stats.Watches--
	d.cfg.Delivery.Keep(h.conn, -adds(in.name))
	if last == 0 {
		d.dropTopic(in)
		d.cfg.Mesh.Unfollow(d.cfg.Loop, in.name)
	}
	d.forget(h)
}

// dropTopic drops a topic that nobody watches.
func (d *Desk) dropTopic(in *watched) {
	delete(d.topics, in.name)
	last := len(d.all) - 1
	d.all[in.place], d.all[last].place = d.all[last], in.place
	d.all[last] = nil
	d.all = d.all[:last]
}

// forget drops what is known of a connection that has nothing here.
func (d *Desk) forget(h *held) {
	if len(h.watches)+len(h.states) == 0 {
		delete(d.held, h.conn.Slot)
	}
}

// EndIf ends the i-th of what a connection watches where it is denied, with a reason, and says so:
// the last may take its place.
func (d *Desk) EndIf(slot uint32, i int, denied func(id uint32, topic, group string) (why string)) (ended bool) {
	w := d.held[slot].watches[i]
	why := denied(w.id, w.in.name, "")
	if why != "" {
		d.end(w, wirev1.Code_CODE_FORBIDDEN, why)
	}
	return why != ""
}

// Close is for a connection that closes.
func (d *Desk) Close(slot uint32) {
	h := d.held[slot]
	if h == nil {
		return
	}
	for len(h.watches) > 0 {
		d.drop(h.watches[len(h.watches)-1])
	}
	for i := range h.states {
		d.cfg.Delivery.Keep(h.conn, -h.states[i].bytes())
	}
	d.stats.States -= int64(h.saying())
	delete(d.held, slot)
}

func (s *state) bytes() int { return stateBytes + len(s.topic) + len(s.value) }

// Say has a connection say something of itself in a topic, or refuses that. One with the id 0 is
// not answered.
func (d *Desk) Say(c exchange.Conn, m *wirev1.State) {
	d.cfg.Cost.Add(requestItems)
	// who is there, or is told who is, was granted that
	inside := d.isWatching(c.Slot, m.GetTopic()) || d.cfg.Delivery.Names(c, m.GetTopic())
	why := d.cfg.Rules.State(d.cfg.Delivery.Asking(c, m.GetId()), m, inside)
	if why == nil {
		why = d.limited(c, m.GetTopic(), m.GetState())
	}
	if why == nil && !d.cfg.Delivery.Fits(c, adds(m.GetTopic())+len(m.GetState())) {
		why = request.NoMemory
	}
	if why != nil {
		d.cfg.Delivery.RefuseRequest(c, m.GetId(), why)
		return
	}
	d.setState(c, strings.Clone(m.GetTopic()), m.GetState())
	if m.GetId() != 0 {
		d.cfg.Delivery.Answer(c, wirev1.FrameType_FRAME_TYPE_STATED, &wirev1.Stated{Id: m.GetId()})
	}
}

func (d *Desk) isWatching(slot uint32, topic string) bool {
	h := d.held[slot]
	return h != nil && slices.ContainsFunc(h.watches, func(w *watching) bool { return w.in.name == topic })
}

// limited is a refusal where a connection has changed what it says of itself too often, or may do
// so in no topic more.
func (d *Desk) limited(c exchange.Conn, topic string, value []byte) *code.Error {
	h := d.held[c.Slot]
	if h == nil {
		return nil
	}
	if len(value) > 0 && !h.hasRoom(topic) {
		return code.New(wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS, "the connection has a state in 16 topics, which is the most: empty one of them first")
	}
	now, _ := d.cfg.Now()
	h.credit = min(h.credit+now-h.at, int64(stateBurst*StateEvery))
	if h.at = now; h.credit < int64(StateEvery) {
		return code.Retry(wirev1.Code_CODE_RATE_LIMITED, StateEvery, "the connection changes its state too often, ten times a second at most")
	}
	return nil
}

// setState has a connection say something of itself in a topic; nothing where it is empty. The
// value is the caller's.
func (d *Desk) setState(c exchange.Conn, topic string, value []byte) {
	h := d.of(c)
	h.credit -= int64(StateEvery)
	_, wall := d.cfg.Now()
	at := slices.IndexFunc(h.states, func(s state) bool { return s.topic == topic })
	if at < 0 {
		if len(value) == 0 {
			d.forget(h)
			return
		}
		d.evict(h)
		at = len(h.states)
		h.states = append(h.states, state{topic: topic})
		d.cfg.Delivery.Keep(c, h.states[at].bytes())
	}
	d.stats.States -= int64(h.saying())
	s := &h.states[at]
	d.cfg.Delivery.Keep(c, len(value)-len(s.value))
	// A state that is emptied stays for a while, so that its emptiness is told as newer than what
	// was before.
	h.said = max(wall, h.said+1)
	s.value, s.since = bytes.Clone(value), h.said
	d.stats.States += int64(h.saying())
	d.cfg.Delivery.Moved(c, topic)
}

// saying is in how many topics a connection has a state.
func (h *held) saying() (n int) {
	for i := range h.states {
		if len(h.states[i].value) > 0 {
			n++
		}
	}
	return n
}

// hasRoom reports whether a connection may have a state in a topic.
func (h *held) hasRoom(topic string) bool {
	return h.saying() < MaxStates || slices.ContainsFunc(h.states, func(s state) bool { return s.topic == topic && len(s.value) > 0 })
}

// evict makes room for a state, in the place of the one that was emptied first.
func (d *Desk) evict(h *held) {
	if len(h.states) < 2*MaxStates {
		return
	}
	first := -1
	for i := range h.states {
		if s := &h.states[i]; len(s.value) == 0 && (first < 0 || s.since < h.states[first].since) {
			first = i
		}
	}
	d.cfg.Delivery.Keep(h.conn, -h.states[first].bytes())
	h.states = slices.Delete(h.states, first, first+1)
}

// State is what a connection says of itself in a topic, and since when; 0: it has never said
// anything.
func (d *Desk) State(slot uint32, topic string) (value []byte, since uint64) {
	if h := d.held[slot]; h != nil {
		for i := range h.states {
			if h.states[i].topic == topic {
				return h.states[i].value, h.states[i].since
			}
		}
	}
	return nil, 0
}
