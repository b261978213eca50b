package presence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/edgetest"
	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	watchType    = wirev1.FrameType_FRAME_TYPE_WATCH
	presenceType = wirev1.FrameType_FRAME_TYPE_PRESENCE
	stateType    = wirev1.FrameType_FRAME_TYPE_STATE
	statedType   = wirev1.FrameType_FRAME_TYPE_STATED
)

func shows(e *edgetest.Edge) *edgetest.Conn {
	return e.Welcome(&wirev1.Welcome{Version: 1, Features: []string{"presence"}})
}

// presenceLog has the changes that a watch tells, as text.
type presenceLog chan string

func (ch presenceLog) take(c Change) {
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
	case <-time.After(edgetest.Patience):
		t.Fatalf("%q is not told", want)
	}
}

// watching begins to watch room/1, and returns once the edge has the Watch.
func watching(t *testing.T, s *pushmesh.Subscriber, c *edgetest.Conn, f func(Change), first *wirev1.Presence) *Watcher {
	t.Helper()
	type begun struct {
		w   *Watcher
		err error
	}
	done := make(chan begun, 1)
	go func() {
		w, err := Watch(t.Context(), s, "room/1", f)
		done <- begun{w, err}
	}()
	var m wirev1.Watch
	if c.Expect(watchType, &m); m.GetTopic() != "room/1" || m.GetId() == 0 {
		t.Fatalf("asked %v", &m)
	}
	c.Send(presenceType, first)
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
	e := edgetest.New(t)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}})
	c, ch := shows(e), make(presenceLog, 10)
	w := watching(t, s, c, ch.take, &wirev1.Presence{Topic: "room/1", Snapshot: true, Members: users("bob", "ann"), Count: 2})
	ch.expect(t, "all +ann +bob 2")
	c.Send(presenceType, &wirev1.Presence{Topic: "room/1", Members: users("cat", "ann=x"), Left: []string{"bob"}, Count: 2})
	ch.expect(t, "+cat ~annx -bob 2")
	c.Send(presenceType, &wirev1.Presence{Topic: "other", Snapshot: true, Count: 9})
	// nothing new
	c.Send(presenceType, &wirev1.Presence{Topic: "room/1", Snapshot: true, Members: users("ann=x", "cat"), Count: 2})
	c.Send(presenceType, &wirev1.Presence{Topic: "room/1", Snapshot: true, Members: users("ann=y", "dan"), Count: 2})
	ch.expect(t, "+dan ~anny -cat 2")
	c.Send(presenceType, &wirev1.Presence{Topic: "room/1", Snapshot: true, CountsOnly: true, Count: 300})
	ch.expect(t, "counts 300")
	if w.Count() != 300 || len(w.Members()) != 0 {
		t.Fatalf("%d users, %v", w.Count(), w.Members())
	}
	c.Send(presenceType, &wirev1.Presence{Topic: "room/1", Snapshot: true, Members: users("ann=y"), Count: 1})
	ch.expect(t, "all +anny 1")

	// on a new connection the difference is told
	c.Close()
	c = shows(e)
	var m wirev1.Watch
	c.Expect(watchType, &m)
	c.Send(presenceType, &wirev1.Presence{Topic: "room/1", Snapshot: true, Members: users("ann=y", "eve"), Count: 2})
	ch.expect(t, "+eve 2")
	if _, err := Watch(t.Context(), s, "room/1", ch.take); pushmesh.CodeOf(err) != pushmesh.CodeAlreadyExists {
		t.Errorf("a second watch: %v", err)
	}

	// what is refused for now is asked for again, and what is refused for good ends
	c.Send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: m.GetId(), Code: wirev1.Code_CODE_OVERLOADED})
	c.Expect(watchType, &m)
	c.Send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: m.GetId(), Code: wirev1.Code_CODE_FORBIDDEN, Message: "no"})
	<-w.Done()
	if pushmesh.CodeOf(w.Err()) != pushmesh.CodeForbidden {
		t.Fatalf("it ended with %v", w.Err())
	}
	again := watching(t, s, c, ch.take, &wirev1.Presence{Topic: "room/1", Snapshot: true, Count: 0})
	ch.expect(t, "all 0")
	again.Stop()
	c.Expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{})
	if again.Err() != nil || s.Err() != nil {
		t.Fatal(again.Err(), s.Err())
	}
	if err := w.Err(); err == nil {
		t.Fatal("the first one goes on")
	}
}

// What was on its way to a watch that has ended is nothing to the next one.
func TestAWatchBeginsWithASnapshot(t *testing.T) {
	e := edgetest.New(t)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}})
	c, ch := shows(e), make(presenceLog, 10)
	watching(t, s, c, ch.take, &wirev1.Presence{Topic: "room/1", Snapshot: true, Count: 0}).Stop()
	ch.expect(t, "all 0")
	c.Expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{})
	done := make(chan error, 1)
	go func() {
		_, err := Watch(t.Context(), s, "room/1", ch.take)
		done <- err
	}()
	c.Expect(watchType, &wirev1.Watch{})
	c.Send(presenceType, &wirev1.Presence{Topic: "room/1", Members: users("bob"), Count: 1})
	c.Send(presenceType, &wirev1.Presence{Topic: "room/1", Snapshot: true, Members: users("ann", "bob"), Count: 2})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	ch.expect(t, "all +ann +bob 2")
}

// An edge that is older would end the connection at a frame that it does not know.
func TestAnOlderEdgeIsNotAskedForPresence(t *testing.T) {
	e := edgetest.New(t)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}})
	c := e.Welcome(edgetest.Plain())
	if _, err := s.Start("room/1", func(context.Context, *pushmesh.Delivery) error { return nil }); err != nil {
		t.Fatal(err)
	}
	var m wirev1.Subscribe
	c.Expect(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &m)
	c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: m.GetId(), Recovered: true})
	if _, err := Watch(t.Context(), s, "room/1", func(Change) {}); pushmesh.CodeOf(err) != pushmesh.CodeUnsupported {
		t.Errorf("a watch: %v", err)
	}
	if err := SetState(t.Context(), s, "room/1", []byte("x")); pushmesh.CodeOf(err) != pushmesh.CodeUnsupported {
		t.Errorf("a state: %v", err)
	}
	if _, err := Watch(t.Context(), s, "room/1", nil); err == nil {
		t.Error("nobody is told")
	}
}

// A state is said again where it was refused for now, and on each new connection.
func TestAStateIsSaidAgain(t *testing.T) {
	e := edgetest.New(t)
	connected := make(chan struct{}, 9)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}, OnConnect: func(pushmesh.Connection) { connected <- struct{}{} }})
	c := shows(e)
	said := make(chan error, 1)
	say := func(state string) {
		go func() { said <- SetState(t.Context(), s, "room/1", []byte(state)) }()
	}
	heard := func(want string) uint32 {
		t.Helper()
		var m wirev1.State
		if c.Expect(stateType, &m); string(m.GetState()) != want || m.GetTopic() != "room/1" {
			t.Fatalf("said %v", &m)
		}
		return m.GetId()
	}
	<-connected
	say("typing")
	c.Send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: heard("typing"), Code: wirev1.Code_CODE_RATE_LIMITED, RetryAfterMs: 5})
	c.Send(statedType, &wirev1.Stated{Id: heard("typing")})
	if err := <-said; err != nil {
		t.Fatal(err)
	}
	c.Close()
	c = shows(e)
	c.Send(statedType, &wirev1.Stated{Id: heard("typing")})
	<-connected
	say("")
	c.Send(statedType, &wirev1.Stated{Id: heard("")})
	if err := <-said; err != nil {
		t.Fatal(err)
	}
	say("no")
	c.Send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: heard("no"), Code: wirev1.Code_CODE_FORBIDDEN})
	if err := <-said; pushmesh.CodeOf(err) != pushmesh.CodeForbidden {
		t.Fatal(err)
	}
	say("later")
	heard("later")
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := <-said; err == nil {
		t.Fatal("it was never said")
	}
	if err := SetState(context.Background(), s, "room/1", nil); err == nil {
		t.Fatal("a subscriber that is closed says something")
	}
}

// A state that is emptied while another one is on its way is said until it holds.
func TestAnEmptyStateIsNotForgotten(t *testing.T) {
	e := edgetest.New(t)
	connected := make(chan struct{}, 9)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}, OnConnect: func(pushmesh.Connection) { connected <- struct{}{} }})
	c := shows(e)
	<-connected
	said := make(chan error, 2)
	var first, second wirev1.State
	go func() { said <- SetState(t.Context(), s, "room/1", []byte("typing")) }()
	c.Expect(stateType, &first)
	go func() { said <- SetState(t.Context(), s, "room/1", nil) }()
	c.Expect(stateType, &second)
	c.Send(statedType, &wirev1.Stated{Id: first.GetId()})
	if err := <-said; err != nil {
		t.Fatal(err)
	}
	c.Send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: second.GetId(), Code: wirev1.Code_CODE_RATE_LIMITED, RetryAfterMs: 5})
	// it is said again; now it is answered as if it were, and others see "typing" from then on
	again := make(chan struct{})
	go func() {
		var m wirev1.State
		c.Expect(stateType, &m)
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
	e := edgetest.New(t)
	connected := make(chan struct{}, 9)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}, OnConnect: func(pushmesh.Connection) { connected <- struct{}{} }})
	c := shows(e)
	<-connected
	said := make(chan error, 2)
	var first, second wirev1.State
	go func() { said <- SetState(t.Context(), s, "room/1", make([]byte, 2000)) }()
	c.Expect(stateType, &first)
	go func() { said <- SetState(t.Context(), s, "room/1", []byte("here")) }()
	c.Expect(stateType, &second)
	c.Send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: first.GetId(), Code: wirev1.Code_CODE_INVALID_ARGUMENT})
	c.Send(statedType, &wirev1.Stated{Id: second.GetId()})
	if one, other := <-said, <-said; (one == nil) == (other == nil) {
		t.Fatal(one, other)
	}
	r := roomOf(s)
	r.Lock()
	defer r.Unlock()
	if own := r.states["room/1"]; own == nil || string(own.value) != "here" {
		t.Fatalf("it was said, and on the next connection %v will be", own)
	}
}

// Who is refused for now does not ask ten times a second for ever.
func TestRefusedWatchesAreAskedForMoreSeldom(t *testing.T) {
	e := edgetest.New(t)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}, MinBackoff: 20 * time.Millisecond, MaxBackoff: time.Second})
	c, ch := shows(e), make(presenceLog, 10)
	watching(t, s, c, ch.take, &wirev1.Presence{Topic: "room/1", Snapshot: true, Count: 0})
	var m wirev1.Watch
	began := time.Now()
	id := uint32(1)
	for range 5 {
		c.Send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id, Code: wirev1.Code_CODE_OVERLOADED})
		c.Expect(watchType, &m)
		id = m.GetId()
	}
	if d := time.Since(began); d < (20+40+80+160+320)/2*time.Millisecond {
		t.Fatalf("5 refusals (OVERLOADED) in %v: the pause does not grow", d)
	}
}

// A state that is refused for good leaves the one before, also for the next connection; one that no
// edge could be told is not kept.
func TestARefusedStateLeavesTheOneBefore(t *testing.T) {
	e := edgetest.New(t)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}})
	c := shows(e)
	if err := s.Connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	said := func(state string, code wirev1.Code) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- SetState(t.Context(), s, "room/1", []byte(state)) }()
		var m wirev1.State
		if c.Expect(stateType, &m); string(m.GetState()) != state {
			t.Fatalf("said %v, want %q", &m, state)
		}
		if code == wirev1.Code_CODE_OK {
			c.Send(statedType, &wirev1.Stated{Id: m.GetId()})
		} else {
			c.Send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: m.GetId(), Code: code})
		}
		if err := <-done; pushmesh.CodeOf(err) != pushmesh.Code(code) {
			t.Fatalf("%q: %v", state, err)
		}
	}
	said("here", wirev1.Code_CODE_OK)
	said("away", wirev1.Code_CODE_FORBIDDEN)
	c.Close()
	c = shows(e)
	var m wirev1.State
	if c.Expect(stateType, &m); string(m.GetState()) != "here" {
		t.Fatalf("said again %v", &m)
	}
	c.Close()
	c = e.Welcome(edgetest.Plain()) // which knows no presence
	if err := s.Connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := SetState(t.Context(), s, "room/1", []byte("late")); !errors.Is(err, pushmesh.ErrUnsupported) {
		t.Fatal(err)
	}
	c.Close()
	c = shows(e)
	if c.Expect(stateType, &m); string(m.GetState()) != "here" {
		t.Fatalf("said again %v", &m)
	}
}

// A handler may say a state and watch, however much lies before the answers; a callback that the
// answer waits for can't, and is told so.
func TestPresenceFromWithin(t *testing.T) {
	e := edgetest.New(t)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}, ReceiveWindow: 4})
	c := shows(e)
	said, ch := make(chan error, 3), make(presenceLog, 10)
	first := true
	if _, err := s.Start("talk", func(_ context.Context, _ *pushmesh.Delivery) error {
		if !first {
			return nil
		}
		first = false
		said <- SetState(context.Background(), s, "room/1", []byte("typing"))
		_, err := Watch(context.Background(), s, "room/1", func(change Change) {
			said <- SetState(context.Background(), s, "room/2", []byte("here"))
			ch.take(change)
		})
		said <- err
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var m wirev1.Subscribe
	c.Expect(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &m)
	c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: m.GetId(), Recovered: true})
	talk := func() {
		for range 300 {
			c.Send(wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "talk"})
		}
	}
	c.Send(wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "talk"})
	var state wirev1.State
	c.Expect(stateType, &state)
	talk()
	c.Send(statedType, &wirev1.Stated{Id: state.GetId()})
	told := func(what string) error {
		t.Helper()
		select {
		case err := <-said:
			return err
		case <-time.After(edgetest.Patience):
			t.Fatalf("%s: the answer lies behind messages that wait for the handler that waits for it", what)
			return nil
		}
	}
	if err := told("a state"); err != nil {
		t.Fatal(err)
	}
	c.Expect(watchType, &wirev1.Watch{})
	talk()
	c.Send(presenceType, &wirev1.Presence{Topic: "room/1", Snapshot: true, Members: users("ann"), Count: 1})
	errs := []error{told("a watch"), told("a callback")}
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("a watch, and a state that is said by its callback: %v", errs)
	}
	ch.expect(t, "all +ann 1")
}
