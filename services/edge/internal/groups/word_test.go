package groups

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// late is a store whose answers take a while.
type late struct {
	*edge
	takes time.Duration
}

func (l *late) AttachSession(ctx context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	resp, err := l.edge.AttachSession(ctx, req)
	pass(l.takes)
	return resp, err
}

// The first member is gone when the lease comes. Where the group begins is for the first one to say
// that comes then: it is not begun without a word.
func TestAGroupIsNotBegunForNobody(t *testing.T) {
	for _, later := range []time.Duration{0, 100 * time.Millisecond, time.Second, time.Minute} {
		t.Run(later.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1, 0, "a", "b")
				defer w.stop()
				w.publish(20)
				e := w.edges["a"]
				e.cfg.Store = &late{e, 300 * time.Millisecond}
				w.join("a", 1)
				pass(100 * time.Millisecond)
				e.LeaveGroup(exchange.Conn{Slot: 1}, 1)
				pass(300*time.Millisecond + later)
				w.join("a", 2)
				w.await(5 * time.Second)
				w.wantTold(2, []wirev1.Code{joined})
			})
		})
	}
}

// A member's word on a message is told once, though its edge tells of the member anew while the
// word is on its way: the message is with the member again by then, and is no dead letter.
func TestAWordCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 0, "a", "b")
		defer w.stop()
		for _, e := range w.edges {
			e.cfg.MaxAttempts = func(string) uint32 { return 2 }
		}
		b := w.edges["b"]
		b.cfg.Request = func(ctx context.Context, to string, frame []byte) ([]byte, error) {
			pass(20 * time.Millisecond)
			return w.request(ctx, to, frame)
		}
		w.join("a", 1)
		pass(time.Second)
		w.join("b", 2)
		pass(time.Second)
		w.edges["a"].LeaveGroup(exchange.Conn{Slot: 1}, 1)
		pass(time.Second)
		w.publish(6)
		pass(1200 * time.Millisecond)
		w.publish(1) // which the member lets time out, and ACKs when it comes again
		pass(5 * time.Millisecond)
		b.PauseGroup(exchange.Conn{Slot: 2}, 1)
		pass(time.Second)
		b.ResumeGroup(exchange.Conn{Slot: 2}, 1)
		w.await(5 * time.Second)
		pass(10 * time.Second)
		if n := w.edges["a"].Stats.DeadLetters.Load(); n > 0 {
			t.Errorf("%d dead letters, of a message that timed out once and was ACKed then", n)
		}
		if n := w.edges["a"].Stats.Redelivered.Load(); n == 0 {
			t.Error("nothing was delivered again")
		}
	})
}
