package delivery

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A session has its positions still where a subscription of it ended because nobody answers; not
// where it is not allowed any more.
func TestASessionOutlivesSilence(t *testing.T) {
	for _, silent := range []bool{true, false} {
		w, _, p := permitted(t, map[string]time.Duration{"subscribe open/1": 10 * time.Second})
		c := w.hello(&wirev1.Hello{Token: "t", ClientId: "phone", Session: "inbox", HeartbeatMs: 600_000})
		c.expect("Welcome")
		c.subscribeSession("open/1")
		p.answer(nil, c)
		w.mesh.Send("open/1", "a", "b")
		w.settle()
		c.expect("Subscribed 1 head=0", "open/1/1 subs=[1]", "open/1/2 subs=[1]")
		c.ack("open/1", 1, false)
		want := wirev1.Code_CODE_FORBIDDEN
		if silent {
			p.refuses, want = code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "down"), wirev1.Code_CODE_UNAVAILABLE
			w.pass(12 * time.Second)
		} else {
			for len(p.asked) == 0 {
				w.pass(Tick)
			}
			delete(p.allowed, "subscribe open/1")
			p.answer(nil)
		}
		c.take()
		c.ended1(want)
		s := w.mesh.Session("ann", "inbox")
		if !silent {
			if len(s.Filters) != 0 || len(s.Cursors) != 0 {
				t.Fatalf("the session has %v still", s)
			}
			continue
		}
		if len(s.Filters) != 1 || s.Cursors["open/1"].GetFloor() != 1 {
			t.Fatalf("the session has lost its position: %v, %v", s.Filters, s.Cursors)
		}
		w.mesh.Append("open/1", "c")
		p.refuses = nil
		c.subscribeSession("open/1")
		p.answer(nil, c)
		c.expect("Subscribed 1 head=3", "open/1/2 attempt=1 subs=[1]", "open/1/3 subs=[1]")
		c.ack("open/1", 3, true)
		w.pass(300 * time.Millisecond)
		if at := w.mesh.Session("ann", "inbox").Cursors["open/1"].GetFloor(); at != 3 {
			t.Fatalf("the position is %d", at)
		}
	}
}
