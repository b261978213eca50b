package groups

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// crowd is an edge alone with a store that grants everything at once: each group has a topic and a
// member of its own, which ACKs what it gets.
type crowd struct {
	*Groups
	acked  chan uint64 // seqs of the first group's messages
	joined chan error

	// What the store does before it answers, for a group by its name, nil: nothing; an error is its
	// answer.
	asked func(ctx context.Context, name string) error
	logs  uint64       // head of all logs, as reads find it
	deaf  atomic.Bool  // members do not ACK
	ended atomic.Int64 // members
	here  map[string]int
}

func newCrowd(b testing.TB, change func(*Config)) *crowd {
	c := &crowd{acked: make(chan uint64, 1), joined: make(chan error, 1<<16)}
	cfg := Config{
		Edge: "a", Incarnation: 1, Loop: 9, Store: c, Mesh: c, Durable: func(string) bool { return true },
		MaxAttempts: func(string) uint32 { return 5 }, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	c.Groups = New(cfg)
	if err := c.Start(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.work.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return c
}

func (c *crowd) AttachSession(ctx context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	if c.asked != nil {
		if err := c.asked(ctx, req.GetName()); err != nil {
			return nil, err
		}
	}
	return &meshv1.AttachSessionResponse{Generation: 1}, nil
}

func (c *crowd) RenewLeases(ctx context.Context, req *meshv1.RenewLeasesRequest) *meshv1.RenewLeasesResponse {
	resp := &meshv1.RenewLeasesResponse{}
	for _, l := range req.GetLeases() {
		answer := wirev1.Code_CODE_OK
		if c.asked != nil && c.asked(ctx, l.GetName()) != nil {
			answer = wirev1.Code_CODE_UNAVAILABLE
		}
		resp.Codes = append(resp.Codes, answer)
	}
	return resp
}

func (c *crowd) Join(conn exchange.Conn, sub uint32, filter string, _ bool, _ int) {
	c.Groups.Post(exchange.Joined{Conn: conn, Sub: sub, Heads: []exchange.Head{{Topic: filter, Epoch: 1, Oldest: 1}}})
}

func (c *crowd) HasMembers(filter string, has bool) {
	if c.here == nil {
		return
	}
	if has {
		c.here[filter]++
	} else if c.here[filter]--; c.here[filter] == 0 {
		delete(c.here, filter)
	}
}

func (c *crowd) Leave(uint16, string) {}

func (c *crowd) Read(_ uint16, name string, _, from, _ uint64, _ int) {
	r := exchange.Range{Topic: name, From: from, Epoch: 1, Oldest: 1, Head: c.logs}
	for seq := from; seq <= c.logs; seq++ {
		r.Messages = append(r.Messages, message1(name, seq))
	}
	c.Groups.Post(r)
}

func (c *crowd) Save(conn exchange.Conn, ref uint32, _ *meshv1.SessionWrite, _ bool) {
	if ref > 0 {
		c.Groups.Post(exchange.Saved{Conn: conn, Ref: ref})
	}
}

func (c *crowd) Hold(exchange.Conn, string, string, uint64) {}

func (c *crowd) Post(_ uint16, e exchange.Event) {
	switch e := e.(type) {
	case exchange.GroupJoined:
		c.joined <- e.Err
	case exchange.GroupEnded:
		c.ended.Add(1)
	case exchange.Assigned:
		if c.deaf.Load() {
			return
		}
		for _, m := range e.Messages {
			c.SettleGroup([]exchange.GroupSettled{{Conn: e.Conn, Sub: e.Sub, Message: m}})
			if e.Conn.Slot == 0 {
				c.acked <- m.Seq
			}
		}
	}
}

// ask makes groups from to, each of a connection's subscription; answers come by joined.
func (c *crowd) ask(from, to int) {
	for i := from; i < to; i++ {
		c.JoinGroup(exchange.Conn{Slot: uint32(i / 1000)}, uint32(i), &exchange.GroupJoin{Group: "g", Filter: fmt.Sprint("t/", i), Window: 10})
	}
}

// fill has n groups made.
func (c *crowd) fill(b testing.TB, n int) {
	c.joinAll(b, n, func(i int) { c.ask(i, i+1) })
}

// joinAll asks n times to join a group. Only so many wait at a time: what waits for long is
// refused.
func (c *crowd) joinAll(b testing.TB, n int, ask func(i int)) {
	const atATime = 1000
	for asked := range n + atATime {
		if asked < n {
			ask(asked)
		}
		if asked < atATime {
			continue
		}
		if err := <-c.joined; err != nil {
			b.Fatal(err)
		}
	}
}

// publish has the first group's member get and ACK a message.
func (c *crowd) publish(b testing.TB, seq uint64) {
	c.Groups.Post(exchange.Live{Messages: []*exchange.Message{message1("t/0", seq)}})
	if got := <-c.acked; got != seq {
		b.Fatalf("%d came instead of %d", got, seq)
	}
}

func message1(name string, seq uint64) *exchange.Message {
	body, err := wire.Body(&wirev1.Message{Payload: []byte("x")})
	if err != nil {
		panic(err)
	}
	return &exchange.Message{Topic: name, Epoch: 1, Seq: seq, Frame: wire.AppendMessage(nil, name, seq, body)}
}

// do has something done in the goroutine of the groups.
func (c *crowd) do(f func()) {
	done := make(chan struct{})
	c.ops.Do(func() {
		f()
		close(done)
	})
	<-done
}

// asks is an edge whose members are asked what they have; it answers nothing.
type asks struct {
	mu sync.Mutex
	at []time.Time
}

// otherEdge is the incarnation of the edge b.
const otherEdge = 7

// request is Config.Request.
func (a *asks) request(_ context.Context, _ string, frame []byte) ([]byte, error) {
	f := &meshv1.GroupFrame{}
	if err := proto.Unmarshal(frame, f); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, op := range f.GetOps() {
		if op.GetAsk() != nil {
			a.at = append(a.at, time.Now())
		}
	}
	return proto.Marshal(&meshv1.GroupFrameReply{EdgeIncarnation: otherEdge})
}

// times at which members were asked.
func (a *asks) times() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.at)
}

// says has a member of the edge b say something to the dispatcher of the first group, in the n-th
// frame.
func (c *crowd) says(t *testing.T, n uint64, j *meshv1.GroupJoin) {
	t.Helper()
	frame, err := proto.Marshal(&meshv1.GroupFrame{EdgeId: "b", EdgeIncarnation: otherEdge, Link: 1, N: n, Ops: []*meshv1.GroupOp{{
		Group: "g", Filter: "t/0", Member: 1, Op: &meshv1.GroupOp_Join{Join: j},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	c.Receive(frame, func([]byte) error { return nil })
}

// What of a group has ended is kept nowhere.
func TestGroupsThatEndedAreKeptNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, nil)
		const n = 1000
		c.fill(t, n)
		var kept []weak.Pointer[dispatcher]
		var members []weak.Pointer[member]
		c.do(func() {
			for _, d := range c.dispatchers {
				kept = append(kept, weak.Make(d))
			}
			for _, m := range c.members {
				members = append(members, weak.Make(m))
			}
		})
		if len(kept) != n || len(members) != n {
			t.Fatalf("%d dispatchers, %d members", len(kept), len(members))
		}
		for i := range n {
			c.LeaveGroup(exchange.Conn{Slot: uint32(i / 1000)}, uint32(i))
		}
		pass(2 * emptyFor)
		c.do(func() {})
		c.do(func() {
			for what, n := range map[string]int{
				"groups": len(c.groups), "members": len(c.members), "members by id": len(c.byID), "dispatchers": len(c.dispatchers), "releases": len(c.releasing),
				"neighbours": len(c.neighbours), "owners": len(c.owners), "audiences": len(c.hearing.filters), "readers": len(c.hearing.readers), "fans": len(c.hearing.fanned),
				"times": c.due.Len(), "setup": c.setup.Len(), "busy": c.busy.Len(), "filters": c.hearing.of.Len(), "bytes": int(c.bounds.memory.Used()),
			} {
				if n != 0 {
					t.Errorf("%d %s are left", n, what)
				}
			}
		})
		runtime.GC()
		runtime.GC()
		left := 0
		for i := range kept {
			if kept[i].Value() != nil || members[i].Value() != nil {
				left++
			}
		}
		if left > 0 {
			t.Errorf("%d of %d groups are still reachable", left, n)
		}
	})
}

// A store that hangs holds up its own groups, and nobody else's leases or joins.
func TestAStoreThatHangsHoldsUpItsOwnGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(name string) bool { return strings.HasSuffix(name, "7") }
		c := newCrowd(t, func(cfg *Config) {
			cfg.Owner = func(_, name string) string { return fmt.Sprint(slow(name)) }
		})
		c.fill(t, 3000)
		hung := make(chan struct{})
		c.do(func() {
			c.asked = func(ctx context.Context, name string) error {
				select {
				case <-hung:
				default:
					if slow(name) {
						<-ctx.Done()
						return errAway
					}
				}
				return nil
			}
		})
		c.ask(3000, 5000) // 200 of them of the store that hangs
		for range 1800 {
			if err := <-c.joined; err != nil {
				t.Fatal(err)
			}
		}
		pass(4 * defaultLease)
		held := func() (good, lost int) {
			c.do(func() {
				for _, d := range c.dispatchers {
					if time.Now().Before(d.until) {
						good++
					} else {
						lost++
					}
				}
			})
			return good, lost
		}
		if good, lost := held(); good != 4500 || lost != 300 {
			t.Errorf("%d groups have a lease, %d have not", good, lost)
		}
		close(hung)
		pass(defaultLease)
		if good, lost := held(); good < 4800 || lost != 0 {
			t.Errorf("once the store answers %d groups have a lease, %d have not", good, lost)
		}
		for range 200 {
			_ = c.told()
		}
	})
}

// Without a lease nothing is assigned, from the moment when it ends.
func TestEphemeralMessagesEndWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, nil)
		c.fill(t, 1)
		var until time.Time
		c.do(func() {
			c.asked = func(context.Context, string) error { return errAway }
			for _, d := range c.dispatchers {
				until = d.until
			}
		})
		say := func() {
			c.Groups.Post(exchange.Live{Messages: []*exchange.Message{{Topic: "t/0"}}})
			synctest.Wait()
		}
		pass(time.Until(until) - time.Millisecond)
		say()
		pass(2 * time.Millisecond)
		say()
		say()
		if c.Stats.Assigned.Load() != 1 || c.Stats.NoMember.Load() != 2 || len(c.acked) != 1 {
			t.Errorf("%d were assigned, %d went to nobody", c.Stats.Assigned.Load(), c.Stats.NoMember.Load())
		}
	})
}

// However many groups there are, a member that has a message for long is asked after 5 s.
func TestAuditsComeInTimeAmongManyGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen asks
		c := newCrowd(t, func(cfg *Config) { cfg.Request = seen.request })
		c.fill(t, 5000)
		c.says(t, 1, &meshv1.GroupJoin{Window: 10})
		c.LeaveGroup(exchange.Conn{}, 0)
		pass(3 * time.Second)
		began := time.Now()
		c.Groups.Post(exchange.Live{Messages: []*exchange.Message{message1("t/0", 1)}})
		pass(11 * time.Second)
		if asked := seen.times(); len(asked) != 2 || asked[0].Sub(began).Round(100*time.Millisecond) != 5*time.Second || asked[1].Sub(began).Round(100*time.Millisecond) != 10*time.Second {
			t.Errorf("asked at %v, the message came at %v", asked, began)
		}
	})
}

// A topic that very many groups want does not keep the messages of others waiting, and each group
// gets its messages in order.
func TestATopicOfManyGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, nil)
		const n = 500
		for i := range n {
			c.JoinGroup(exchange.Conn{Slot: 1}, uint32(i), &exchange.GroupJoin{Group: fmt.Sprint(i), Filter: "t/1", Window: 10})
		}
		for range n {
			if err := <-c.joined; err != nil {
				t.Fatal(err)
			}
		}
		for seq := range uint64(3) {
			c.Groups.Post(exchange.Live{Messages: []*exchange.Message{message1("t/1", seq+1)}})
		}
		synctest.Wait()
		c.do(func() {
			for _, d := range c.dispatchers {
				if at, _ := d.core.Save(true); len(at) != 1 || at[0].GetFloor() != 3 || len(at[0].GetAcked()) > 0 {
					t.Fatalf("%s is at %v", d.of.name, at)
				}
			}
			if c.lives.Load() != 0 {
				t.Errorf("%d messages wait", c.lives.Load())
			}
		})
		if got := c.Stats.Assigned.Load(); got != 3*n || c.Stats.Redelivered.Load() != 0 {
			t.Errorf("%d were assigned", got)
		}
	})
}
