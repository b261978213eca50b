package groups

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"google.golang.org/protobuf/proto"
)

// What waits to be fanned out is bounded in bytes, too.
func TestMessagesThatFanOutKeepLittle(t *testing.T) {
	const n = 10000
	c := newCrowd(t, nil)
	c.joinAll(t, n, func(i int) {
		c.JoinGroup(exchange.Conn{Slot: 1}, uint32(i), &exchange.GroupJoin{Group: fmt.Sprint(i), Filter: "t/hot", Window: 10})
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	took := 0
	c.do(func() {
		for seq := range uint64(liveWaiting) {
			// as ops.Run hands over what came while a slice took its time
			if c.lives.Add(1) > liveWaiting {
				break
			}
			c.live([]*exchange.Message{message1("t/hot", seq+1)})
			took++
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
	})
	if mb := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) >> 20; mb > 64 {
		t.Errorf("%d messages of 1 byte that %d groups want keep %d MiB", took, n, mb)
	}
}

// A group whose last member left a moment ago keeps its dispatcher for emptyFor, whatever else is
// due.
func TestAGroupThatIsEmptyForAMomentIsKept(t *testing.T) {
	c := newCrowd(t, nil)
	c.fill(t, 1)
	c.do(func() {
		g := c.Groups
		var d *dispatcher
		for _, d = range g.dispatchers {
		}
		for _, m := range g.members { // as LeaveGroup in its turn
			g.drop(m)
		}
		g.say()
		d.renewAt = g.now // as it is thrice in a lease
		d.tend(g)
		if g.dispatchers[d.conn.Slot] != d {
			t.Errorf("released at once, not after %v", emptyFor)
		}
	})
}

// Messages that come while groups are being made don't gather without bound.
func TestMessagesForGroupsThatBeginDontGather(t *testing.T) {
	const n = 2000
	c := newCrowd(t, nil)
	c.do(func() {
		g := c.Groups
		conn := exchange.Conn{Slot: 1}
		for i := range n {
			s := g.share(fmt.Sprint(i), "t/hot", conn)
			s.at = "a"
			g.begin(s, &meshv1.AttachSessionResponse{Generation: 1}, g.now)
		}
		for _, d := range g.dispatchers {
			d.answered = true // as Joined, which waits for its turn, has it
		}
		for seq := range uint64(1000) { // a second's, say
			g.lives.Add(1)
			g.live([]*exchange.Message{message1("t/hot", seq+1)})
			for g.fan() {
			}
		}
		if got := g.setup.Len(); got > 2*n {
			t.Errorf("%d things wait in setup after 1000 messages, for %d groups; lives counts %d", got, n, g.lives.Load())
		}
	})
}

// Newcomers with another group_key, who come while the group changes its dispatcher, are refused
// themselves, and hold nobody up.
func TestNewcomersWithAnotherKeyHoldNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, nil)
		c.fill(t, 1)
		const others = 50
		c.do(func() {
			g := c.Groups
			for _, d := range g.dispatchers {
				g.release(d)
			}
			g.say()
			for i := range others {
				c.JoinGroup(exchange.Conn{Slot: 2}, uint32(i), &exchange.GroupJoin{Group: "g", Filter: "t/0", Window: 10, Key: "topic"})
			}
			g.ops.Do(func() { // after they have joined, before anything else
				for range others {
					if f, ok := g.setup.Pop(); ok {
						f()
					}
				}
			})
		})
		for range others {
			if err := <-c.joined; err == nil {
				t.Fatal("a newcomer with another key is a member")
			}
		}
		pass(time.Second)
		if got := c.Stats.Grants.Load(); got > 2 {
			t.Errorf("the group had %d dispatchers in turn", got)
		}
	})
}

// A group is served in the turns of who is a member, not of who has left.
func TestAGroupIsNotInTheTurnOfWhoHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, nil)
		a, b := exchange.Conn{Slot: 1}, exchange.Conn{Slot: 2}
		for _, conn := range []exchange.Conn{a, b} {
			c.JoinGroup(conn, 1, &exchange.GroupJoin{Group: "g", Filter: "t/1", Window: 10})
			_ = c.told()
		}
		c.LeaveGroup(a, 1)
		synctest.Wait()
		const n = 500
		for i := range n { // what a does then is its own
			c.JoinGroup(a, uint32(2+i), &exchange.GroupJoin{Group: "h", Filter: fmt.Sprint("u/", i), Window: 10})
		}
		for range n {
			_ = c.told()
		}
		c.do(func() {
			g := c.Groups
			for _, d := range g.dispatchers {
				if d.of.group == "h" {
					g.isBusy(d)
				}
			}
			g.live([]*exchange.Message{message1("t/1", 1)})
			for waited := 0; ; waited++ {
				d, ok := g.busy.Pop()
				if !ok {
					t.Fatal("not busy")
				}
				if d.busy = false; d.of.group == "g" {
					if waited > 2 {
						t.Errorf("b's message waits for %d groups of a, which left b's group", waited)
					}
					return
				}
			}
		})
	})
}

// An edge that drains dispatches for nobody afterwards.
func TestAnEdgeThatDrainsKeepsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, nil)
		answer := make(chan struct{})
		c.asked = func(context.Context, string) error { <-answer; return nil }
		c.ask(0, 1)
		synctest.Wait()
		c.Drain(context.Background())
		close(answer)
		pass(time.Second)
		c.do(func() {
			if n := len(c.dispatchers); n > 0 {
				t.Errorf("%d groups are dispatched here after Drain, and are handed over to nobody", n)
			}
		})
	})
}

// A dispatcher that has ended is kept nowhere, whatever another edge said before it was open.
func TestWhatASettleSaidEarlyKeepsNoDispatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, func(cfg *Config) {
			cfg.Request = func(context.Context, string, []byte) ([]byte, error) {
				return proto.Marshal(&meshv1.GroupFrameReply{EdgeIncarnation: 7})
			}
		})
		c.do(func() {
			g := c.Groups
			s := g.share("g", "t/0", exchange.Conn{Slot: 1})
			g.setAt(s, "a")
			g.begin(s, &meshv1.AttachSessionResponse{Generation: 1}, g.now)
			// b's word to the dispatcher here before this one
			g.fromMember("b", &meshv1.GroupOp{Group: "g", Filter: "t/0", Member: 1, Op: &meshv1.GroupOp_Settle{Settle: &meshv1.GroupSettle{Topic: "t/0", Epoch: 1, Seq: 1}}})
		})
		pass(3 * emptyFor)
		c.do(func() {
			if len(c.dispatchers) != 0 || len(c.neighbours) != 0 {
				t.Errorf("%d dispatchers, %d neighbours are left", len(c.dispatchers), len(c.neighbours))
			}
		})
	})
}

// What waits for a dispatcher that can't begin is bounded.
func TestNothingGathersForADispatcherThatCantBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, func(cfg *Config) { cfg.Mesh = headless{cfg.Mesh.(*crowd)} })
		const n = 5000
		for range n {
			c.JoinGroup(exchange.Conn{Slot: 1}, 1, &exchange.GroupJoin{Group: "g", Filter: "t/1", Window: 10})
			c.LeaveGroup(exchange.Conn{Slot: 1}, 1)
			synctest.Wait()
		}
		pass(5 * time.Minute)
		c.do(func() {
			for _, d := range c.dispatchers {
				t.Errorf("5 minutes after the last member has left %d words wait for the dispatcher, which asks for its heads still", len(d.waiting))
			}
		})
	})
}

// Routers are told of which filters the edge has members, as long as it has any, whatever their
// groups are and however they end.
func TestWhoHasMembersIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, nil)
		c.here = map[string]int{}
		join := func(sub uint32, group, filter string) {
			c.JoinGroup(exchange.Conn{Slot: 1}, sub, &exchange.GroupJoin{Group: group, Filter: filter, Window: 10})
			if err := <-c.joined; err != nil {
				t.Error(err)
			}
		}
		tells := func(want string) {
			t.Helper()
			synctest.Wait()
			c.do(func() {
				if got := fmt.Sprint(c.here); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			})
		}
		join(1, "g", "t/1")
		join(2, "g", "t/1")
		join(3, "other", "t/1")
		tells("map[t/1:2]")
		c.LeaveGroup(exchange.Conn{Slot: 1}, 1)
		tells("map[t/1:2]")
		c.LeaveGroup(exchange.Conn{Slot: 1}, 3)
		tells("map[t/1:1]")
		c.LeaveGroup(exchange.Conn{Slot: 1}, 2)
		c.LeaveGroup(exchange.Conn{Slot: 1}, 4) // was never one
		tells("map[]")
	})
}

type headless struct{ *crowd }

func (h headless) Join(conn exchange.Conn, sub uint32, filter string, _ bool, _ int) {
	h.Groups.Post(exchange.Joined{Conn: conn, Sub: sub, Err: errAway})
}

// A member that says that it has a message is asked after 5 s, too.
func TestWhoHasAMessageByItsOwnWordIsAskedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen asks
		c := newCrowd(t, func(cfg *Config) { cfg.Request = seen.request })
		c.fill(t, 1)
		c.PauseGroup(exchange.Conn{}, 0)
		pass(10 * time.Second) // looked at once, and then in a minute
		c.Groups.Post(exchange.Live{Messages: []*exchange.Message{message1("t/0", 1)}})
		synctest.Wait()
		began := time.Now()
		// from the dispatcher before
		c.says(t, 1, &meshv1.GroupJoin{Window: 10, Held: []*meshv1.GroupHeld{{Topic: "t/0", Epoch: 1, Seq: 1}}})
		pass(50 * time.Second)
		if asked := seen.times(); len(asked) == 0 || asked[0].Sub(began) > 6*time.Second {
			t.Errorf("asked at %v, not 5 s after %v", asked, began)
		}
	})
}

// told waits for the answer to a join.
func (c *crowd) told() error { return <-c.joined }
