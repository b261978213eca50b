package intake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const mib = 1 << 20

// from is the context of a call from an address, under a name.
func from(ctx context.Context, addr, name string) context.Context {
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), 1234))})
	return metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", name))
}

// caller enters a budget without a charge.
func (b *Budget) caller(t interface {
	Context() context.Context
	Fatal(args ...any)
}, addr, name string,
) *caller {
	c, err := b.enter(from(t.Context(), addr, name), 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fill takes pieces of n bytes until one is refused, and says how many bytes that were.
func (b *Budget) fill(t *testing.T, c *caller, n int64) (total int64) {
	t.Helper()
	for {
		err := b.take(c, 0, n)
		if err == nil {
			total += n
			continue
		}
		if e := code.From(err); e.Code != wirev1.Code_CODE_OVERLOADED || e.RetryAfter < comeBack/2 {
			t.Fatal(err)
		}
		return total
	}
}

// Whoever takes all that it gets leaves room for the next address, and for the next name at its
// own.
func TestOneCallerDoesNotUseUpTheBudget(t *testing.T) {
	b := New(256 * mib)
	greedy := b.caller(t, "10.0.0.1", "greedy")
	got := b.fill(t, greedy, mib)
	if got < 80*mib || got > 86*mib {
		t.Errorf("one name gets %d MiB, want a third", got/mib)
	}
	neighbour := b.fill(t, b.caller(t, "10.0.0.1", "neighbour"), mib)
	if neighbour < 16*mib || got+neighbour > 128*mib {
		t.Errorf("another name at its address gets %d MiB", neighbour/mib)
	}
	for i := range 100 { // who changes its name is still at its address
		got += b.fill(t, b.caller(t, "10.0.0.1", fmt.Sprint("changed ", i)), mib/4)
	}
	if got+neighbour > 128*mib {
		t.Errorf("an address gets %d MiB, want a half at most", (got+neighbour)/mib)
	}
	if other := b.fill(t, b.caller(t, "10.0.0.2", "other"), mib); other < 40*mib {
		t.Errorf("another address gets %d MiB", other/mib)
	}
}

// A large request may go beyond the share of its address, one at a time, and leaves a quarter to
// others. What can never fit is refused for good.
func TestLargeRequests(t *testing.T) {
	b := New(256 * mib)
	c := b.caller(t, "10.0.0.1", "")
	if err := b.take(c, 0, 512*mib+1); code.Of(err) != wirev1.Code_CODE_PAYLOAD_TOO_LARGE {
		t.Fatalf("more than twice the budget: %v", err)
	}
	if err := b.take(c, 0, 192*mib); err != nil {
		t.Fatal(err)
	}
	if err := b.take(c, 0, 17*mib); code.Of(err) != wirev1.Code_CODE_OVERLOADED {
		t.Errorf("a second large one: %v", err)
	}
	if err := b.take(b.caller(t, "10.0.0.2", ""), 0, 20*mib); err != nil {
		t.Errorf("another address: %v", err)
	}
	if err := b.take(c, 0, 10*mib); err != nil {
		t.Errorf("one that is not large: %v", err)
	}
	b.set(c, 192*mib, 20*mib)
	if err := b.take(c, 20*mib, 150*mib); err != nil {
		t.Errorf("it grows: %v", err)
	}
}

// What waits goes on as soon as there is room, those for whom there is room before those for whom
// there is none; who leaves waits no more.
func TestWaitingForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(64 * mib)
		greedy, modest := b.caller(t, "10.0.0.1", ""), b.caller(t, "10.0.0.2", "")
		b.keep(greedy, 32*mib)
		b.keep(modest, 10*mib)
		wait := func(ctx context.Context, c *caller, n int64) chan error {
			done := make(chan error, 1)
			go func() {
				_, _, err := b.wait(ctx, c, 0, n)
				done <- err
			}()
			synctest.Wait()
			return done
		}
		ctx, cancel := context.WithCancel(t.Context())
		left, first, second := wait(ctx, greedy, 2*mib), wait(t.Context(), greedy, 2*mib), wait(t.Context(), modest, 3*mib)
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		b.keep(greedy, -8*mib)
		if err := <-second; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(first) > 0 {
			t.Error("who has more than its share goes on")
		}
		b.keep(greedy, -24*mib)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if b.used != 15*mib || b.waiting != 0 {
			t.Errorf("%d bytes are used, %d wait", b.used, b.waiting)
		}
	})
}

// Whatever calls do, nobody loses count, who has something to take is refused only where the rule
// says so, and no more than all is used.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const all = 1000
		b := New(all)
		type piece struct {
			c *caller
			n int64
		}
		var open []piece
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(open) > 0 && rapid.Bool().Draw(t, "less") {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				to := rapid.Int64Range(0, open[i].n).Draw(t, "to")
				b.set(open[i].c, open[i].n, to)
				open[i].n = to
				if to == 0 {
					b.leave(open[i].c, 0)
					open = append(open[:i], open[i+1:]...)
				}
				continue
			}
			c := b.caller(t, rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}).Draw(t, "addr"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"))
			n := rapid.Int64Range(0, 2*all+100).Draw(t, "n")
			free, large := all-b.used, c.origin.large
			held, own := c.origin.used, c.used
			if n <= all/16 {
				held, own = held-c.origin.bulk, own-c.bulk
			}
			charged := min(n, b.most())
			may := n <= 2*all && (n == 0 || n <= b.most() && held+n <= free && own+n <= free-held ||
				n <= b.most() && n > all/16 && large == 0 && b.used+n <= b.most() || n > all/16 && b.larges == 0 && b.used+charged <= all)
			if err := b.take(c, 0, n); may != (err == nil) {
				t.Fatalf("%d more of %d free: %v", n, free, err)
			} else if err == nil {
				open = append(open, piece{c, charged})
			} else {
				b.leave(c, 0)
			}
			if b.used > all {
				t.Fatalf("%d are used", b.used)
			}
		}
		var sum int64
		for _, h := range open {
			sum += h.n
		}
		if sum != b.used {
			t.Fatalf("%d are used, %d counted", sum, b.used)
		}
		for _, h := range open {
			b.set(h.c, h.n, 0)
			b.leave(h.c, 0)
		}
		if b.used != 0 || len(b.origins) != 0 {
			t.Fatalf("%d are left, of %d addresses", b.used, len(b.origins))
		}
	})
}

// An address with very many calls that want to be decoded, and a name with very many at the same
// address, have one turn for each of others'.
func TestTurnsGoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(64 * mib)
		for range b.turns.free {
			if !b.turns.enter(t.Context(), &b.caller(t, "10.0.0.1", "crowd").line) {
				t.Fatal("no turn is free")
			}
		}
		turns := make(chan string, 1000)
		join := func(ctx context.Context, addr, name string) {
			go func() {
				if b.turns.enter(ctx, &b.caller(t, addr, name).line) {
					turns <- name
				} else {
					turns <- "gave up"
				}
			}()
			synctest.Wait()
		}
		for range 100 {
			join(t.Context(), "10.0.0.1", "crowd")
		}
		ctx, cancel := context.WithCancel(t.Context())
		join(ctx, "10.0.0.2", "left")
		cancel()
		synctest.Wait()
		if got := <-turns; got != "gave up" {
			t.Fatal(got)
		}
		join(t.Context(), "10.0.0.2", "other")
		join(t.Context(), "10.0.0.1", "neighbour")
		seen := map[string]int{}
		for i := range 4 {
			b.turns.leave()
			synctest.Wait()
			if len(turns) == 0 {
				t.Fatal("nobody has the turn")
			}
			seen[<-turns] = i
		}
		if seen["other"] > 1 || seen["neighbour"] > 2 || len(seen) != 3 {
			t.Errorf("turns: %v", seen)
		}
		<-time.After(2 * patience) // of synctest's clock: who waits longer is refused
		for len(turns) > 0 {
			if got := <-turns; got != "gave up" {
				t.Error(got)
			}
		}
		for range 2 * len(b.origins) * 100 {
			b.turns.leave()
		}
		if len(b.turns.ring) != 0 {
			t.Error("somebody who left is still in the ring")
		}
	})
}

// Who comes again at once after each refusal is answered late, as many as there is room for; a few
// refusals are forgiven, and all of another address.
func TestRefusalsOfTheImpatientAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(16 * mib)
		for _, addr := range []string{"10.0.0.1", "10.0.0.2"} {
			b.caller(t, addr, "")
		}
		took := func(addr string) time.Duration {
			began := time.Now()
			b.punish(from(t.Context(), addr, ""), began)
			return time.Since(began)
		}
		for range forgiven {
			if d := took("10.0.0.1"); d != 0 {
				t.Fatalf("a refusal is kept back for %v", d)
			}
		}
		if d := took("10.0.0.1"); d != penalty {
			t.Errorf("one more is kept back for %v", d)
		}
		for _, addr := range []string{"10.0.0.2", "10.0.0.3"} {
			if d := took(addr); d != 0 {
				t.Errorf("one of %s is kept back for %v", addr, d)
			}
		}
		b.late = penalised
		if d := took("10.0.0.1"); d != 0 {
			t.Errorf("with no room, one is kept back for %v", d)
		}
		b.late = 0
		<-time.After(2 * time.Second) // of synctest's clock
		if d := took("10.0.0.1"); d != 0 {
			t.Errorf("after two seconds one is kept back for %v", d)
		}
	})
}
