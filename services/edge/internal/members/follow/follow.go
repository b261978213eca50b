// Package follow finds out who is in the topics that an edge's clients watch, once for the edge: it
// has a router tell it, and tells the loops, in frames that are made once. A router is asked anew
// every second, with the version that is known; what was lost comes as a snapshot then. Each topic
// has its router, by a hash of both, so that the routers of a mesh share the topics, and edges ask
// the same one for a topic.
package follow

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/presence/room"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/routerlink"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/serial"
)

const (
	// renewEvery is how often routers are asked again.
	renewEvery = time.Second
	// soon is how long new topics are gathered before a router is asked.
	soon = 10 * time.Millisecond
	// silentAfter is how long a router may leave questions unanswered before others are asked, for
	// avoidFor. An older one answers none.
	silentAfter = 3 * time.Second
	avoidFor    = time.Minute
	// patience is how long the first answer to a topic may take. A room waits for edges that are
	// silent, too, which takes a router 13 s to judge.
	patience = 20 * time.Second
	// lingerFor is how long a topic is followed that nobody watches any more. Who watches again,
	// and again, does not have the mesh look for everybody each time.
	lingerFor = 5 * time.Second
	// MaxTopics that are followed at a time.
	MaxTopics = 50_000
	// MaxBytes of users, and of what they say of themselves, in all topics together.
	MaxBytes = 256 << 20
	// wantsPerFrame is how many topics one message to a router names.
	wantsPerFrame = 1000
)

// Config of a Follower.
type Config struct {
	Edge        string
	Incarnation uint64
	// Publish sends a message to NATS; what is lost is sent again.
	Publish func(subject string, data []byte) error
	// Routers are those that are alive, as far as is known. Any goroutine may ask.
	Routers func() []routerlink.Live
	// Post hands an event to a loop, in order.
	Post func(loop uint16, e exchange.Event)
}

// Follower implements exchange.Members. It is a lifecycle.Part, whose goroutine owns all it knows
// but for the numbers.
type Follower struct {
	cfg   Config
	ops   *serial.Queue
	group *lifecycle.Group
	stats Stats

	// The goroutine's own.
	topics  map[string]*followed
	idle    map[*followed]struct{} // of those, that nobody watches
	routers map[routerlink.Live]*asked
	fresh   []*followed // to be asked for soon
	ended   map[routerlink.Live][]string
	asking  bool   // soon
	begun   uint64 // topics so far
	bytes   int    // that views take
	most    int    // of them
}

// Stats of a Follower. Each may be read at any time.
type Stats struct {
	Topics atomic.Int64
	// Bytes that their users take, about.
	Bytes atomic.Int64
	// Snapshots that were taken in, and changes for which the version before them was missing.
	Snapshots, Missed atomic.Uint64
}

// followed is a topic that a loop's clients watch.
type followed struct {
	name    string
	view    *room.View
	loops   map[uint16]bool
	waiting []exchange.Conn // that are told once something is known, each once
	waits   map[exchange.Conn]bool
	idle    time.Time // that nobody watches; zero: somebody does
	since   time.Time // that nothing was known
	router  routerlink.Live
	serial  uint64 // of what loops were told: above those of the topic when it was followed before
	whole   []byte // the frame of the snapshot of serial; nil: not made yet
	fresh   bool
}

// asked is a router that was asked.
type asked struct {
	since time.Time // when the oldest question was asked that is not answered; zero: none is
	avoid time.Time // others are asked until then
}

// New makes a follower of nothing.
func New(cfg Config) *Follower {
	return &Follower{cfg: cfg, ops: serial.New(), topics: map[string]*followed{}, idle: map[*followed]struct{}{}, routers: map[routerlink.Live]*asked{}, ended: map[routerlink.Live][]string{}, most: MaxBytes}
}

// Stats so far.
func (f *Follower) Stats() *Stats { return &f.stats }

// Start begins to ask.
func (f *Follower) Start(context.Context) error {
	f.group = lifecycle.NewGroup(context.Background())
	f.group.Go("edge-members", f.ops.Serve)
	f.group.Go("edge-members-renewals", func(ctx context.Context) {
		lifecycle.Every(ctx, renewEvery, func(now time.Time) { f.ops.Do(func() { f.renew(now) }) })
	})
	return nil
}

// Stop ends asking.
func (f *Follower) Stop(ctx context.Context) error { return f.group.Stop(ctx) }

// Follow implements exchange.Members.
func (f *Follower) Follow(conn exchange.Conn, topic string) {
	f.ops.Do(func() { f.follow(time.Now(), conn, topic) })
}

// Unfollow implements exchange.Members.
func (f *Follower) Unfollow(loop uint16, topic string) {
	f.ops.Do(func() { f.unfollow(time.Now(), loop, topic) })
}

// Receive takes in what a router tells. Any goroutine may call it.
func (f *Follower) Receive(frame *meshv1.RoomFrame) {
	if frame.GetEdgeIncarnation() == f.cfg.Incarnation {
		f.ops.Do(func() { f.receive(time.Now(), frame) })
	}
}

func (f *Follower) follow(now time.Time, conn exchange.Conn, topic string) {
	t := f.topics[topic]
	if t == nil {
		if len(f.topics) >= MaxTopics {
			f.dropIdle(now)
		}
		if len(f.topics) >= MaxTopics {
			f.cfg.Post(conn.Loop, exchange.MembersEnded{Topic: topic, Code: wirev1.Code_CODE_OVERLOADED, Reason: "the edge is at its limit of topics whose members are watched"})
			return
		}
		t = &followed{name: topic, view: room.NewView(topic), loops: map[uint16]bool{}, waits: map[exchange.Conn]bool{}, since: now, serial: f.begun << 32}
		f.begun++
		f.topics[topic] = t
		f.stats.Topics.Store(int64(len(f.topics)))
		f.askSoon(t)
	}
	t.loops[conn.Loop] = true
	if !t.idle.IsZero() {
		t.idle, t.since = time.Time{}, now
		delete(f.idle, t)
	}
	if !t.view.Known() {
		if !t.waits[conn] {
			t.waits[conn], t.waiting = true, append(t.waiting, conn)
		}
		return
	}
	f.tellOne(t, conn)
}

func (f *Follower) unfollow(now time.Time, loop uint16, topic string) {
	t := f.topics[topic]
	if t == nil || !t.loops[loop] {
		return
	}
	if delete(t.loops, loop); len(t.loops) == 0 {
		t.idle, t.waiting = now, nil
		clear(t.waits)
		f.idle[t] = struct{}{}
	}
}

// dropIdle forgets the topics that nobody has watched since then.
func (f *Follower) dropIdle(since time.Time) {
	for t := range f.idle {
		if !t.idle.After(since) {
			f.forget(t)
		}
	}
}

// forget ends following a topic, and has the router know.
func (f *Follower) forget(t *followed) {
	delete(f.topics, t.name)
	delete(f.idle, t)
	f.bytes -= t.view.Bytes()
	f.stats.Bytes.Store(int64(f.bytes))
	f.stats.Topics.Store(int64(len(f.topics)))
	if t.router.ID != "" {
		f.ended[t.router] = append(f.ended[t.router], t.name)
		f.wake()
	}
}

// tellOne tells a connection all that is known.
func (f *Follower) tellOne(t *followed, conn exchange.Conn) {
	if t.whole == nil {
		t.whole = encode(t.view.Snapshot())
	}
	f.cfg.Post(conn.Loop, exchange.MembersTold{Conn: conn, Topic: t.name, Frame: t.whole, Serial: t.serial, Snapshot: true})
}

// encode makes a frame. Users and topics are text that was checked, and rooms are bounded: it
// always can.
func encode(m *wirev1.Presence) []byte {
	frame, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_PRESENCE, m)
	if err != nil {
		frame, _ = wire.Append(nil, wirev1.FrameType_FRAME_TYPE_PRESENCE, &wirev1.Presence{Topic: m.GetTopic(), Snapshot: true, Count: m.GetCount(), CountsOnly: true})
	}
	return frame
}

func (f *Follower) receive(now time.Time, frame *meshv1.RoomFrame) {
	for r, a := range f.routers {
		if r.ID == frame.GetRouterId() {
			a.since = time.Time{} // one that was late stays avoided
		}
	}
	for _, u := range frame.GetUpdates() {
		if t := f.topics[u.GetTopic()]; t != nil {
			f.update(now, t, frame.GetRouterId(), u)
		}
	}
}

// update takes in what a router tells of a topic. One that was asked before may be late.
func (f *Follower) update(now time.Time, t *followed, from string, u *meshv1.RoomUpdate) {
	if from != t.router.ID {
		return
	}
	if u.GetCode() != wirev1.Code_CODE_OK {
		f.end(t, u.GetCode(), u.GetReason())
		return
	}
	known := t.view.Known()
	f.bytes -= t.view.Bytes()
	told, ok := t.view.Apply(u)
	if f.bytes += t.view.Bytes(); f.bytes > f.most {
		f.dropIdle(now)
	}
	switch {
	case f.topics[t.name] != t:
		return // it was one of them
	case !ok:
		f.stats.Missed.Add(1)
		f.askSoon(t)
		return
	case f.bytes > f.most:
		f.end(t, wirev1.Code_CODE_OVERLOADED, "the edge has no memory for the users of more topics")
		return
	case u.GetFrom() == 0:
		f.stats.Snapshots.Add(1)
	}
	f.stats.Bytes.Store(int64(f.bytes))
	if told != nil {
		t.serial++
		t.whole = nil
	}
	switch {
	case !known:
		for _, conn := range t.waiting {
			f.tellOne(t, conn)
		}
		t.waiting, t.waits = nil, nil
	case told != nil && len(t.loops) > 0:
		frame := encode(told)
		for loop := range t.loops {
			f.cfg.Post(loop, exchange.MembersTold{Conn: exchange.Conn{Loop: loop}, Topic: t.name, Frame: frame, Serial: t.serial, Snapshot: told.GetSnapshot()})
		}
	}
}

// end ends a topic for all who watch it.
func (f *Follower) end(t *followed, why wirev1.Code, reason string) {
	for loop := range t.loops {
		f.cfg.Post(loop, exchange.MembersEnded{Topic: t.name, Code: why, Reason: reason})
	}
	f.forget(t)
}

// askSoon has a topic's router asked, with others that are gathered.
func (f *Follower) askSoon(t *followed) {
	if !t.fresh {
		t.fresh = true
		f.fresh = append(f.fresh, t)
		f.wake()
	}
}

func (f *Follower) wake() {
	if !f.asking {
		f.asking = true
		time.AfterFunc(soon, func() { f.ops.Do(f.askFresh) })
	}
}

// askFresh asks for the topics that were gathered.
func (f *Follower) askFresh() {
	f.asking = false
	now := time.Now()
	live := f.live(now)
	wants := map[routerlink.Live][]*meshv1.RoomLease_Want{}
	for _, t := range f.fresh {
		if t.fresh = false; f.topics[t.name] == t {
			f.want(wants, live, t)
		}
	}
	f.fresh = nil
	f.send(now, wants)
}

// renew asks for every topic again, and gives up those that no router has told anything of.
func (f *Follower) renew(now time.Time) {
	f.dropIdle(now.Add(-lingerFor))
	live := f.live(now)
	wants := map[routerlink.Live][]*meshv1.RoomLease_Want{}
	for _, t := range f.topics {
		if !t.view.Known() && now.Sub(t.since) > patience {
			f.end(t, wirev1.Code_CODE_UNAVAILABLE, "no router says who is in the topic: watch it again later")
			continue
		}
		t.whole = nil // it is made again where somebody comes
		f.want(wants, live, t)
	}
	f.send(now, wants)
	f.forgetRouters()
}

// live are the routers that may be asked. One that does not answer is avoided, unless none does.
func (f *Follower) live(now time.Time) []routerlink.Live {
	all := f.cfg.Routers()
	var good []routerlink.Live
	for _, r := range all {
		a := f.routers[r]
		if a != nil && !a.since.IsZero() && now.Sub(a.since) >= silentAfter {
			a.since, a.avoid = time.Time{}, now.Add(avoidFor)
		}
		if a == nil || !now.Before(a.avoid) {
			good = append(good, r)
		}
	}
	if len(good) == 0 {
		return all
	}
	return good
}

// forgetRouters forgets those that are not alive any more.
func (f *Follower) forgetRouters() {
	alive := map[routerlink.Live]bool{}
	for _, r := range f.cfg.Routers() {
		alive[r] = true
	}
	for r := range f.routers {
		if !alive[r] {
			delete(f.routers, r)
		}
	}
}

// want adds a topic to what its router is asked for. Where that is another than before, the one
// before is told that it was.
func (f *Follower) want(wants map[routerlink.Live][]*meshv1.RoomLease_Want, live []routerlink.Live, t *followed) {
	r, ok := routerOf(live, t.name)
	if !ok {
		return
	}
	if t.router != r {
		if t.router.ID != "" {
			f.ended[t.router] = append(f.ended[t.router], t.name)
		}
		t.router = r
	}
	run, version := t.view.Version()
	wants[r] = append(wants[r], &meshv1.RoomLease_Want{Topic: t.name, Run: run, Version: version})
}

// routerOf a topic is the same for every edge, so that routers share the topics, and one that comes
// or goes moves its own alone.
func routerOf(live []routerlink.Live, topic string) (r routerlink.Live, ok bool) {
	return routerlink.PickLive(live, xxhash.Sum64String(topic))
}

// send asks routers, and tells them what is over.
func (f *Follower) send(now time.Time, wants map[routerlink.Live][]*meshv1.RoomLease_Want) {
	for r, ended := range f.ended {
		for len(ended) > 0 {
			n := min(len(ended), wantsPerFrame)
			f.publish(r, &meshv1.RoomLease{Ended: ended[:n]})
			ended = ended[n:]
		}
	}
	clear(f.ended)
	for r, all := range wants {
		a := f.routers[r]
		if a == nil {
			a = &asked{}
			f.routers[r] = a
		}
		if a.since.IsZero() {
			a.since = now
		}
		for len(all) > 0 {
			n := min(len(all), wantsPerFrame)
			f.publish(r, &meshv1.RoomLease{Wants: all[:n]})
			all = all[n:]
		}
	}
}

func (f *Follower) publish(to routerlink.Live, l *meshv1.RoomLease) {
	data, err := proto.Marshal(&meshv1.PresenceFrame{EdgeId: f.cfg.Edge, EdgeIncarnation: f.cfg.Incarnation, RouterIncarnation: to.Incarnation, RoomLease: l})
	if err == nil {
		_ = f.cfg.Publish(bus.RouterPresence(to.ID), data) // what is lost is asked again
	}
}
