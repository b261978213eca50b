package pushmesh

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A Hello that nobody answered may take the session from the connection made after it, once its
// edge goes on: that does not end the subscriber. A second loss of the session does.
func TestAHelloOfItsOwnThatTakesTheSessionBack(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, Session: "phone", ClientID: "ann"})
	frozen, _ := e.accept()
	frozen.close()
	for range 2 {
		c := e.welcome()
		select {
		case <-s.Done():
			t.Fatal("ended with ", s.Err())
		default:
		}
		c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_SESSION_TAKEN_OVER})
	}
	select {
	case <-s.Done():
	case <-time.After(patience):
		t.Fatal("goes on")
	}
	if CodeOf(s.Err()) != CodeSessionTakenOver {
		t.Fatal("ended with ", s.Err())
	}
}

func TestAGhostIsForgotten(t *testing.T) {
	why := &Error{Code: CodeSessionTakenOver}
	var g ghost
	if g.left(why); g.took(why) {
		t.Error("a refusal is an answer")
	}
	if g.left(&link.Unanswered{Addr: "a:1", Err: why}); g.took(&Error{Code: CodeForbidden}) || !g.took(why) || g.took(why) {
		t.Error("it takes the session, and once")
	}
	g.left(&link.Unanswered{Addr: "a:1", Err: why})
	if g.at = g.at.Add(-ghostFor); g.took(why) {
		t.Error("after its time")
	}
}
