package turns

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/peer"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// few is turns of which so many are taken at a time.
func few(n int) *Turns {
	t := New(nil)
	t.free = n
	return t
}

func addr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }

// enter has a turn entered by a goroutine; the channel is closed when it is.
func enter(c *Turn) chan struct{} {
	in := make(chan struct{})
	go func() {
		c.Enter()
		close(in)
	}()
	synctest.Wait()
	return in
}

func has(in chan struct{}) bool {
	select {
	case <-in:
		return true
	default:
		return false
	}
}

// However many addresses always have more to do, one that had little is next.
func TestWhoHadLittleIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hostile = 100
		turns := few(1)
		honest := turns.of(addr(1000))
		var all []*Turn
		var waiting []chan struct{}
		for i := range hostile {
			all = append(all, turns.of(addr(i)))
			waiting = append(waiting, enter(all[i]))
		}
		holds := 0
		for round := range 500 {
			var in chan struct{}
			if round >= 2*hostile && round%50 == 0 { // all have had something
				in = enter(honest)
			}
			all[holds].leave(most)
			synctest.Wait()
			if in != nil {
				if !has(in) {
					t.Fatalf("round %d: the honest one waits behind others", round)
				}
				honest.leave(0)
				synctest.Wait()
			}
			waiting[holds] = enter(all[holds])
			holds = -1
			for i, w := range waiting {
				if has(w) && turns.holding(all[i]) {
					holds = i
				}
			}
			if holds < 0 {
				t.Fatalf("round %d: nobody has the turn", round)
			}
		}
		for _, c := range append(all, honest) {
			c.Close()
		}
		synctest.Wait()
		if turns.free != 1 || len(turns.sources) != 0 {
			t.Errorf("%d turns are free, %d addresses are known", turns.free, len(turns.sources))
		}
	})
}

func (t *Turns) holding(c *Turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.holds
}

// An address with a hundred connections gets as many turns as one with one.
func TestAddressesShareAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := few(1)
		all := []*Turn{turns.of(addr(2))}
		for range 100 {
			all = append(all, turns.of(addr(1)))
		}
		for _, c := range all {
			enter(c)
		}
		got := map[netip.Addr]int{}
		for range 400 {
			c := turns.holders[0]
			got[c.source.addr]++
			c.leave(time.Millisecond)
			synctest.Wait()
			enter(c)
		}
		if got[addr(1)] != 200 || got[addr(2)] != 200 {
			t.Errorf("turns: %v", got)
		}
		for _, c := range all {
			c.Close()
		}
		synctest.Wait()
	})
}

// A turn that does not end, such as that of a connection whose client takes no answers, holds
// nobody up for long.
func TestATurnThatDoesNotEndIsHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := few(2)
		stuckOnes := []*Turn{turns.of(addr(1)), turns.of(addr(2))}
		for _, c := range stuckOnes {
			c.Enter()
		}
		honest := turns.of(addr(3))
		began := time.Now()
		honest.Enter()
		if waited := time.Since(began); waited > 2*stuck {
			t.Errorf("it waits for %v", waited)
		}
		honest.Leave()
		for _, c := range stuckOnes {
			c.Leave()
		}
		if turns.free != 2 || len(turns.holders) != 0 {
			t.Errorf("%d are free, %d are held", turns.free, len(turns.holders))
		}
		for _, c := range append(stuckOnes, honest) {
			c.Close()
		}
		synctest.Wait()
	})
}

// An address whose turn did not end goes behind the others, whoever of its own waits.
func TestWhoIsStuckGoesBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := few(1)
		first, second := turns.of(addr(1)), turns.of(addr(1))
		first.Enter() // and it does not leave
		honest := turns.of(addr(2))
		again := enter(second)
		in := enter(honest)
		<-time.After(2 * stuck)
		synctest.Wait()
		if !has(in) || has(again) {
			t.Error("the next of the same address comes before another address")
		}
		for _, c := range []*Turn{honest, second, first} {
			c.Close()
		}
		synctest.Wait()
	})
}

// Whatever happens in whatever order, no turn is lost or doubled, and nobody waits while one is
// free.
func TestNoTurnIsLost(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		// rapid has no goroutines of its own
		synctest.Test(t, func(*testing.T) {
			n := rapid.IntRange(1, 3).Draw(r, "at a time")
			turns := few(n)
			type user struct {
				turn *Turn
				in   chan struct{} // nil: it is out
			}
			var users []*user
			for i := range rapid.IntRange(1, 12).Draw(r, "users") {
				users = append(users, &user{turn: turns.of(addr(i % 4))})
			}
			for range rapid.IntRange(1, 100).Draw(r, "steps") {
				u := users[rapid.IntRange(0, len(users)-1).Draw(r, "who")]
				switch rapid.IntRange(0, 9).Draw(r, "what") {
				case 0:
					u.turn.Close()
				case 1:
					<-time.After(stuck)
				default:
					if u.in == nil {
						u.in = enter(u.turn)
					} else if has(u.in) {
						u.turn.leave(time.Duration(rapid.IntRange(0, 3000).Draw(r, "took")) * time.Microsecond)
						u.in = nil
					}
				}
				synctest.Wait()
				waiting := 0
				for _, u := range users {
					if u.in != nil && !has(u.in) {
						waiting++
					}
				}
				turns.mu.Lock() // a timer looks at them as well
				free, held := turns.free, len(turns.holders)
				turns.mu.Unlock()
				if free+held != n {
					r.Fatalf("%d are free and %d are held, of %d", free, held, n)
				}
				if free > 0 && waiting > 0 {
					r.Fatalf("%d are free, and %d wait", free, waiting)
				}
			}
			for _, u := range users {
				u.turn.Close()
			}
			synctest.Wait()
			<-time.After(3 * stuck) // the timer's last look
			for i, u := range users {
				if u.in != nil && !has(u.in) {
					r.Fatalf("user %d waits for ever", i)
				}
			}
			turns.mu.Lock()
			defer turns.mu.Unlock()
			if turns.free != n || len(turns.sources)+len(turns.waiting) != 0 {
				r.Fatalf("%d are free, %d addresses are known, %d wait", turns.free, len(turns.sources), len(turns.waiting))
			}
		})
	})
}

// What is read in pieces is what was sent; a connection that ends gives its turn back.
func TestConnectionsAreReadWhole(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	turns := few(1)
	in := turns.Listen(l)
	defer func() { _ = in.Close() }()
	sent := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	ended := make(chan error, 3)
	for range cap(ended) {
		client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = client.Write(sent)
			_ = client.Close()
		}()
		server, err := in.Accept()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			got, err := io.ReadAll(server)
			if err == nil && !bytes.Equal(got, sent) {
				err = fmt.Errorf("%d bytes came, not what was sent", len(got))
			}
			_, _ = server.Close(), server.Close()
			ended <- err
		}()
	}
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	turns.mu.Lock()
	defer turns.mu.Unlock()
	if turns.free != 1 || len(turns.sources) != 0 {
		t.Errorf("%d turns are free, %d addresses are known", turns.free, len(turns.sources))
	}
}

// A connection that is read while another one has the turn waits, and its piece shrinks where the
// work for it takes long.
func TestPiecesFollowTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		turns := few(1)
		c := &conn{Conn: server, turn: turns.of(netip.Addr{}), piece: mostPiece}
		go func() {
			_, _ = client.Write(make([]byte, 1<<20))
			_ = client.Close()
		}()
		b := make([]byte, mostPiece)
		for i, want := range []int{mostPiece, mostPiece / 2, mostPiece / 4} {
			if n, err := c.Read(b); n != want || err != nil {
				t.Fatalf("read %d: %d bytes, %v", i, n, err)
			}
			<-time.After(2 * long) // the work
		}
		for want := mostPiece / 8; want <= mostPiece; want *= 2 {
			if n, err := c.Read(b); n != want || err != nil {
				t.Fatalf("%d bytes, %v", n, err)
			}
		}
		_ = c.Close()
		_ = client.Close()
	})
}

// A call takes the turns of its caller's address; where there are none it never waits.
func TestTurnsOfACall(t *testing.T) {
	var none *Turns
	none.Of(t.Context()).Enter()
	none.Of(t.Context()).Leave()
	none.Of(t.Context()).Close()
	turns := few(1)
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[2001:db8:1:2::3]:80"))})
	for want, ctx := range map[netip.Addr]context.Context{netip.MustParseAddr("2001:db8:1:2::"): ctx, {}: t.Context()} {
		c := turns.Of(ctx)
		if c.source.addr != want {
			t.Errorf("%v, want %v", c.source.addr, want)
		}
		c.Close()
		c.Close()
	}
}

// Nobody takes turns while the server is in time, or while one address alone calls.
func TestTurnsAreTakenOnlyWhereTheyHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := false
		turns := New(func() bool { return late })
		a, again, b := turns.of(addr(1)), turns.of(addr(1)), turns.of(addr(2))
		taken := func(c *Turn) bool {
			c.Enter()
			defer c.Leave()
			return turns.holding(c)
		}
		for i, step := range []struct {
			late bool
			by   *Turn
			want bool
		}{
			{true, a, false}, // it can't know yet, and others may never come
			{true, again, false},
			{false, b, false},
			{true, b, true}, // another one came before
			{true, a, true},
			{true, again, true},
			{false, again, false},
			{true, again, true},
		} {
			if late = step.late; taken(step.by) != step.want {
				t.Errorf("step %d: turns are taken: %v", i, !step.want)
			}
		}
		<-time.After(together)
		if taken(a) || taken(again) {
			t.Error("turns are taken though an address has been alone for long")
		}
		for _, c := range []*Turn{a, again, b} {
			c.Close()
		}
	})
}

// One address alone takes no turns, though it may come anew for each call.
func TestAnAddressThatComesAnewIsNoOther(t *testing.T) {
	turns := New(func() bool { return true })
	for i := range 3 {
		c := turns.of(addr(1))
		if c.Enter(); turns.holding(c) {
			t.Errorf("connection %d takes turns", i)
		}
		c.Leave()
		c.Close()
	}
}

func BenchmarkTurn(b *testing.B) {
	for name, late := range map[string]func() bool{"needed": nil, "not needed": func() bool { return false }} {
		b.Run(name, func(b *testing.B) {
			c := New(late).of(addr(1))
			for b.Loop() {
				c.Enter()
				c.Leave()
			}
		})
	}
}
