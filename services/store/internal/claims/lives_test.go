package claims_test

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A node whose process was started again has its streams, whatever the numbers of the two; the
// process before it does not get them back by trying again, until the new one has had no stream for
// a while.
func TestANodeMayRestartWithAnyIncarnation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, newDatabase(), "a", true)
		s.ready()
		before := s.node("edge:1", 1_700_000_000_000_000)
		is(t, before.do(told("r/1", "ann", 7)), granted)
		before.cancel()
		<-before.ended
		after := s.node("edge:1", 5)
		is(t, after.do(told("r/1", "bob", 8)), queued)
		refusedStream := func() {
			t.Helper()
			again := s.node("edge:1", 1_700_000_000_000_000)
			<-again.ended
			if code.Of(again.err) != wirev1.Code_CODE_CONFLICT {
				t.Errorf("the process before: %v", again.err)
			}
		}
		refusedStream()
		pass(5 * time.Minute) // sixty times what a node without a stream is waited for
		refusedStream()
		after.cancel()
		<-after.ended
		// it lived all the while, and the other is gone
		back := s.node("edge:1", 1_700_000_000_000_000)
		is(t, back.do(op(check, "r/2", "", 0)), free)
	})
}
