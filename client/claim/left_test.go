package claim

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A claim that waits for room among those that are unanswered, and that its program gives up while
// there is no connection, is not asked for on the next one: nobody would release what it gets.
func TestAClaimThatIsGivenUpBeforeItIsSent(t *testing.T) {
	inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, e *fakeEdge, c *edgeConn) {
		for i := range askWindow {
			claiming(s, fmt.Sprint("seat/", i))
			c.claim(wirev1.Claim_OP_ACQUIRE)
		}
		ctx, cancel := context.WithCancel(t.Context())
		late := failed(func(context.Context) error { _, err := Join(ctx, s, "seat/late"); return err })
		synctest.Wait()
		c.Close()
		synctest.Wait()
		cancel()
		if err := <-late; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		c = e.welcomeWith(seldom)
		for range askWindow {
			m := c.claim(wirev1.Claim_OP_ACQUIRE)
			if m.GetResource() == "seat/late" {
				t.Error("what was given up is asked for")
			}
			c.state(m, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_QUEUED, Position: 1})
		}
		c.quiet(time.Minute)
	})
}

// LEAVE of a claim that is given up ends a watch beside it at the edge, too: it is asked again.
func TestAWatchOutlivesAClaimThatIsGivenUp(t *testing.T) {
	inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, _ *fakeEdge, c *edgeConn) {
		watching := failed(func(ctx context.Context) error { _, err := Watch(ctx, s, "seat/1", func(Info) {}); return err })
		c.state(c.claim(wirev1.Claim_OP_WATCH), &wirev1.ClaimState{State: wirev1.ClaimState_STATE_FREE})
		if err := <-watching; err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		late := failed(func(context.Context) error { _, err := Join(ctx, s, "seat/1"); return err })
		c.claim(wirev1.Claim_OP_ACQUIRE)
		cancel()
		if err := <-late; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		c.state(c.claim(wirev1.Claim_OP_LEAVE), &wirev1.ClaimState{State: wirev1.ClaimState_STATE_RELEASED})
		c.state(c.claim(wirev1.Claim_OP_WATCH), &wirev1.ClaimState{State: wirev1.ClaimState_STATE_FREE})
	})
}

// The pause of a watch that was refused is over with its connection: the next one asks at once, and
// what it refuses has a pause of its own.
func TestAWatchIsNotAskedByThePauseOfAnEarlierConnection(t *testing.T) {
	inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, e *fakeEdge, c *edgeConn) {
		failed(func(ctx context.Context) error { _, err := Watch(ctx, s, "seat/1", func(Info) {}); return err })
		c.refuseClaim(c.claim(wirev1.Claim_OP_WATCH), &wirev1.Error{Code: wirev1.Code_CODE_OVERLOADED, RetryAfterMs: 5000})
		synctest.Wait()
		c.Close()
		c = e.welcomeWith(seldom)
		m := c.claim(wirev1.Claim_OP_WATCH)
		began := time.Now()
		c.refuseClaim(m, &wirev1.Error{Code: wirev1.Code_CODE_OVERLOADED, RetryAfterMs: 20_000})
		c.claim(wirev1.Claim_OP_WATCH)
		if d := time.Since(began); d < 20*time.Second {
			t.Errorf("asked again after %v, and not after 20 s", d)
		}
	})
}
