package pushmesh

import (
	"testing"
	"time"

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
