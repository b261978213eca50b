package admission

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const second = int64(time.Second)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefixes(t *testing.T, all ...string) []netip.Prefix {
	t.Helper()
	p, err := ParsePrefixes("flag", all)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// However many come at a time through several loops, exactly as many are in as may be.
func TestTotalIsExact(t *testing.T) {
	d := New(Limits{Connections: 100})
	var in atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				switch why := d.Enter(); {
				case why == nil && in.Add(1) > 100:
					t.Error("too many are in")
				case why == nil:
					in.Add(-1)
					d.Leave()
				case why.Code != wirev1.Code_CODE_TOO_MANY_CONNECTIONS || why.RetryAfter < retry || why.RetryAfter > 2*retry:
					t.Error(why, why.RetryAfter)
				}
			}
		})
	}
	all.Wait()
	for n := range 100 {
		if why := d.Enter(); why != nil {
			t.Fatalf("number %d: %v", n, why)
		}
	}
	if d.Enter() == nil || d.Held() != 100 {
		t.Fatalf("%d are in", d.Held())
	}
}

func TestAddressesAreCountedOneByOne(t *testing.T) {
	d := New(Limits{AddressConnections: 2, Exempt: prefixes(t, "10.1.0.0/16", "fd00::1")})
	enter := func(s string, want wirev1.Code) (place uint32) {
		t.Helper()
		place, why := d.EnterFrom(addr(s), 0)
		if why == nil != (want == 0) || why != nil && why.Code != want {
			t.Fatalf("%s: %v, want %v", s, why, want)
		}
		return place
	}
	first := enter("192.0.2.1", 0)
	enter("::ffff:192.0.2.1", 0) // the same
	enter("192.0.2.1", wirev1.Code_CODE_TOO_MANY_CONNECTIONS)
	enter("192.0.2.2", 0)
	d.LeaveFrom(first)
	enter("192.0.2.1", 0)
	enter("2001:db8:1:2::1", 0)
	enter("2001:db8:1:2:ffff::", 0)
	enter("2001:db8:1:2:3::", wirev1.Code_CODE_TOO_MANY_CONNECTIONS) // of one /64
	enter("2001:db8:1:3::1", 0)
	for range 5 {
		if enter("10.1.2.3", 0) != 0 || enter("::ffff:10.1.2.3", 0) != 0 || enter("fd00::1", 0) != 0 {
			t.Fatal("who is exempt is counted")
		}
	}
}

// Loops that count the same few addresses at a time never let more in than may be, and in the end
// nobody is counted.
func TestAddressesAreExactAmongLoops(t *testing.T) {
	const addresses, limit = 3, 5
	c := newCounts(8) // a small table: words are given up and taken again all the time
	var in [addresses]atomic.Int64
	var all sync.WaitGroup
	for loop := range 4 {
		all.Go(func() {
			for i := range 5000 {
				n := (i + loop) % addresses
				place, ok := c.enter(uint64(n+1)<<countBits|uint64(n), limit)
				if !ok {
					continue
				}
				if in[n].Add(1) > limit {
					t.Errorf("more than %d are in", limit)
				}
				in[n].Add(-1)
				if place > 0 {
					c.leave(place)
				}
			}
		})
	}
	all.Wait()
	for i := range c.words {
		if v := c.words[i].Load(); v != 0 {
			t.Fatalf("word %d is %x", i, v)
		}
	}
}

// The table agrees with a map.
func TestCountsAreThoseOfAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 4).Draw(t, "limit")
		c := newCounts(64)
		want, places := map[uint64]int{}, map[uint64][]uint32{}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			n := rapid.Uint64Range(1, 8).Draw(t, "address")
			h := n<<countBits | n%2*31 // they begin at either end of what both reach
			if n := len(places[h]); n > 0 && rapid.Bool().Draw(t, "leave") {
				c.leave(places[h][n-1])
				places[h] = places[h][:n-1]
				want[h]--
				continue
			}
			place, ok := c.enter(h, limit)
			if ok != (want[h] < limit) || ok && place == 0 {
				t.Fatalf("%x: %v at %d of %d", h, ok, want[h], limit)
			}
			if ok {
				want[h]++
				places[h] = append(places[h], place)
			}
		}
	})
}

// Where the table is full, who comes is let in and not counted.
func TestFullTableRefusesNobody(t *testing.T) {
	c := newCounts(1)
	for n := range uint64(reach) {
		if place, ok := c.enter(n<<countBits+1<<countBits, 1); !ok || place == 0 {
			t.Fatalf("number %d: %d %v", n, place, ok)
		}
	}
	if place, ok := c.enter(1<<40, 1); !ok || place != 0 {
		t.Fatalf("%d %v", place, ok)
	}
}

func TestRateOfTheEdge(t *testing.T) {
	d := New(Limits{Rate: 10})
	taken := func(now int64) (n int) {
		for ; d.Takes(now); n++ {
			d.Came(now)
		}
		return n
	}
	if n := taken(0); n != 10 {
		t.Fatalf("%d come at once", n)
	}
	if n := taken(second / 2); n != 5 {
		t.Fatalf("%d come after half a second", n)
	}
	if n := taken(100 * second); n != 10 {
		t.Fatalf("%d come after a pause", n)
	}
	if open := New(Limits{}); !open.Takes(0) {
		t.Fatal("no limit is one")
	}
}

func TestRateOfAnAddress(t *testing.T) {
	d := New(Limits{AddressRate: 10})
	come := func(s string, now int64) (n int, wait time.Duration) {
		for {
			_, why := d.EnterFrom(addr(s), now)
			if why == nil {
				n++
				continue
			}
			if why.Code != wirev1.Code_CODE_RATE_LIMITED {
				t.Fatal(why)
			}
			return n, why.RetryAfter
		}
	}
	if n, wait := come("192.0.2.1", second); n != 10 || wait < 99*time.Millisecond || wait > 201*time.Millisecond {
		t.Fatalf("%d come at once, the next one in %v", n, wait)
	}
	if n, _ := come("192.0.2.2", second); n != 10 {
		t.Fatalf("%d come of another", n)
	}
	if n, _ := come("192.0.2.1", second+second/2); n != 5 && n != 6 {
		// times are in steps, rounded down
		t.Fatalf("%d come after half a second", n)
	}
	if n, _ := come("192.0.2.1", 100*second); n != 10 {
		t.Fatalf("%d come after a pause", n)
	}
}

// More addresses at a time than there is room for are let in.
func TestRatesAreBounded(t *testing.T) {
	r := newRates(1)
	for n := range uint64(near) {
		if r.take((n+1)<<timeBits, second) != 0 {
			t.Fatal("refused")
		}
	}
	for range 3 {
		if r.take(1000<<timeBits, second) != 0 {
			t.Fatal("who has no room is refused")
		}
	}
	if r.take(1<<timeBits, second) == 0 {
		t.Fatal("who has room is not")
	}
	if r.take(1000<<timeBits, 3*second) != 0 || r.take(1000<<timeBits, 3*second) == 0 {
		t.Fatal("a word is not given to another")
	}
}

func TestPrefixes(t *testing.T) {
	if _, err := ParsePrefixes("exempt-from", []string{"10.0.0.0/8", "nonsense", "1.2.3.4/99"}); err == nil {
		t.Fatal("nonsense is a network")
	}
	d := New(Limits{Proxies: prefixes(t, "10.0.0.0/8", "192.0.2.7", "::ffff:192.0.2.8", "fd00::/8")})
	for s, want := range map[string]bool{
		"10.9.9.9": true, "::ffff:10.9.9.9": true, "11.0.0.1": false, "192.0.2.7": true, "192.0.2.8": true, "192.0.2.9": false, "fd12::1": true, "::1": false,
	} {
		if d.Proxy(addr(s)) != want {
			t.Errorf("%s is a proxy: %v", s, !want)
		}
	}
}

func BenchmarkDoor(b *testing.B) {
	d := New(Limits{Connections: 1 << 20, AddressConnections: 100, Rate: 1e9, AddressRate: 1e5})
	from := addr("192.0.2.1")
	b.ReportAllocs()
	for i := range b.N {
		now := int64(i) * int64(time.Millisecond)
		d.Came(now)
		if d.Enter() == nil {
			place, _ := d.EnterFrom(from, now)
			d.LeaveFrom(place)
			d.Leave()
		}
	}
}

func TestOriginIsWhatCountsAsOneAddress(t *testing.T) {
	d := New(Limits{Exempt: prefixes(t, "10.1.0.0/16", "fd00::1")})
	for from, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:0:7:1::9": "2001:db8:0:7::/64", "fe80::1%eth0": "fe80::/64",
		"10.1.2.3": "", "::ffff:10.1.2.3": "", "fd00::1": "", "fd00::2": "fd00::/64",
	} {
		if got := d.Origin(addr(from)); got != want {
			t.Errorf("%s counts as %q, want %q", from, got, want)
		}
	}
	if got := d.Origin(netip.Addr{}); got != "" {
		t.Errorf("an address that is not known counts as %q", got)
	}
}
