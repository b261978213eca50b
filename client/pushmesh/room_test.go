package pushmesh

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// checks is a room of another package, as claims are: it asks what is so at resources.
type checks struct {
	ext.Host
	asks     map[uint32]chan error
	connects int
}

func checksOf(s *Subscriber) *checks {
	return ext.Attach(s, "checks", func(h ext.Host) ext.Room { return &checks{Host: h, asks: map[uint32]chan error{}} }).(*checks)
}

func (r *checks) Uses(id uint32) bool  { return r.asks[id] != nil }
func (r *checks) Owes() bool           { return len(r.asks) > 0 }
func (r *checks) Connected(*link.Conn) { r.connects++ }
func (r *checks) End(error)            {}

func (r *checks) Broken() {
	for id := range r.asks {
		r.Refused(id, &Error{Code: CodeUnavailable, Unknown: true})
	}
}

func (r *checks) Refused(id uint32, err error) bool {
	done := r.asks[id]
	if done != nil {
		done <- err
		delete(r.asks, id)
	}
	return done != nil
}

func (r *checks) Frame(t wirev1.FrameType, body []byte) (bool, error) {
	if t != wirev1.FrameType_FRAME_TYPE_CLAIM_STATE {
		return false, nil
	}
	var m wirev1.ClaimState
	if proto.Unmarshal(body, &m) != nil {
		return true, ext.ErrBadFrame
	}
	r.Refused(m.GetId(), nil)
	return true, nil
}

// check asks, and waits for the answer.
func check(ctx context.Context, s *Subscriber, resource string) error {
	r := checksOf(s)
	r.Lock()
	l, done := r.Link(), make(chan error, 1)
	if err := r.Over(); err != nil || l == nil {
		defer r.Unlock()
		if err == nil {
			err = &Error{Code: CodeUnavailable}
		}
		return err
	}
	id := r.NextID()
	if bad := l.Put(wirev1.FrameType_FRAME_TYPE_CLAIM, &wirev1.Claim{Id: id, Resource: resource, Op: wirev1.Claim_OP_CHECK}); bad != nil {
		defer r.Unlock()
		return unsent(bad)
	}
	r.asks[id] = done
	r.Wake()
	r.Unlock()
	_ = l.Flush()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return r.Waited(ctx, "no answer to a check")
	}
}

// A room of another package has one place on a Subscriber, its own answers and refusals, is told of
// connections and of the end, and its frames are checked as others.
func TestARoomOfAnotherPackage(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	if checksOf(s) != checksOf(s) {
		t.Fatal("two rooms of one name")
	}
	c := e.welcome()
	if err := s.Connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := func() (*wirev1.Claim, chan error) {
		done := make(chan error, 1)
		go func() { done <- check(t.Context(), s, "seat/1") }()
		m := &wirev1.Claim{}
		c.expect(wirev1.FrameType_FRAME_TYPE_CLAIM, m)
		return m, done
	}
	m, done := asked()
	c.send(wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, &wirev1.ClaimState{Id: m.GetId()})
	if err := <-done; err != nil {
		t.Error(err)
	}
	m, done = asked()
	c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: m.GetId(), Code: wirev1.Code_CODE_FORBIDDEN})
	if err := <-done; CodeOf(err) != CodeForbidden {
		t.Error(err)
	}
	m, done = asked()
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: m.GetId(), Code: wirev1.Code_CODE_OVERLOADED})
	if err := <-done; CodeOf(err) != CodeOverloaded {
		t.Error(err)
	}
	_, done = asked()
	if _, err := c.conn.Write([]byte{1, 0, 0, byte(wirev1.FrameType_FRAME_TYPE_CLAIM_STATE), 0xff}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; CodeOf(err) != CodeUnavailable {
		t.Error(err)
	}
	c = e.welcome()
	if err := s.Connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := checksOf(s)
	r.Lock()
	connects := r.connects
	r.Unlock()
	if connects == 0 {
		t.Error("it is not told of a connection")
	}
	_, done = asked()
	_ = s.Close(t.Context())
	if err := <-done; err == nil {
		t.Error("an answer that never came")
	}
	if err := check(t.Context(), s, "seat/1"); CodeOf(err) != CodeNone {
		t.Errorf("after the end: %v", err)
	}
}
