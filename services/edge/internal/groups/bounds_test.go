package groups

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// sizes of everything that groups are noted in, once all that waits is done.
func (c *crowd) sizes() (all string) {
	synctest.Wait()
	c.do(func() {
		all = fmt.Sprint(len(c.groups), len(c.members), len(c.byID), len(c.dispatchers), len(c.releasing), len(c.neighbours), len(c.hearing.filters), c.due.Len(), c.bounds.memory.Used())
	})
	return all
}

// refused is a join's answer, which must be a refusal.
func (c *crowd) refused(t *testing.T, want wirev1.Code) *code.Error {
	t.Helper()
	err := code.From(<-c.joined)
	if err == nil || err.Code != want || err.RetryAfter <= 0 {
		t.Fatalf("answered with %v, not %v with a time to come back", err, want)
	}
	return err
}

func (c *crowd) join(conn, sub int, group, key string) {
	c.JoinGroup(exchange.Conn{Slot: uint32(conn)}, uint32(sub), &exchange.GroupJoin{Group: group, Filter: "t/0", Key: key, Window: 10})
}

// A group that is refused leaves no trace, so the next try is refused likewise, until there is
// room.
func TestTooManyGroupsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, func(cfg *Config) { cfg.Bounds.Groups = 10 })
		c.fill(t, 10)
		before := c.sizes()
		for range 3 {
			c.ask(10, 11)
			_ = c.refused(t, wirev1.Code_CODE_OVERLOADED)
			c.LeaveGroup(exchange.Conn{}, 10) // as loops do with who was refused
			if after := c.sizes(); after != before {
				t.Fatalf("%s were there, now %s", before, after)
			}
		}
		// of a group that is there
		c.JoinGroup(exchange.Conn{Slot: 3}, 1, &exchange.GroupJoin{Group: "g", Filter: "t/1", Window: 10})
		if err := <-c.joined; err != nil {
			t.Fatal(err)
		}
		c.LeaveGroup(exchange.Conn{}, 5)
		pass(2 * emptyFor)
		c.ask(10, 11)
		if err := <-c.joined; err != nil {
			t.Fatalf("there is room, and %v", err)
		}
		if n := c.Stats.Overloaded.Load(); n != 3 {
			t.Errorf("%d refusals are counted", n)
		}
	})
}

// joinFrom is join of a client of an address, and its answer.
func (c *crowd) joinFrom(conn, sub int, group, origin string) error {
	c.JoinGroup(exchange.Conn{Slot: uint32(conn)}, uint32(sub), &exchange.GroupJoin{Group: group, Filter: "t/0", Window: 10, Origin: origin})
	return c.told()
}

// wantAddressFull checks that a client is refused for its address, and leaves no trace.
func (c *crowd) wantAddressFull(t *testing.T, origin string) {
	t.Helper()
	before := c.sizes()
	err := code.From(c.joinFrom(90, 1, "one more", origin))
	if err == nil || err.Code != wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS || !strings.Contains(err.Message, "--address-groups") {
		t.Fatalf("%s is answered with %v", origin, err)
	}
	c.LeaveGroup(exchange.Conn{Slot: 90}, 1)
	if after := c.sizes(); after != before {
		t.Fatalf("%s were there, now %s", before, after)
	}
}

// One address with many connections can't take the groups of all, and takes part in those of
// others.
func TestAnAddressHasItsShareOfTheGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, func(cfg *Config) { cfg.Bounds.Groups, cfg.Bounds.Address = 12, 3 })
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range 3 {
			must(c.joinFrom(i, 1, fmt.Sprint("x", i), "x"))
		}
		c.wantAddressFull(t, "x")
		must(c.joinFrom(10, 1, "y", "y"))
		must(c.joinFrom(0, 2, "y", "x"))
		for i := range 4 { // exempt
			must(c.joinFrom(11, i, fmt.Sprint("exempt", i), ""))
		}
		c.LeaveGroup(exchange.Conn{Slot: 1}, 1)
		pass(2 * emptyFor)
		must(c.joinFrom(1, 2, "again", "x"))
		c.wantAddressFull(t, "x")
		if n := c.Stats.AddressFull.Load(); n != 2 || c.Stats.Overloaded.Load() != 0 {
			t.Errorf("%d refusals are counted", n)
		}
	})
}

// A group counts for the address of a member that is there. An address that has its share is not
// given more, so two together have no more than two shares, whoever leaves its groups to whom.
func TestAGroupCountsForWhoIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const share = 3
		c := newCrowd(t, func(cfg *Config) { cfg.Bounds.Address = share })
		hand := func(round int) { // x makes groups, and leaves them to y
			for i := range share {
				for conn, origin := range []string{"x", "y"} {
					if err := c.joinFrom(conn, 10*round+i, fmt.Sprint(round, i), origin); err != nil {
						t.Fatalf("round %d, %s: %v", round, origin, err)
					}
				}
			}
			for i := range share {
				c.LeaveGroup(exchange.Conn{Slot: 0}, uint32(10*round+i))
			}
		}
		hand(0)
		c.wantAddressFull(t, "y")
		hand(1)
		c.wantAddressFull(t, "x")
		c.wantAddressFull(t, "y")
		for round := range 2 {
			for i := range share {
				c.LeaveGroup(exchange.Conn{Slot: 1}, uint32(10*round+i))
			}
		}
		pass(2 * emptyFor)
		c.do(func() {
			if n := c.bounds.addresses.Len(); n != 0 {
				t.Errorf("%d addresses are left", n)
			}
		})
	})
}

// What is remembered of a group's ACKs is not forgotten because others ACK very much, and is
// counted.
func TestACKsOfAGroupAreNotForgottenForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 16 << 20
		c := newCrowd(t, func(cfg *Config) { cfg.Bounds.Memory = most })
		c.fill(t, 12)
		c.do(func() {
			without := c.bounds.memory.Used()
			remember := func(i, n int) *share {
				s := c.groups[fmt.Sprint("g/t/", i)]
				for seq := range uint64(n) {
					c.remember(s, message{s.filter, 1, seq})
				}
				return s
			}
			early := remember(0, 200)
			for i := range 10 {
				remember(1+i, 100_000)
			}
			late := remember(11, 200)
			for _, s := range []*share{early, late} {
				if n := s.acked.Len(); n != 200 {
					t.Errorf("%d of 200 ACKs of %s are remembered", n, s.name)
				}
			}
			if used := c.bounds.memory.Used() - without; used != int64(c.acks.Used()) || used > most/ackedPart || used < most/ackedPart*9/10 {
				t.Errorf("%d bytes are counted, %d used", used, c.acks.Used())
			}
		})
	})
}

// A connection is charged for the groups that it has made when it asks, whether the store answers
// or not, and others are not.
func TestAConnectionHasGroupsMadeAtARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, func(cfg *Config) { cfg.Bounds.Rate = 10 })
		c.asked = func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return errAway
		}
		for i := range 100 {
			c.join(1, i, fmt.Sprint(i), "")
		}
		before := c.sizes()
		for range 3 {
			c.join(1, 100, "more", "")
			if wait := c.refused(t, wirev1.Code_CODE_RATE_LIMITED).RetryAfter; wait != 100*time.Millisecond {
				t.Errorf("it may come back in %v", wait)
			}
			c.LeaveGroup(exchange.Conn{Slot: 1}, 100)
			if after := c.sizes(); after != before {
				t.Fatalf("%s were there, now %s", before, after)
			}
		}
		c.join(1, 101, "7", "") // is there already
		c.join(2, 1, "another", "")
		pass(100 * time.Millisecond)
		c.join(1, 102, "more", "")
		synctest.Wait()
		if len(c.joined) != 0 || c.Stats.RateLimited.Load() != 3 {
			t.Errorf("%d answers more, %d refusals", len(c.joined), c.Stats.RateLimited.Load())
		}
		pass(2 * joinPatience) // nobody has a dispatcher, and all are refused
		for range 103 {
			_ = c.refused(t, wirev1.Code_CODE_UNAVAILABLE)
		}
		if left := c.sizes(); !strings.HasPrefix(left, "0 0 0 0 0 0 0 0 0") {
			t.Errorf("left are %s", left)
		}
	})
}

// A newcomer with another group_key is refused, and those that are there go on, also under the next
// dispatcher, whoever asks for that.
func TestANewcomerWithAnotherKeyEndsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, nil)
		c.join(0, 0, "g", "")
		if err := <-c.joined; err != nil {
			t.Fatal(err)
		}
		for range 2 {
			before := c.sizes()
			c.join(2, 1, "g", "topic")
			if err := code.From(<-c.joined); err == nil || err.Code != wirev1.Code_CODE_CONFLICT {
				t.Fatalf("answered with %v", err)
			}
			c.LeaveGroup(exchange.Conn{Slot: 2}, 1)
			if after := c.sizes(); after != before {
				t.Fatalf("%s were there, now %s", before, after)
			}
			c.do(func() {
				for _, d := range c.dispatchers {
					c.release(d)
				}
			})
		}
		pass(time.Second)
		c.publish(t, 1)
		if n := c.ended.Load(); n != 0 {
			t.Errorf("%d members were ended", n)
		}
	})
}

// Two wait for a dispatcher, and one of them has joined before: its key counts, though the other
// one came first.
func TestTheKeyOfWhoHasJoinedCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, nil)
		c.join(0, 0, "g", "")
		_ = c.told()
		c.do(func() {
			for _, s := range c.groups { // as if it had come first, and was not answered yet
				m := &member{memberKey: memberKey{exchange.Conn{Slot: 2}, 1}, of: s, join: &exchange.GroupJoin{Key: "topic"}}
				s.members[m.id] = m
				s.dispatcher.core.LeaveEdge("a")
				c.lose(s.dispatcher)
			}
		})
		pass(time.Second)
		c.do(func() {
			for _, d := range c.dispatchers {
				if d.key != "" {
					t.Errorf("the key is %q", d.key)
				}
			}
			if len(c.dispatchers) != 1 {
				t.Errorf("%d dispatchers", len(c.dispatchers))
			}
		})
		if n := c.ended.Load(); n != 0 {
			t.Errorf("%d members were ended", n)
		}
	})
}

// Newcomers leave room for messages, and who kept messages out for lack of memory goes on as soon
// as others give some back.
func TestWhoWaitsForMemoryIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 64 << 10
		c := newCrowd(t, func(cfg *Config) { cfg.Bounds.Memory = most })
		n := 0
		for ; ; n++ {
			c.ask(n, n+1)
			if err := <-c.joined; err != nil {
				break
			}
		}
		if n < 5 || n > 50 {
			t.Fatalf("%d groups fit into %d bytes", n, most)
		}
		c.do(func() { c.bounds.memory.Add(most) }) // as if others kept that much
		c.logs = 5
		c.deaf.Store(true) // nothing is ACKed
		c.Groups.Post(exchange.Live{Messages: []*exchange.Message{message1("t/1", 5)}})
		synctest.Wait()
		pass(10 * time.Second)
		if got := c.Stats.Assigned.Load(); got != 1 || c.Stats.MemoryWaits.Load() == 0 {
			t.Fatalf("%d messages are assigned, %d waits for memory", got, c.Stats.MemoryWaits.Load())
		}
		c.do(func() { c.bounds.memory.Add(-most) })
		synctest.Wait()
		if got := c.Stats.Assigned.Load(); got != 5 {
			t.Errorf("%d messages are assigned once there is memory", got)
		}
	})
}

// What is counted for a group is about what it takes.
func TestMemoryOfGroupsIsAboutWhatTheyTake(t *testing.T) {
	const n = 5000
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	c := newCrowd(t, nil)
	before := heap()
	c.fill(t, n)
	c.do(func() {})
	taken, counted := (heap()-before)/n, c.Stats.Memory.Load()/n
	t.Logf("a group with a member takes %d bytes, %d are counted", taken, counted)
	if taken > counted*3/2 || taken < counted/2 {
		t.Errorf("a group with a member takes %d bytes, %d are counted", taken, counted)
	}
	runtime.KeepAlive(c)
}
