package promise

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// Kinds of faults in what lies between processes, and around them.
const (
	// Split parts NATS in two halves, whose servers and clients don't reach the others.
	Split Fault = "split NATS"
	// Slow has each statement of a store to the database take 300 to 2,000 ms longer, Failing has
	// one of five refused, break its connection before or after it is done, or never be answered,
	// and Cut has the store not reach the database at all.
	Slow    Fault = "slow statements"
	Failing Fault = "failing statements"
	Cut     Fault = "database cut off"
	// Clock sets the wall clock of one process ahead or back by an hour, and right again.
	Clock Fault = "clock set"
)

// splits part NATS: each store with half of the others, and whoever chance says.
func splits(m *procmesh.Mesh, seed uint64) (all []Victim) {
	rnd := rand.New(rand.NewPCG(seed, 2)) // #nosec G404 -- repeatable
	halves := func(name string, second func(tier string) bool) Victim {
		return Victim{
			Name: name, Kind: Split, Parts: []string{"NATS between tiers"}, Down: 6 * time.Second,
			Strike: func() error { m.Split(second); return nil },
			Back:   func() error { m.Heal(); return nil },
		}
	}
	all = append(all, halves("stores apart", func(tier string) bool { return strings.HasSuffix(tier, "-2") }))
	all = append(all, halves("stores from all others", func(tier string) bool { return strings.HasPrefix(tier, "store") }))
	return append(all, halves("at random", func(string) bool { return rnd.IntN(2) == 0 }))
}

// database is a store's way to Postgres.
type database struct {
	store      string
	proxy      *pgtest.Proxy
	statements atomic.Uint64 // that a fault met
	failed     atomic.Uint64
}

// databases makes a way for each of so many stores.
func databases(t *testing.T, base string, n int) (all []*database, urls []string) {
	t.Helper()
	for i := range n {
		p, err := pgtest.NewProxy(base)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		all, urls = append(all, &database{store: fmt.Sprintf("store-%d", i+1), proxy: p}), append(urls, p.URL(base))
	}
	return all, urls
}

// victims of it. What is done to a statement follows from how many there were before, so that a run
// can be repeated as far as any.
func (d *database) victims() []Victim {
	victim := func(kind Fault, strike, back func()) Victim {
		do := func(f func()) func() error { return func() error { f(); return nil } }
		return Victim{Name: d.store + " " + string(kind), Kind: kind, Parts: []string{d.store + "'s statements"}, Down: 4 * time.Second, Strike: do(strike), Back: do(back)}
	}
	slow := func(int) time.Duration {
		return 300*time.Millisecond + time.Duration(d.statements.Add(1)*617%1700)*time.Millisecond
	}
	failing := func(pgtest.Statement) pgtest.Fate {
		n := d.statements.Add(1)
		if n%5 > 0 {
			return pgtest.Pass
		}
		d.failed.Add(1)
		return pgtest.Fates[n/5%uint64(len(pgtest.Fates))]
	}
	return []Victim{
		victim(Slow, func() { d.proxy.Delay(slow) }, func() { d.proxy.Delay(nil) }),
		victim(Failing, func() { d.proxy.Judge(failing) }, func() { d.proxy.Judge(nil) }),
		victim(Cut, func() { d.proxy.Refuse(true) }, func() { d.proxy.Refuse(false) }),
	}
}

// clockWithin is how long a process may take to go by the clock that was set: it may be frozen or
// away.
const clockWithin = 2 * time.Minute

// clocks of stores, routers and edges are set.
func clocks(m *procmesh.Mesh) (all []Victim) {
	for _, p := range slices.Concat(m.Stores, m.Routers, m.Edges) {
		set := func(ahead time.Duration) func() error {
			return func() error {
				ctx, cancel := context.WithTimeout(context.Background(), clockWithin)
				defer cancel()
				return m.SetClock(ctx, p, ahead)
			}
		}
		for name, ahead := range map[string]time.Duration{" an hour ahead": time.Hour, " an hour behind": -time.Hour} {
			all = append(all, Victim{Name: p.Name + name, Kind: Clock, Strike: set(ahead), Back: set(0), Parts: []string{p.Name + "'s clock"}, Down: 5 * time.Second})
		}
	}
	slices.SortFunc(all, func(a, b Victim) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// clocksBite fails unless a store whose clock is set says so, and is well when it is right again;
// the others say what they go by in SetClock.
func clocksBite(t *testing.T, m *procmesh.Mesh) {
	t.Helper()
	for _, v := range clocks(m) {
		if err := v.Strike(); err != nil {
			t.Fatal(err)
		}
		for _, p := range m.Stores {
			if strings.HasPrefix(v.Name, p.Name+" ") {
				procmesh.Await(t, p.Name+" says that its clock is wrong", func() bool {
					_, body := p.Status()
					return strings.Contains(body, "clock: degraded")
				})
			}
		}
		if err := v.Back(); err != nil {
			t.Fatal(err)
		}
	}
	m.WaitReady(t)
}
