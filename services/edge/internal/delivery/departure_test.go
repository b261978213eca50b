package delivery

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// told is how many GoAways each client has got, and what they said.
func told(clients []*client) (each []int, said []*wirev1.GoAway) {
	each = make([]int, len(clients))
	for i, c := range clients {
		c.take()
		for _, f := range c.got {
			if g, ok := f.m.(*wirev1.GoAway); ok {
				each[i]++
				said = append(said, g)
			}
		}
	}
	return each, said
}

func guests(w *world, n int) (all []*client) {
	for i := range n {
		all = append(all, w.connect(&wirev1.Hello{ClientId: fmt.Sprint(i)}))
	}
	return all
}

// live lets time go by, in which clients read what comes.
func live(w *world, all []*client, d time.Duration) {
	for ; d > 0; d -= 100 * time.Millisecond {
		w.pass(100 * time.Millisecond)
		told(all)
	}
}

func sum(each []int) (n int) {
	for _, k := range each {
		n += k
	}
	return n
}

// By each tick of a planned stop as many are told as the time that has passed is of the whole; the
// others are served meanwhile.
func TestDrainKeepsItsPace(t *testing.T) {
	w := newWorld(t, Limits{})
	all := guests(w, 400)
	last := all[len(all)-1]
	last.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	done := false
	w.h.Event(exchange.Drain{SpreadMS: 4000, JitterMS: 1000, DeadlineMS: 60_000, Done: func() { done = true }})
	w.settle()
	for i := 1; i < 40; i++ {
		w.pass(100 * time.Millisecond)
		each, _ := told(all)
		if n, want := sum(each), 10*i; n < want-10 || n > want+10 {
			t.Fatalf("%d are told after %d ms, want %d", n, 100*i, want)
		}
		if held := w.h.Stats().Connections; held > int64(400-10*i+30) {
			t.Fatalf("%d connections are left after %d ms", held, 100*i)
		}
	}
	w.mesh.Send("room/1", "to who is not told yet")
	w.settle()
	last.take()
	if f := last.got[len(last.got)-1]; f.text() != "room/1/1" {
		t.Errorf("the last one got %q", f.text())
	}
	live(w, all, time.Second)
	w.h.Drained()
	each, _ := told(all)
	for i, n := range each {
		if n != 1 {
			t.Errorf("client %d was told %d times", i, n)
		}
	}
	if !done || w.h.Stats().Connections != 0 {
		t.Errorf("done %v, %d connections are left", done, w.h.Stats().Connections)
	}
}

// Clients come back spread over the jitter, and no place named is everybody's first.
func TestGoAwaySpreads(t *testing.T) {
	w := newWorld(t, Limits{})
	all := guests(w, 2000)
	places := []string{"a:1", "b:1", "c:1", "d:1"}
	w.h.Event(exchange.Drain{JitterMS: 999, DeadlineMS: 60_000, Addresses: func() []string { return places }})
	w.settle()
	_, said := told(all)
	var tenths [10]int
	first := map[string]int{}
	for _, g := range said {
		if g.GetCode() != wirev1.Code_CODE_DRAINING || len(g.GetAddresses()) != len(places) {
			t.Fatalf("%v", g)
		}
		tenths[g.GetReconnectAfterMs()/100]++
		first[g.GetAddresses()[0]]++
	}
	// Each share is binomial: seven deviations are never seen.
	within := func(what string, n int, p float64) {
		if mean := 2000 * p; math.Abs(float64(n)-mean) > 7*math.Sqrt(mean*(1-p)) {
			t.Errorf("%s: %d of 2,000", what, n)
		}
	}
	for i, n := range tenths {
		within(fmt.Sprint("tenth ", i), n, 0.1)
	}
	for _, p := range places {
		within(p, first[p], 0.25)
	}
}

// A sample is as large as it should be, nobody is told twice, the others stay, and newcomers are
// welcome.
func TestRebalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, Limits{})
		n := rapid.IntRange(1, 60).Draw(t, "connections")
		share := rapid.Float64Range(0.01, 1).Draw(t, "share")
		over := rapid.Uint32Range(0, 3000).Draw(t, "over")
		all := guests(w, n)
		asked := -1
		w.h.Event(exchange.Rebalance{Share: share, OverMS: over, JitterMS: 10, Reply: func(n int) { asked = n }})
		live(w, all, time.Duration(over)*time.Millisecond+time.Second)
		if exact := share * float64(n); float64(asked) < math.Floor(exact)-1e-6 || float64(asked) > math.Ceil(exact)+1e-6 {
			t.Fatalf("%d of %d are asked for a share of %g", asked, n, share)
		}
		each, _ := told(all)
		for i, k := range each {
			if k > 1 {
				t.Fatalf("client %d was told %d times", i, k)
			}
		}
		if left := w.h.Stats().Connections; sum(each) != asked || left != int64(n-asked) {
			t.Fatalf("%d were asked, %d told, %d of %d are left", asked, sum(each), left, n)
		}
		w.connect(&wirev1.Hello{ClientId: "new"})
	})
}

// Everyone is as likely in the sample as everyone else, wherever their slots are.
func TestRebalanceChoosesAtRandom(t *testing.T) {
	const rounds, n = 400, 20
	hits := make([]int, n)
	for range rounds {
		w := newWorld(t, Limits{})
		all := guests(w, n)
		w.h.Event(exchange.Rebalance{Share: 0.25})
		w.settle()
		each, _ := told(all)
		for i, k := range each {
			hits[i] += k
		}
	}
	for i, k := range hits {
		if mean := rounds * 0.25; math.Abs(float64(k)-mean) > 7*math.Sqrt(mean*0.75) {
			t.Errorf("slot %d was chosen %d times of %d", i, k, rounds)
		}
	}
}

// What a session holds is stored when its connection was told to go, and the planned stop tells
// everyone whom a rebalance has left.
func TestDrainTakesOverARebalance(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.subscribeSession("room/1")
	w.mesh.Send("room/1", "a")
	c.expect("Welcome", "Subscribed 1 head=0", "room/1/1 subs=[1]")
	others := guests(w, 20)
	w.h.Event(exchange.Rebalance{Share: 1, OverMS: 10_000})
	live(w, others, time.Second) // some of them
	c.expect("GoAway")
	c.ack("room/1", 1, false)
	live(w, others, 500*time.Millisecond)
	if s := w.mesh.Session("client:ann", "inbox"); s.Held || s.Cursors["room/1"].GetFloor() != 1 {
		t.Errorf("held %v, cursor %v", s.Held, s.Cursors["room/1"])
	}
	before, _ := told(others)
	if n := sum(before); n == 0 || n > 4 {
		t.Errorf("%d of 20 are told after 1.5 of 10 s", n)
	}
	done := false
	w.h.Event(exchange.Drain{DeadlineMS: 5000, Done: func() { done = true }})
	n := -1
	w.h.Event(exchange.Rebalance{Share: 1, Reply: func(k int) { n = k }})
	live(w, append([]*client{c}, others...), time.Second)
	w.h.Drained()
	after, _ := told(others)
	for i, k := range after {
		if k != 1 {
			t.Errorf("client %d was told %d times", i, k)
		}
	}
	if n != 0 || !done {
		t.Errorf("a loop that drains hands on %d; done %v", n, done)
	}
}
