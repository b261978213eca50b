// Package presence tells clients who is in a topic, by user, and says there what a client wants to
// be seen of it. The topic's namespace must let clients see that.
package presence

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/crowd"
	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Member is a user in a topic, however many connections it has there.
type Member struct {
	// User of its token; without one "client:" and its ClientID.
	User string
	// State that it says of itself (SetState), of its connections the newest.
	State []byte
}

// Change is what is different in a topic from what was told before.
type Change struct {
	Topic string
	// All: Joined is everybody, and what was told before holds no more.
	All bool
	// Joined are users that have come, Changed those that say something else of themselves.
	Joined, Changed []Member
	// Left are users that have gone.
	Left []string
	// Count is how many users there are.
	Count int
	// CountsOnly: users are not named, because there are too many, or the namespace does not show
	// them. Once they are again, a change has All.
	CountsOnly bool
}

// room is what a Subscriber watches of topics, and says there. Guarded by its lock.
type room struct {
	ext.Host
	watches map[string]*Watcher  // by topic
	states  map[string]*ownState // what this client says of itself, by topic
	asks    map[uint32]*stateAsk
}

// roomOf is the Subscriber's, made when it is asked for first.
func roomOf(s *pushmesh.Subscriber) *room {
	return ext.Attach(s, "presence", func(h ext.Host) ext.Room {
		return &room{h, map[string]*Watcher{}, map[string]*ownState{}, map[uint32]*stateAsk{}}
	}).(*room)
}

// Watcher tells who is in a topic. It outlives connections.
type Watcher struct {
	r        *room
	topic    string
	f        func(Change)
	answered ext.Latch // opened at the first answer, or at the end
	ended    ext.Latch

	// Guarded by the Subscriber's lock.
	id    uint32            // of the request on this connection; 0: none
	begun bool              // it was answered: changes before are of an earlier watch
	pause reconnect.Backoff // after refusals, until something is told
	crowd crowd.Crowd
	err   error
}

// Watch has f told who is in a topic, and of whoever comes and goes. The first change names
// all. After a reconnect f is told what is different since. f must not block. It needs a mesh whose
// namespace lets clients see who is in its topics, and a client that may subscribe to the topic; it
// need not have. There is one watch of a topic.
func Watch(ctx context.Context, s *pushmesh.Subscriber, topic string, f func(Change)) (*Watcher, error) {
	if f == nil {
		return nil, &pushmesh.ConfigError{Field: "Watch", Problem: "needs a function to call: it is nil"}
	}
	r := roomOf(s)
	done, err := r.Waits(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	low, high := r.Backoff()
	w := &Watcher{r: r, topic: topic, f: f, answered: make(ext.Latch), ended: make(ext.Latch), pause: reconnect.Backoff{Low: low, High: high}}
	r.Lock()
	switch err := r.Over(); {
	case err != nil:
		defer r.Unlock()
		return nil, err
	case r.watches[topic] != nil:
		defer r.Unlock()
		return nil, &pushmesh.Error{Code: pushmesh.CodeAlreadyExists, Message: "this Subscriber watches the topic already"}
	}
	r.watches[topic] = w
	l := r.Link()
	if l != nil {
		w.ask(l)
	}
	r.Unlock()
	if l != nil {
		_ = l.Flush() // a failed write closes the connection; the reader reports it
	}
	select {
	case <-w.answered:
	case <-ctx.Done():
		w.Stop()
		return nil, r.Waited(ctx, "not watched")
	}
	return w, w.Err()
}

// Members that are there, in the order of their users, as told last; none where CountsOnly was
// told.
func (w *Watcher) Members() []Member {
	w.r.Lock()
	defer w.r.Unlock()
	return w.sorted()
}

// Count is how many users there are, as told last.
func (w *Watcher) Count() int {
	w.r.Lock()
	defer w.r.Unlock()
	return w.crowd.Count
}

// Done is closed once nothing more is told.
func (w *Watcher) Done() <-chan struct{} { return w.ended }

// Err says why the watch ended; nil while it goes on and after Stop.
func (w *Watcher) Err() error {
	w.r.Lock()
	defer w.r.Unlock()
	return w.err
}

// Stop ends the watch.
func (w *Watcher) Stop() {
	r := w.r
	r.Lock()
	l := r.Link()
	if !w.ended.IsOpen() && l != nil && w.id != 0 {
		_ = l.Put(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: w.id})
	}
	w.end(nil)
	r.Unlock()
	if l != nil {
		_ = l.Flush()
	}
}

// ownState is what a client says of itself in a topic, until it says something else.
type ownState struct {
	value []byte
	pause reconnect.Backoff // after refusals
	// before holds where this is refused for good; nil: nothing does.
	before *ownState
	on     *link.Conn // the connection on which it was answered last; nil: it never was
}

// stateAsk is a State that is not answered.
type stateAsk struct {
	topic string
	says  *ownState
	done  chan error // has room for the answer
}

// SetState says what others see of this client in a topic, 1 KiB at most; nothing: they see
// nothing. It holds on later connections, too, until it is set again; one that is refused leaves
// the one before. Where ctx ends first it may be said all the same. Several clients of one user are
// one member: what was said last counts.
func SetState(ctx context.Context, s *pushmesh.Subscriber, topic string, state []byte) error {
	r := roomOf(s)
	waited, err := r.Waits(ctx)
	if err != nil {
		return err
	}
	defer waited()
	r.Lock()
	if err := r.Over(); err != nil {
		defer r.Unlock()
		return err
	}
	l := r.Link()
	if l != nil && !offers(l) && len(state) > 0 {
		defer r.Unlock()
		return errNoPresence
	}
	before := r.states[topic]
	if before != nil && before.on == nil {
		before = before.before
	}
	low, high := r.Backoff()
	says, done := &ownState{value: bytes.Clone(state), pause: reconnect.Backoff{Low: low, High: high}, before: before}, make(chan error, 1)
	if l != nil {
		if err := r.putState(l, topic, says, done); err != nil {
			defer r.Unlock()
			return err
		}
	}
	r.states[topic] = says
	r.Unlock()
	if l == nil {
		return nil // it is said once there is a connection
	}
	_ = l.Flush()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return r.Waited(ctx, "not said")
	}
}

// What follows is called with the Subscriber's lock held.

// putState says something on a connection; done gets the answer. An error says that it can't be.
func (r *room) putState(l *link.Conn, topic string, says *ownState, done chan error) error {
	if !offers(l) {
		done <- nil // nobody sees anything there
		return nil
	}
	id := r.NextID()
	if bad := l.Put(wirev1.FrameType_FRAME_TYPE_STATE, &wirev1.State{Id: id, Topic: topic, State: says.value}); bad != nil {
		return unsent(bad)
	}
	r.asks[id] = &stateAsk{topic: topic, says: says, done: done}
	return nil
}

// sayAgain says what holds in a topic, or what did before where that can't be.
func (r *room) sayAgain(l *link.Conn, topic string, done chan error) {
	says := r.states[topic]
	if err := r.putState(l, topic, says, done); err != nil {
		done <- err
		r.takeBack(l, topic, says)
	}
}

// takeBack has what was said before hold again, where a state was refused for good, or can't be
// sent.
func (r *room) takeBack(l *link.Conn, topic string, says *ownState) {
	if says.before == nil {
		delete(r.states, topic)
		return
	}
	r.states[topic] = says.before
	if l != nil && says.before.on != l {
		r.sayAgain(l, topic, make(chan error, 1))
	}
}

var errNoPresence = &pushmesh.Error{Code: pushmesh.CodeUnsupported, Message: "this edge has no presence for clients"}

// offers reports whether an edge knows presence. An older one would end the connection.
func offers(l *link.Conn) bool { return slices.Contains(l.Welcome().GetFeatures(), "presence") }

// stateAnswered is false where no State has the id. What is refused for now is said again.
func (r *room) stateAnswered(id uint32, err *pushmesh.Error) bool {
	a := r.asks[id]
	if a == nil {
		return false
	}
	delete(r.asks, id)
	// nothing else was said since
	last := func() bool { return r.states[a.topic] == a.says }
	if err != nil && err.Retryable() {
		r.afterwards(a.says.pause.Next(err.RetryAfter), func(l *link.Conn) {
			over := r.Over()
			if over != nil || l == nil || !last() {
				a.done <- over // or it is said on the next connection, or was said again
				return
			}
			r.sayAgain(l, a.topic, a.done)
		})
		return true
	}
	if err != nil {
		if last() {
			r.takeBack(r.Link(), a.topic, a.says)
		}
		a.done <- err
		return true
	}
	a.says.before, a.says.on = nil, r.Link()
	a.says.pause.Reset()
	empty := len(a.says.value) == 0
	switch newer := r.states[a.topic]; {
	case last() && empty:
		delete(r.states, a.topic)
	case last(), newer == nil:
	case empty:
		newer.before = nil
	default:
		newer.before = a.says
	}
	a.done <- nil
	return true
}

// Connected says and asks everything again on a new connection.
func (r *room) Connected(l *link.Conn) {
	for topic := range r.states {
		r.sayAgain(l, topic, make(chan error, 1))
	}
	for _, w := range r.watches {
		w.ask(l)
	}
}

// Broken notes what the connection took with it.
func (r *room) Broken() {
	for id, a := range r.asks {
		delete(r.asks, id)
		a.done <- nil // it is said on the next one
	}
	for _, w := range r.watches {
		w.id = 0
	}
}

// End is for a subscriber that ends.
func (r *room) End(err error) {
	for _, w := range r.watches {
		w.end(err)
	}
	for id, a := range r.asks {
		delete(r.asks, id)
		a.done <- err
	}
}

func (r *room) byID(id uint32) *Watcher {
	for _, w := range r.watches {
		if w.id == id {
			return w
		}
	}
	return nil
}

// Uses reports whether a watch or a State has the id.
func (r *room) Uses(id uint32) bool { return r.asks[id] != nil || r.byID(id) != nil }

// Owes is false: who waits for an answer in a handler says so (Waits).
func (r *room) Owes() bool { return false }

// Refused takes the refusal of a watch or a State.
func (r *room) Refused(id uint32, why error) bool {
	var err *pushmesh.Error
	errors.As(why, &err)
	w := r.byID(id)
	if w == nil {
		return r.stateAnswered(id, err)
	}
	if w.id = 0; !err.Retryable() {
		w.end(err)
		return true
	}
	r.afterwards(w.pause.Next(err.RetryAfter), func(l *link.Conn) {
		if l != nil && w.id == 0 && !w.ended.IsOpen() {
			w.ask(l)
		}
	})
	return true
}

// afterwards does something again that was refused for now, with the connection that there is then,
// or without.
func (r *room) afterwards(pause time.Duration, again func(*link.Conn)) {
	time.AfterFunc(pause, func() {
		r.Lock()
		l := r.Link()
		again(l)
		r.Unlock()
		if l != nil {
			_ = l.Flush()
		}
	})
}

func (w *Watcher) ask(l *link.Conn) {
	switch {
	case offers(l):
		id := w.r.NextID()
		if bad := l.Put(wirev1.FrameType_FRAME_TYPE_WATCH, &wirev1.Watch{Id: id, Topic: w.topic}); bad != nil {
			w.end(unsent(bad))
			return
		}
		w.id, w.begun = id, false
	case !w.crowd.Known:
		w.end(errNoPresence)
	}
}

func (w *Watcher) end(err error) {
	if w.ended.IsOpen() {
		return
	}
	w.err = err
	w.ended.Open()
	w.answered.Open()
	delete(w.r.watches, w.topic)
}

// sorted are all who are there.
func (w *Watcher) sorted() []Member {
	return w.named(slices.Sorted(maps.Keys(w.crowd.States)))
}

func (w *Watcher) named(users []string) []Member {
	all := make([]Member, len(users))
	for i, user := range users {
		all[i] = Member{user, w.crowd.States[user]}
	}
	return all
}

// Frame takes what the edge tells of a topic, or its word that a State holds.
func (r *room) Frame(t wirev1.FrameType, body []byte) (bool, error) {
	switch t {
	case wirev1.FrameType_FRAME_TYPE_PRESENCE:
		var m wirev1.Presence
		if proto.Unmarshal(body, &m) != nil {
			return true, ext.ErrBadFrame
		}
		if w := r.watches[m.GetTopic()]; w != nil && w.id != 0 && (w.begun || m.GetSnapshot()) {
			w.told(&m)
		}
		return true, nil
	case wirev1.FrameType_FRAME_TYPE_STATED:
		var m wirev1.Stated
		if proto.Unmarshal(body, &m) != nil {
			return true, ext.ErrBadFrame
		}
		r.stateAnswered(m.GetId(), nil)
		return true, nil
	}
	return false, nil
}

// told takes what the edge tells.
func (w *Watcher) told(m *wirev1.Presence) {
	w.begun = true
	w.pause.Reset()
	if c, differs := w.crowd.Take(m); differs {
		told := Change{
			Topic: w.topic, All: c.All, Joined: w.named(c.Joined), Changed: w.named(c.Changed), Left: c.Left,
			Count: w.crowd.Count, CountsOnly: w.crowd.CountsOnly,
		}
		if c.All {
			told.Joined = w.sorted()
		}
		w.r.Later(func() { w.f(told) })
	}
	w.answered.Open()
}

// unsent is the refusal of a frame that could not be sent.
func unsent(bad *link.Unsendable) *pushmesh.Error {
	return &pushmesh.Error{Code: pushmesh.Code(bad.Code), Message: bad.Message}
}
