package watches

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
	id       uint64
	filter   string
	follower *presence.Follower
	version  uint64
	until    time.Time     // when the first snapshot is given whatever is missing
	begun    chan struct{} // closed once there is something to tell, or the end
	ready    bool
	err      *code.Error // it is over
	users    int         // streams, and who waits to become one
	streams  map[*Stream]struct{}
}

// Snapshot of a filter's members.
type Snapshot struct {
	Version uint64
	// Silent edges had not answered.
	Silent uint32

	of   *watch
	left []held
}

type held struct {
	from presence.Source
	m    *presence.Member
}

// Take hands out the next n members, or as many as are left, and reports whether these were the
// last. They are made here and not under the lock.
func (s *Snapshot) Take(n int) (members []*pushmeshv1.Member, last bool) {
	n = min(n, len(s.left))
	for _, h := range s.left[:n] {
		members = append(members, s.of.member(h.from, h.m))
	}
	if s.left = s.left[n:]; len(s.left) == 0 {
		s.left = nil // the array is as long as the set was, and a stream may last
	}
	return members, len(s.left) == 0
}

// Open begins a stream: the members now, and every change from there on. It waits for edges, for
// firstWithin after they were heard last. The stream must be closed.
func (w *Watches) Open(ctx context.Context, filter string) (*Snapshot, *Stream, error) {
	x, err := w.enter(time.Now(), filter)
	w.send()
	if err != nil {
		w.metrics.end(err.Code)
		return nil, nil, err
	}
	select {
	case <-x.begun:
	case <-ctx.Done():
		w.mu.Lock()
		w.exit(x)
		w.mu.Unlock()
		w.send()
		return nil, nil, ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.err != nil {
		w.exit(x)
		w.metrics.end(x.err.Code)
		return nil, nil, x.err
	}
	s := &Stream{all: w, of: x, wake: make(chan struct{}, 1)}
	x.streams[s] = struct{}{}
	snapshot := &Snapshot{Version: x.version, Silent: uint32(x.follower.Waiting()), of: x, left: make([]held, 0, x.follower.Held())}
	for from, m := range x.follower.Members {
		snapshot.left = append(snapshot.left, held{from, m})
	}
	return snapshot, s, nil
}

// enter finds or makes the watch of a filter.
func (w *Watches) enter(now time.Time, filter string) (*watch, *code.Error) {
	if err := w.cfg.Edges.Check(); err != nil {
		return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "this router does not know every edge: "+err.Error())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draining {
		return nil, code.Retry(wirev1.Code_CODE_DRAINING, time.Second, "the router stops")
	}
	if err := w.allowed(filter); err != nil {
		return nil, err
	}
	if w.streams >= w.cfg.MaxStreams {
		return nil, code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "this router has as many watches as it may")
	}
	w.streams++
	x := w.byFilter[filter]
	if x == nil {
		w.ids++
		x = &watch{
			id: w.ids, filter: filter, follower: presence.NewFollower(w.ids, filter, w.cfg.MaxMembers, &w.asks),
			version: 1, until: now.Add(firstAtMost), begun: make(chan struct{}), streams: map[*Stream]struct{}{},
		}
		w.byFilter[filter], w.byID[x.id] = x, x
		w.follow(now, x, sources(w.cfg.Edges.Edges()))
	}
	x.users++
	return x, nil
}

// exit ends a use of the watch; the last one ends it. w.mu is held.
func (w *Watches) exit(x *watch) {
	w.streams--
	if x.users--; x.users == 0 && x.err == nil {
		w.forget(x)
	}
}

func (w *Watches) forget(x *watch) {
	delete(w.byFilter, x.filter)
	delete(w.byID, x.id)
	for _, s := range x.follower.Followed() {
		w.leases = append(w.leases, lease{to: s, ended: x.id})
	}
}

// end ends the watch with all of its streams. w.mu is held.
func (w *Watches) end(x *watch, why *code.Error) {
	x.err = why
	w.forget(x)
	for s := range x.streams {
		w.fail(s, why)
	}
	if !x.ready {
		close(x.begun)
	}
}

// pass tells every stream what has changed. w.mu is held.
func (w *Watches) pass(now time.Time, x *watch) {
	switch why := x.follower.Failed(); why {
	case wirev1.Code_CODE_OK:
	case wirev1.Code_CODE_OVERLOADED:
		w.end(x, code.Retry(why, time.Second, "an edge has as many watches as it may"))
		return
	default:
		w.end(x, code.New(why, "more members than a watch may have"))
		return
	}
	for _, e := range x.follower.Take() {
		x.version++
		if len(x.streams) == 0 {
			continue
		}
		change := &pushmeshv1.PresenceServiceWatchResponse_Change{Version: x.version, Member: x.member(e.Source, e.Member), Left: e.Left}
		for s := range x.streams {
			w.push(s, change)
		}
	}
	if !x.ready && (x.follower.Quiet(now, firstWithin) || !now.Before(x.until)) {
		x.ready = true
		close(x.begun)
	}
}

func (x *watch) member(from presence.Source, m *presence.Member) *pushmeshv1.Member {
	t := m.GetTopic()
	if t == "" {
		t = x.filter
	}
	return Public(t, from.ID, m)
}

// Public is a member as the API tells of it.
func Public(topic, edge string, m *presence.Member) *pushmeshv1.Member {
	user := m.GetUser()
	if user == "" { // nobody has proved who they are
		user = "client:" + m.GetClientId()
	}
	return &pushmeshv1.Member{
		Topic: topic, Edge: edge, ConnectionId: m.GetConnectionId(), ClientId: m.GetClientId(), User: user, Session: m.GetSession(),
		ConnectedAt: uint64(m.GetConnectedAt()) * 1e6, SubscribedAt: uint64(m.GetSubscribedAt()) * 1e6,
	}
}
