package delivery

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Whoever comes and goes, of a user or of none, with a session, in groups or with claims, and
// whatever is answered in whatever order, or not: what lasts by answers is what is kept, of users
// alone, and nothing is left once all have gone.
func TestPermissionsOfThoseWhoComeAndGoProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, d, p := permitted(t, map[string]time.Duration{
			"subscribe open/1": 3 * time.Second, "group open/1": time.Second, "publish open/1": time.Second, "claim seat/1": 2 * time.Second,
		})
		d.nameless = nil
		d.knows("less", "ann")
		w.answers(granted, 0)
		w.mesh.Claims.Answer = func(op *meshv1.ClaimOp) *meshv1.ClaimResult {
			return &meshv1.ClaimResult{State: &wirev1.ClaimState{Resource: op.GetResource(), State: granted, Token: 42}}
		}
		come := func(i int) *client {
			m := &wirev1.Hello{ClientId: fmt.Sprint("phone-", i), HeartbeatMs: 600_000}
			if i < 2 {
				m.Token = "t"
			}
			if i == 1 {
				m.Session = "inbox"
			}
			return w.hello(m)
		}
		clients, next := []*client{come(0), come(1), come(2)}, uint32(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			i := rapid.IntRange(0, 2).Draw(t, "client")
			c := clients[i]
			next++
			switch rapid.IntRange(0, 10).Draw(t, "op") {
			case 0:
				c.subscribe(&wirev1.Subscribe{Id: next, Filter: rapid.SampledFrom([]string{"open/1", "open/+", "mine/1"}).Draw(t, "filter"), Ack: true})
			case 1:
				c.subscribe(&wirev1.Subscribe{Id: next, Filter: "open/1", Group: "g", Ack: true})
			case 2:
				if i == 1 {
					c.subscribe(&wirev1.Subscribe{Id: next, Filter: "open/1", Start: wirev1.Start_START_SESSION, Ack: true})
				}
			case 3:
				c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: next, Topic: "open/1"})
			case 4:
				c.claim(&wirev1.Claim{Id: next, Resource: "seat/1"})
			case 5, 6:
				if n := len(p.asked); n > 0 {
					at := rapid.IntRange(0, n-1).Draw(t, "at")
					p.asked[0], p.asked[at], p.of[0], p.of[at] = p.asked[at], p.asked[0], p.of[at], p.of[0]
					var why *code.Error
					if rapid.Bool().Draw(t, "down") {
						why = code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "down")
					}
					p.answer(why, clients...)
				}
			case 7:
				if len(p.asked) > 0 { // it is lost
					p.asked, p.of, p.users = p.asked[1:], p.of[1:], p.users[1:]
				}
			case 8:
				w.pass(time.Duration(rapid.IntRange(1, 12_000).Draw(t, "ms")) * time.Millisecond)
			case 9:
				w.h.Gone(c.slot)
				w.settle()
				clients[i] = come(i)
			case 10:
				if i < 2 {
					c.refresh(next, rapid.SampledFrom([]string{"t", "less"}).Draw(t, "token"))
				}
			}
			w.settle()
			for _, c := range clients {
				c.take()
			}
			for i, c := range clients {
				if i == 2 && w.h.rooms.permissions.Kept(c.slot) > 0 {
					t.Fatal("one without a user has something by an answer")
				}
			}
		}
		for _, c := range clients {
			w.h.Gone(c.slot)
		}
		w.settle()
		if s := w.h.Stats().Permissions; s.Leases != 0 || s.Parked != 0 {
			t.Fatalf("%+v", s)
		}
		w.pass(30 * time.Second)
		for what, n := range w.h.InUse() {
			if n != 0 {
				t.Fatalf("%d %s are left", n, what)
			}
		}
	})
}
