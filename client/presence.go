package pushmesh

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/crowd"
	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// PresenceMember is a user in a topic, however many connections it has there.
type PresenceMember struct {
	// User of its token; without one "client:" and its ClientID.
	User string
	// State that it says of itself (SetState), of its connections the newest.
	State []byte
}

// PresenceChange is what is different in a topic from what was told before.
type PresenceChange struct {
	Topic string
	// All: Joined is everybody, and what was told before holds no more.
	All bool
	// Joined are users that have come, Changed those that say something else of themselves.
	Joined, Changed []PresenceMember
	// Left are users that have gone.
	Left []string
	// Count is how many users there are.
	Count int
	// CountsOnly: users are not named, because there are too many, or the namespace does not show
	// them. Once they are again, a change has All.
	CountsOnly bool
}

// presences are what a Subscriber watches of topics, and says there.
type presences struct {
	watches map[string]*PresenceWatch // by topic
	states  map[string]*ownState      // what this client says of itself, by topic
	asks    map[uint32]*stateAsk
}

func newPresences() presences {
	return presences{map[string]*PresenceWatch{}, map[string]*ownState{}, map[uint32]*stateAsk{}}
}

// PresenceWatch tells who is in a topic. It outlives connections.
type PresenceWatch struct {
	s        *Subscriber
	topic    string
	f        func(PresenceChange)
	answered latch // opened at the first answer, or at the end
	ended    latch

	// Guarded by Subscriber.mu.
	id    uint32        // of the request on this connection; 0: none
	begun bool          // it was answered: changes before are of an earlier watch
	pause time.Duration // after the last refusal; 0: something was told since
	crowd crowd.Crowd
	err   error
}

// WatchPresence has f told who is in a topic, and of whoever comes and goes. The first change names
// all. After a reconnect f is told what is different since. f must not block. It needs a mesh whose
// namespace lets clients see who is in its topics, and a client that may subscribe to the topic; it
// need not have. There is one watch of a topic.
func (s *Subscriber) WatchPresence(ctx context.Context, topic string, f func(PresenceChange)) (*PresenceWatch, error) {
	if f == nil {
		return nil, errors.New("pushmesh: WatchPresence needs a function to call: it is nil")
	}
	w := &PresenceWatch{s: s, topic: topic, f: f, answered: make(latch), ended: make(latch)}
	s.mu.Lock()
	switch {
	case s.closing || s.err != nil:
		defer s.unlock()
		return nil, s.endError()
	case s.presence.watches[topic] != nil:
		defer s.unlock()
		return nil, &Error{Code: wirev1.Code_CODE_ALREADY_EXISTS, Message: "this Subscriber watches the topic already"}
	}
	s.presence.watches[topic] = w
	l := s.link
	if l != nil {
		w.ask(l)
	}
	s.unlock()
	if l != nil {
		_ = l.Flush() // a failed write closes the connection; the reader reports it
	}
	select {
	case <-w.answered:
	case <-ctx.Done():
		w.Stop()
		return nil, waited(ctx, "not watched", s.faultOf())
	}
	return w, w.Err()
}

// Members that are there, in the order of their users, as told last; none where CountsOnly was
// told.
func (w *PresenceWatch) Members() []PresenceMember {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.sorted()
}

// Count is how many users there are, as told last.
func (w *PresenceWatch) Count() int {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.crowd.Count
}

// Done is closed once nothing more is told.
func (w *PresenceWatch) Done() <-chan struct{} { return w.ended }

// Err says why the watch ended; nil while it goes on and after Stop.
func (w *PresenceWatch) Err() error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.err
}

// Stop ends the watch.
func (w *PresenceWatch) Stop() {
	s := w.s
	s.mu.Lock()
	l := s.link
	if !w.ended.isOpen() && l != nil && w.id != 0 {
		_ = l.Put(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: w.id})
	}
	w.end(nil)
	s.unlock()
	if l != nil {
		_ = l.Flush()
	}
}

// ownState is what a client says of itself in a topic, until it says something else.
type ownState struct{ value []byte }

// stateAsk is a State that is not answered.
type stateAsk struct {
	topic string
	says  *ownState
	done  chan error // has room for the answer
}

// SetState says what others see of this client in a topic, 1 KiB at most; nothing: they see
// nothing. It holds on later connections, too, until it is set again. Several clients of one user
// are one member: what was said last counts.
func (s *Subscriber) SetState(ctx context.Context, topic string, state []byte) error {
	s.mu.Lock()
	if s.closing || s.err != nil {
		defer s.unlock()
		return s.endError()
	}
	s.presence.states[topic] = &ownState{bytes.Clone(state)}
	done := make(chan error, 1)
	l := s.link
	if l != nil {
		s.putState(l, topic, done)
	}
	s.unlock()
	if l == nil {
		return nil // it is said once there is a connection
	}
	_ = l.Flush()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return waited(ctx, "not said", s.faultOf())
	}
}

// What follows is called with Subscriber.mu held, but for the reader's.

func (s *Subscriber) putState(l *link.Conn, topic string, done chan error) {
	if !offers(l) {
		done <- &Error{Code: wirev1.Code_CODE_UNSUPPORTED, Message: "this edge has no presence for clients"}
		return
	}
	id, says := s.nextID(), s.presence.states[topic]
	if bad := l.Put(wirev1.FrameType_FRAME_TYPE_STATE, &wirev1.State{Id: id, Topic: topic, State: says.value}); bad != nil {
		done <- unsent(bad)
		return
	}
	s.presence.asks[id] = &stateAsk{topic: topic, says: says, done: done}
}

// offers reports whether an edge knows presence. An older one would end the connection.
func offers(l *link.Conn) bool { return slices.Contains(l.Welcome().GetFeatures(), "presence") }

// stateAnswered is false where no State has the id. What is refused for now is said again.
func (s *Subscriber) stateAnswered(id uint32, err *Error) bool {
	a := s.presence.asks[id]
	if a == nil {
		return false
	}
	delete(s.presence.asks, id)
	// nothing else was said since
	holds := func() bool { return s.presence.states[a.topic] == a.says }
	switch {
	case err != nil && err.Retryable():
		s.afterwards(err.RetryAfter, func(l *link.Conn) {
			if holds() && l != nil {
				s.putState(l, a.topic, a.done)
			} else {
				a.done <- nil // it is said on the next connection, or was said again
			}
		})
		return true
	case holds() && (err != nil || len(a.says.value) == 0):
		delete(s.presence.states, a.topic)
	}
	if err == nil {
		a.done <- nil
	} else {
		a.done <- err
	}
	return true
}

// presenceConnected says and asks everything again on a new connection.
func (s *Subscriber) presenceConnected(l *link.Conn) {
	for topic := range s.presence.states {
		s.putState(l, topic, make(chan error, 1))
	}
	for _, w := range s.presence.watches {
		w.ask(l)
	}
}

// presenceBroken notes what the connection took with it.
func (s *Subscriber) presenceBroken() {
	for id, a := range s.presence.asks {
		delete(s.presence.asks, id)
		a.done <- nil // it is said on the next one
	}
	for _, w := range s.presence.watches {
		w.id = 0
	}
}

// endPresence is for a subscriber that ends.
func (s *Subscriber) endPresence(err error) {
	for _, w := range s.presence.watches {
		w.end(err)
	}
	for id, a := range s.presence.asks {
		delete(s.presence.asks, id)
		a.done <- err
	}
}

func (s *Subscriber) presenceByID(id uint32) *PresenceWatch {
	for _, w := range s.presence.watches {
		if w.id == id {
			return w
		}
	}
	return nil
}

// presenceRefused is false where no watch has the id.
func (s *Subscriber) presenceRefused(id uint32, err *Error) bool {
	w := s.presenceByID(id)
	if w == nil {
		return false
	}
	if w.id = 0; !err.Retryable() {
		w.end(err)
		return true
	}
	w.pause = min(max(2*w.pause, s.cfg.MinBackoff), s.cfg.MaxBackoff)
	s.afterwards(max(w.pause, err.RetryAfter), func(l *link.Conn) {
		if l != nil && w.id == 0 && !w.ended.isOpen() {
			w.ask(l)
		}
	})
	return true
}

// afterwards does something again that was refused for now, with the connection that there is then,
// or without.
func (s *Subscriber) afterwards(pause time.Duration, again func(*link.Conn)) {
	time.AfterFunc(max(pause, s.cfg.MinBackoff), func() {
		s.mu.Lock()
		l := s.link
		again(l)
		s.unlock()
		if l != nil {
			_ = l.Flush()
		}
	})
}

func (w *PresenceWatch) ask(l *link.Conn) {
	switch {
	case offers(l):
		id := w.s.nextID()
		if bad := l.Put(wirev1.FrameType_FRAME_TYPE_WATCH, &wirev1.Watch{Id: id, Topic: w.topic}); bad != nil {
			w.end(unsent(bad))
			return
		}
		w.id, w.begun = id, false
	case !w.crowd.Known:
		w.end(&Error{Code: wirev1.Code_CODE_UNSUPPORTED, Message: "this edge has no presence for clients"})
	}
}

func (w *PresenceWatch) end(err error) {
	if w.ended.isOpen() {
		return
	}
	w.err = err
	w.ended.open()
	w.answered.open()
	delete(w.s.presence.watches, w.topic)
}

// sorted are all who are there.
func (w *PresenceWatch) sorted() []PresenceMember {
	return w.named(slices.Sorted(maps.Keys(w.crowd.States)))
}

func (w *PresenceWatch) named(users []string) []PresenceMember {
	all := make([]PresenceMember, len(users))
	for i, user := range users {
		all[i] = PresenceMember{user, w.crowd.States[user]}
	}
	return all
}

// presence takes what the edge tells of a topic.
func (r *reader) presence(body []byte) error {
	var m wirev1.Presence
	if proto.Unmarshal(body, &m) != nil {
		return errBadMessage
	}
	r.s.mu.Lock()
	defer r.s.unlock()
	if w := r.s.presence.watches[m.GetTopic()]; w != nil && w.id != 0 && (w.begun || m.GetSnapshot()) {
		w.begun, w.pause = true, 0
		if c, differs := w.crowd.Take(&m); differs {
			told := PresenceChange{
				Topic: w.topic, All: c.All, Joined: w.named(c.Joined), Changed: w.named(c.Changed), Left: c.Left,
				Count: w.crowd.Count, CountsOnly: w.crowd.CountsOnly,
			}
			if c.All {
				told.Joined = w.sorted()
			}
			r.s.later(func() { w.f(told) })
		}
		w.answered.open()
	}
	return nil
}

// stated takes the edge's word that a State holds.
func (r *reader) stated(body []byte) error {
	var m wirev1.Stated
	if proto.Unmarshal(body, &m) != nil {
		return errBadMessage
	}
	r.s.mu.Lock()
	defer r.s.unlock()
	r.s.stateAnswered(m.GetId(), nil)
	return nil
}
