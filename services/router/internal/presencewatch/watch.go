package presencewatch

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// watch is one filter that is followed. Watches.mu guards it.
type watch struct {
	id        uint64
	place     int // in Watches.all
	topics    presence.Topics
	follower  *presence.Follower
	version   uint64
	until     time.Time     // when the first snapshot is given, even if edges are missing
	started   chan struct{} // closed once there is a snapshot, or the watch ended
	isStarted bool
	err       *code.Error // why it ended
	users     int         // streams, and callers that wait for the first snapshot
	streams   map[*Stream]struct{}
}

// Snapshot of a filter's members.
type Snapshot struct {
	Version uint64
	// Silent edges had not answered.
	Silent uint32

	watch     *watch
	remaining []memberAt
}

type memberAt struct {
	edge   presence.Source
	member *presence.Member
}

// Take returns the next n members, or the remaining ones, and reports whether these were the last.
// They are encoded here and not under the lock.
func (s *Snapshot) Take(n int) (members []*pushmeshv1.Member, last bool) {
	n = min(n, len(s.remaining))
	for _, h := range s.remaining[:n] {
		members = append(members, s.watch.member(h.edge, h.member))
	}
	if s.remaining = s.remaining[n:]; len(s.remaining) == 0 {
		s.remaining = nil // the array is as long as the set was, and a stream may last
	}
	return members, len(s.remaining) == 0
}

// TakeMembers returns all that remain, as edges report them.
func (s *Snapshot) TakeMembers() []*presence.Member {
	all := make([]*presence.Member, len(s.remaining))
	for i, h := range s.remaining {
		all[i] = h.member
	}
	s.remaining = nil
	return all
}

// Open begins a stream for a backend: the members now, and every change from there on. It waits for
// edges, for firstWithin after their last report. The stream must be closed.
func (w *Watches) Open(ctx context.Context, filter string) (*Snapshot, *Stream, error) {
	return w.open(ctx, presence.Topics{Filter: filter})
}

// OpenNamed is Open for clients: the members of a topic that name it. Who opens such streams bounds
// them.
func (w *Watches) OpenNamed(ctx context.Context, topic string) (*Snapshot, *Stream, error) {
	return w.open(ctx, presence.Topics{Filter: topic, Named: true})
}

func (w *Watches) open(ctx context.Context, topics presence.Topics) (*Snapshot, *Stream, error) {
	x, err := w.join(time.Now(), topics)
	w.sendLeases()
	if err != nil {
		w.metrics.countEnd(err.Code)
		return nil, nil, err
	}
	select {
	case <-x.started:
	case <-ctx.Done():
		w.mu.Lock()
		w.leave(x)
		w.mu.Unlock()
		w.sendLeases()
		return nil, nil, ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.err != nil {
		w.leave(x)
		w.metrics.countEnd(x.err.Code)
		return nil, nil, x.err
	}
	s := &Stream{watches: w, watch: x, wake: make(chan struct{}, 1)}
	x.streams[s] = struct{}{}
	snapshot := &Snapshot{Version: x.version, Silent: uint32(x.follower.IncompleteSources()), watch: x, remaining: make([]memberAt, 0, x.follower.MemberCount())}
	for from, m := range x.follower.Members {
		snapshot.remaining = append(snapshot.remaining, memberAt{from, m})
	}
	return snapshot, s, nil
}

// join finds or makes the watch of a filter.
func (w *Watches) join(now time.Time, topics presence.Topics) (*watch, *code.Error) {
	if err := w.cfg.Edges.Check(); err != nil {
		return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "this router does not know every edge: "+err.Error())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || w.draining && !topics.Named {
		return nil, code.Retry(wirev1.Code_CODE_DRAINING, time.Second, "the router is stopping")
	}
	if err := w.allowed(topics); err != nil {
		return nil, err
	}
	if !topics.Named {
		if w.streams >= w.cfg.MaxStreams {
			return nil, code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "this router is at its limit of presence watches")
		}
		w.streams++
	}
	x := w.byTopics[topics]
	if x == nil {
		x = w.put(now, topics)
	}
	x.users++
	return x, nil
}

// put begins to follow a filter. w.mu is held.
func (w *Watches) put(now time.Time, topics presence.Topics) *watch {
	w.ids++
	x := &watch{
		id: w.ids, topics: topics, follower: presence.NewFollower(w.ids, topics, w.cfg.MaxMembers, &w.asks),
		version: 1, until: now.Add(firstAtMost), started: make(chan struct{}), streams: map[*Stream]struct{}{},
	}
	x.place = len(w.all)
	w.byTopics[topics], w.byID[x.id], w.all = x, x, append(w.all, x)
	w.follow(now, x, sources(w.cfg.Edges.Edges()))
	return x
}

// leave ends one use of the watch; the last one ends the watch. w.mu is held.
func (w *Watches) leave(x *watch) {
	if !x.topics.Named {
		w.streams--
	}
	if x.users--; x.users == 0 && x.err == nil {
		w.forget(x)
	}
}

func (w *Watches) forget(x *watch) {
	delete(w.byTopics, x.topics)
	delete(w.byID, x.id)
	last := len(w.all) - 1
	w.all[x.place], w.all[last].place = w.all[last], x.place
	w.all[last] = nil
	w.all = w.all[:last]
	for _, s := range x.follower.FollowedSources() {
		w.leases = append(w.leases, lease{to: s, ended: x.id})
	}
}

// endWatch ends the watch with all of its streams. w.mu is held.
func (w *Watches) endWatch(x *watch, why *code.Error) {
	x.err = why
	w.forget(x)
	for s := range x.streams {
		w.endStream(s, why)
	}
	if !x.isStarted {
		close(x.started)
	}
}

// pushChanges queues what has changed for every stream. w.mu is held.
func (w *Watches) pushChanges(now time.Time, x *watch) {
	switch why := x.follower.Failed(); why {
	case wirev1.Code_CODE_OK:
	case wirev1.Code_CODE_OVERLOADED:
		w.endWatch(x, code.Retry(why, time.Second, "an edge is at its limit of presence watches"))
		return
	default:
		w.endWatch(x, code.New(why, "the filter has more members than a watch may have"))
		return
	}
	for _, e := range x.follower.TakeEvents() {
		x.version++
		if len(x.streams) == 0 {
			continue
		}
		if x.topics.Named {
			for s := range x.streams {
				w.queueEvent(s, e)
			}
			continue
		}
		change := &pushmeshv1.PresenceServiceWatchResponse_Change{Version: x.version, Member: x.member(e.Source, e.Member), Left: e.Left}
		for s := range x.streams {
			w.queueChange(s, change)
		}
	}
	if !x.isStarted && (x.follower.EdgesSilent(now, firstWithin) || !now.Before(x.until)) {
		x.isStarted = true
		close(x.started)
	}
}

func (x *watch) member(from presence.Source, m *presence.Member) *pushmeshv1.Member {
	t := m.GetTopic()
	if t == "" {
		t = x.topics.Filter
	}
	return Public(t, from.ID, m)
}

// User of a member, in the form of the public API.
func User(m *presence.Member) string {
	if user := m.GetUser(); user != "" {
		return user
	}
	return "client:" + m.GetClientId() // nobody has proved who they are
}

// Public is a member in the form of the public API.
func Public(topic, edge string, m *presence.Member) *pushmeshv1.Member {
	return &pushmeshv1.Member{
		Topic: topic, Edge: edge, ConnectionId: m.GetConnectionId(), ClientId: m.GetClientId(), User: User(m), Session: m.GetSession(),
		ConnectedAt: uint64(m.GetConnectedAt()) * 1e6, SubscribedAt: uint64(m.GetSubscribedAt()) * 1e6,
	}
}
