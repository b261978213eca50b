package pushmesh

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	watchType    = wirev1.FrameType_FRAME_TYPE_WATCH
	presenceType = wirev1.FrameType_FRAME_TYPE_PRESENCE
	stateType    = wirev1.FrameType_FRAME_TYPE_STATE
	statedType   = wirev1.FrameType_FRAME_TYPE_STATED
)

func shows(e *fakeEdge) *edgeConn {
	c, _ := e.accept()
	c.send(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{Version: 1, Features: []string{"presence"}})
	return c
}

// presenceLog has the changes that a watch tells, as text.
type presenceLog chan string

func (ch presenceLog) take(c PresenceChange) {
	var all []string
	if c.All {
		all = append(all, "all")
	}
	for _, m := range c.Joined {
		all = append(all, "+"+m.User+string(m.State))
	}
	for _, m := range c.Changed {
		all = append(all, "~"+m.User+string(m.State))
	}
	for _, user := range c.Left {
		all = append(all, "-"+user)
	}
	if c.CountsOnly {
		all = append(all, "counts")
	}
	ch <- strings.Join(append(all, fmt.Sprint(c.Count)), " ")
}

func (ch presenceLog) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-ch:
		if got != want {
			t.Fatalf("told %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("%q is not told", want)
	}
}

// watching begins to watch room/1, and returns once the edge has the Watch.
func watching(t *testing.T, s *Subscriber, c *edgeConn, f func(PresenceChange), first *wirev1.Presence) *PresenceWatch {
	t.Helper()
	type begun struct {
		w   *PresenceWatch
		err error
	}
	done := make(chan begun, 1)
	go func() {
		w, err := s.WatchPresence(t.Context(), "room/1", f)
		done <- begun{w, err}
	}()
	var m wirev1.Watch
	if c.expect(watchType, &m); m.GetTopic() != "room/1" || m.GetId() == 0 {
		t.Fatalf("asked %v", &m)
	}
	c.send(presenceType, first)
	b := <-done
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.w
}

func users(all ...string) (members []*wirev1.Presence_Member) {
	for _, user := range all {
		name, state, _ := strings.Cut(user, "=")
		members = append(members, &wirev1.Presence_Member{User: name, State: []byte(state)})
	}
	return members
}

func TestPresenceIsToldAsDifferences(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	c, ch := shows(e), make(presenceLog, 10)
	w := watching(t, s, c, ch.take, &wirev1.Presence{Topic: "room/1", Snapshot: true, Members: users("bob", "ann"), Count: 2})
	ch.expect(t, "all +ann +bob 2")
	c.send(presenceType, &wirev1.Presence{Topic: "room/1", Members: users("cat", "ann=x"), Left: []string{"bob"}, Count: 2})
	ch.expect(t, "+cat ~annx -bob 2")
	c.send(presenceType, &wirev1.Presence{Topic: "other", Snapshot: true, Count: 9})
	// nothing new
	c.send(presenceType, &wirev1.Presence{Topic: "room/1", Snapshot: true, Members: users("ann=x", "cat"), Count: 2})
	c.send(presenceType, &wirev1.Presence{Topic: "room/1", Snapshot: true, Members: users("ann=y", "dan"), Count: 2})
	ch.expect(t, "+dan ~anny -cat 2")
	c.send(presenceType, &wirev1.Presence{Topic: "room/1", Snapshot: true, CountsOnly: true, Count: 300})
	ch.expect(t, "counts 300")
	if w.Count() != 300 || len(w.Members()) != 0 {
		t.Fatalf("%d users, %v", w.Count(), w.Members())
	}
	c.send(presenceType, &wirev1.Presence{Topic: "room/1", Snapshot: true, Members: users("ann=y"), Count: 1})
	ch.expect(t, "all +anny 1")

	// on a new connection the difference is told
	c.close()
	c = shows(e)
	var m wirev1.Watch
	c.expect(watchType, &m)
	c.send(presenceType, &wirev1.Presence{Topic: "room/1", Snapshot: true, Members: users("ann=y", "eve"), Count: 2})
	ch.expect(t, "+eve 2")
	if _, err := s.WatchPresence(t.Context(), "room/1", ch.take); CodeOf(err) != wirev1.Code_CODE_ALREADY_EXISTS {
		t.Errorf("a second watch: %v", err)
	}

	// what is refused for now is asked for again, and what is refused for good ends
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: m.GetId(), Code: wirev1.Code_CODE_OVERLOADED})
	c.expect(watchType, &m)
	c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: m.GetId(), Code: wirev1.Code_CODE_FORBIDDEN, Message: "no"})
	<-w.Done()
	if CodeOf(w.Err()) != wirev1.Code_CODE_FORBIDDEN {
		t.Fatalf("it ended with %v", w.Err())
	}
	again := watching(t, s, c, ch.take, &wirev1.Presence{Topic: "room/1", Snapshot: true, Count: 0})
	ch.expect(t, "all 0")
	again.Stop()
	c.expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{})
	if again.Err() != nil || s.Err() != nil {
		t.Fatal(again.Err(), s.Err())
	}
	if err := w.Err(); err == nil {
		t.Fatal("the first one goes on")
	}
}

// What was on its way to a watch that has ended is nothing to the next one.
func TestAWatchBeginsWithASnapshot(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	c, ch := shows(e), make(presenceLog, 10)
	watching(t, s, c, ch.take, &wirev1.Presence{Topic: "room/1", Snapshot: true, Count: 0}).Stop()
	ch.expect(t, "all 0")
	c.expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{})
	done := make(chan error, 1)
	go func() {
		_, err := s.WatchPresence(t.Context(), "room/1", ch.take)
		done <- err
	}()
	c.expect(watchType, &wirev1.Watch{})
	c.send(presenceType, &wirev1.Presence{Topic: "room/1", Members: users("bob"), Count: 1})
	c.send(presenceType, &wirev1.Presence{Topic: "room/1", Snapshot: true, Members: users("ann", "bob"), Count: 2})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	ch.expect(t, "all +ann +bob 2")
}

// An edge that is older would end the connection at a frame that it does not know.
func TestAnOlderEdgeIsNotAskedForPresence(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	c := e.welcome()
	start(t, s, "room/1", newSeqLog().handle)
	c.subscribed(0, 0, true)
	if _, err := s.WatchPresence(t.Context(), "room/1", func(PresenceChange) {}); CodeOf(err) != wirev1.Code_CODE_UNSUPPORTED {
		t.Errorf("a watch: %v", err)
	}
	if err := s.SetState(t.Context(), "room/1", []byte("x")); CodeOf(err) != wirev1.Code_CODE_UNSUPPORTED {
		t.Errorf("a state: %v", err)
	}
	if _, err := s.WatchPresence(t.Context(), "room/1", nil); err == nil {
		t.Error("nobody is told")
	}
}

// A state is said again where it was refused for now, and on each new connection.
func TestAStateIsSaidAgain(t *testing.T) {
	e := newFakeEdge(t)
	connected := make(chan struct{}, 9)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, OnConnect: func(Connection) { connected <- struct{}{} }})
	c := shows(e)
	said := make(chan error, 1)
	say := func(state string) {
		go func() { said <- s.SetState(t.Context(), "room/1", []byte(state)) }()
	}
	heard := func(want string) uint32 {
		t.Helper()
		var m wirev1.State
		if c.expect(stateType, &m); string(m.GetState()) != want || m.GetTopic() != "room/1" {
			t.Fatalf("said %v", &m)
		}
		return m.GetId()
	}
	<-connected
	say("typing")
	c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: heard("typing"), Code: wirev1.Code_CODE_RATE_LIMITED, RetryAfterMs: 5})
	c.send(statedType, &wirev1.Stated{Id: heard("typing")})
	if err := <-said; err != nil {
		t.Fatal(err)
	}
	c.close()
	c = shows(e)
	c.send(statedType, &wirev1.Stated{Id: heard("typing")})
	<-connected
	say("")
	c.send(statedType, &wirev1.Stated{Id: heard("")})
	if err := <-said; err != nil {
		t.Fatal(err)
	}
	say("no")
	c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: heard("no"), Code: wirev1.Code_CODE_FORBIDDEN})
	if err := <-said; CodeOf(err) != wirev1.Code_CODE_FORBIDDEN {
		t.Fatal(err)
	}
	say("later")
	heard("later")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-said; err == nil {
		t.Fatal("it was never said")
	}
	if err := s.SetState(context.Background(), "room/1", nil); err == nil {
		t.Fatal("a subscriber that is closed says something")
	}
}

// A state that is emptied while another one is on its way is said until it holds.
func TestAnEmptyStateIsNotForgotten(t *testing.T) {
	e := newFakeEdge(t)
	connected := make(chan struct{}, 9)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, OnConnect: func(Connection) { connected <- struct{}{} }})
	c := shows(e)
	<-connected
	said := make(chan error, 2)
	var first, second wirev1.State
	go func() { said <- s.SetState(t.Context(), "room/1", []byte("typing")) }()
	c.expect(stateType, &first)
	go func() { said <- s.SetState(t.Context(), "room/1", nil) }()
	c.expect(stateType, &second)
	c.send(statedType, &wirev1.Stated{Id: first.GetId()})
	if err := <-said; err != nil {
		t.Fatal(err)
	}
	c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: second.GetId(), Code: wirev1.Code_CODE_RATE_LIMITED, RetryAfterMs: 5})
	// it is said again; now it is answered as if it were, and others see "typing" from then on
	again := make(chan struct{})
	go func() {
		var m wirev1.State
		c.expect(stateType, &m)
		close(again)
	}()
	select {
	case <-again:
	case err := <-said:
		t.Fatalf("SetState of nothing returned %v, and the edge, which refused it for now, was never told again", err)
	}
}

// A state that was refused for good does not take a newer one with it.
func TestARefusalOfAnOlderStateIsNotOneOfTheNewer(t *testing.T) {
	e := newFakeEdge(t)
	connected := make(chan struct{}, 9)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, OnConnect: func(Connection) { connected <- struct{}{} }})
	c := shows(e)
	<-connected
	said := make(chan error, 2)
	var first, second wirev1.State
	go func() { said <- s.SetState(t.Context(), "room/1", make([]byte, 2000)) }()
	c.expect(stateType, &first)
	go func() { said <- s.SetState(t.Context(), "room/1", []byte("here")) }()
	c.expect(stateType, &second)
	c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: first.GetId(), Code: wirev1.Code_CODE_INVALID_ARGUMENT})
	c.send(statedType, &wirev1.Stated{Id: second.GetId()})
	if one, other := <-said, <-said; (one == nil) == (other == nil) {
		t.Fatal(one, other)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.presence.states["room/1"]; own == nil || string(own.value) != "here" {
		t.Fatalf("it was said, and on the next connection %v will be", own)
	}
}

// Who is refused for now does not ask ten times a second for ever.
func TestRefusedWatchesAreAskedForMoreSeldom(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, MinBackoff: 20 * time.Millisecond, MaxBackoff: time.Second})
	c, ch := shows(e), make(presenceLog, 10)
	watching(t, s, c, ch.take, &wirev1.Presence{Topic: "room/1", Snapshot: true, Count: 0})
	var m wirev1.Watch
	began := time.Now()
	id := uint32(1)
	for range 5 {
		c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id, Code: wirev1.Code_CODE_OVERLOADED})
		c.expect(watchType, &m)
		id = m.GetId()
	}
	if d := time.Since(began); d < (20+40+80+160+320)*time.Millisecond {
		t.Fatalf("5 refusals (OVERLOADED) in %v: the pause does not grow", d)
	}
}
