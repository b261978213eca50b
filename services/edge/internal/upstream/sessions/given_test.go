package sessions

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// end is what a loop says of a connection that ended while it attached.
func end() *meshv1.SessionWrite { return &meshv1.SessionWrite{User: "u", Name: "s", Detach: true} }

// A second connection waits for its turn and ends before that comes: whoever has the session by
// then is not asked to give it up.
func TestWhoIsGoneBeforeItsTurnTakesNothing(t *testing.T) {
	in(t, func(b *bench) {
		once := true
		b.raising = func() {
			if once {
				once = false
				b.Attach(conn(2), "u", "s", 0, 2, "")
				b.Save(conn(2), 0, end(), true)
				pass(time.Millisecond)
			}
		}
		b.Attach(conn(1), "u", "s", 0, 1, "")
		b.expect(exchange.Attached{Conn: conn(1), Generation: 1})
		pass(time.Minute)
		if len(b.events) > 0 {
			t.Errorf("the holder is told %#v for a connection that is gone", <-b.events)
		}
		if b.Attaches.Load() != 1 || b.kept() != 1 {
			t.Errorf("%d attaches, %d sessions are kept", b.Attaches.Load(), b.kept())
		}
		b.Attach(conn(3), "u", "s", 0, 3, "") // who comes then has its turn
		b.expect(exchange.Yield{Conn: conn(1)})
		b.expect(exchange.Detached{Conn: conn(1), Err: errTakenOver})
		b.expect(exchange.Attached{Conn: conn(3), Generation: 2, Resumed: true})
	})
}

// unhurried answers no question in time, and counts them.
type unhurried struct {
	Store
	asked atomic.Int64
}

func (s *unhurried) AttachSession(ctx context.Context, _ *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	s.asked.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// Very many connections wait for a store that is slow, and end: it is not asked for them, and who
// comes then does not wait for them.
func TestAStoreIsNotAskedForThoseWhoAreGone(t *testing.T) {
	const most = 20 * attachesAtATime
	in(t, func(b *bench) {
		s := &unhurried{Store: b}
		b.cfg.Store = s
		for i := range uint32(most) {
			b.Attach(conn(i), "u", string(rune('a'+i)), 0, uint64(i), "")
		}
		pass(time.Second)
		for i := range uint32(most) {
			b.Save(conn(i), 0, &meshv1.SessionWrite{User: "u", Name: string(rune('a' + i)), Detach: true}, true)
		}
		pass(2 * attachTimeout)
		synctest.Wait()
		if n := s.asked.Load(); n > 2*attachesAtATime {
			t.Errorf("the store was asked %d times, though all but %d were gone before their turn", n, attachesAtATime)
		}
		if n := b.kept(); n > 0 {
			t.Errorf("%d sessions are kept of connections that are gone", n)
		}
	})
}
