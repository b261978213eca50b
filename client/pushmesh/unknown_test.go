package pushmesh

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// saysUnknown fails where an error says that something was certainly not done.
func saysUnknown(t *testing.T, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !e.Unknown {
		t.Errorf("%v says that nothing was done", err)
	}
}

// A message whose answer a connection took with it may have been published, whatever comes of the
// next try: a refusal, one that it is too large for, the end of the Subscriber.
func TestAPublishThatMayHaveBeen(t *testing.T) {
	for name, x := range map[string]struct {
		next *wirev1.Welcome
		end  func(s *Subscriber, c *edgeConn)
		is   error
	}{
		"refused the second time": {seldom, func(_ *Subscriber, c *edgeConn) {
			c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: c.publish().GetId(), Code: wirev1.Code_CODE_RATE_LIMITED, RetryAfterMs: 20})
		}, ErrRateLimited},
		"too large for the next edge": {&wirev1.Welcome{Version: 1, HeartbeatMs: seldom.GetHeartbeatMs(), MaxFrame: 50}, func(*Subscriber, *edgeConn) {}, ErrFrameTooLarge},
		"closed after the second try": {seldom, func(s *Subscriber, c *edgeConn) {
			c.publish()
			go func() { _ = s.Close(context.Background()) }()
		}, ErrClosed},
		"closed before it": {nil, func(s *Subscriber, _ *edgeConn) { go func() { _ = s.Close(context.Background()) }() }, ErrClosed},
		"refused for good": {seldom, func(_ *Subscriber, c *edgeConn) {
			c.publish()
			c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_FORBIDDEN})
		}, ErrForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			inSubs(t, func(t *testing.T, s *Subscriber, e *fakeEdge, c *edgeConn) {
				done := publishing1(s, ClientMessage{Topic: "room/a", DedupeKey: "k", Payload: make([]byte, 100)})
				c.publish()
				c.close()
				if x.next != nil {
					c = e.welcomeWith(x.next)
				} else {
					synctest.Wait()
				}
				x.end(s, c)
				p := <-done
				saysUnknown(t, p.err)
				if !errors.Is(p.err, x.is) {
					t.Errorf("%v, want %v inside", p.err, x.is)
				}
			})
		})
	}
	inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
		// what was answered is known
		done := publishing1(s, ClientMessage{Topic: "room/a", DedupeKey: "k"})
		c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: c.publish().GetId(), Code: wirev1.Code_CODE_RATE_LIMITED})
		var e *Error
		if p := <-done; !errors.As(p.err, &e) || e.Unknown {
			t.Errorf("refused: %v", p.err)
		}
	})
}

// So may a token have been taken, and a session may have kept a filter.
func TestOtherCallsThatMayHaveBeenDone(t *testing.T) {
	for name, end := range map[string]func(s *Subscriber, c *edgeConn, cancel func()){
		"the connection ends":   func(_ *Subscriber, c *edgeConn, _ func()) { c.close() },
		"it is closed":          func(s *Subscriber, _ *edgeConn, _ func()) { go func() { _ = s.Close(context.Background()) }() },
		"nobody waits any more": func(_ *Subscriber, _ *edgeConn, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
				ctx, cancel := context.WithCancel(t.Context())
				synctest.Wait() // for the Welcome: before it there is nobody to hand a token to
				done := failed(func(context.Context) error { _, err := s.RefreshToken(ctx, "new"); return err })
				c.expect(wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN, &wirev1.RefreshToken{})
				end(s, c, cancel)
				saysUnknown(t, <-done)
			})
		})
	}
	inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
		s.cfg.Session = "s"
		sub := c.start(s, "room/a", fine, FromSession())
		c.subscribed(7, 0, true)
		done := failed(sub.Unsubscribe)
		c.expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{})
		c.close()
		saysUnknown(t, <-done)
	})
}
