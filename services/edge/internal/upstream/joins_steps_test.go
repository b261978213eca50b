package upstream

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// While very many join, leave and join again, all of which is done in slices, routers come, ask for
// everything, and NATS comes back. Each join is answered once; one whose subscription stays is
// answered well. In the end routers hold what is wanted, no more and no less, and nobody waits.
func TestVeryManyJoinsAreAnsweredOnce(t *testing.T) {
	const names, joins = 4000, 12_000
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 18))
			w := newWorld(t)
			m, loops := w.edge("e1", 1)
			edgetest.WaitFor(t, "a router", func() error { return hasRouter(m) })
			var mu sync.Mutex
			answers, failed := make([]int, joins), map[uint32]error{}
			l := loops[0]
			l.mu.Lock()
			l.forget = true
			l.onPost = func(e exchange.Event) {
				if j, ok := e.(exchange.Joined); ok {
					mu.Lock()
					defer mu.Unlock()
					if answers[j.Sub]++; j.Err != nil {
						failed[j.Sub] = j.Err
					}
				}
			}
			l.mu.Unlock()
			held := map[string][]uint32{}
			left := map[uint32]bool{}
			var second *edgetest.Router
			for sub := range uint32(joins) {
				name := fmt.Sprintf("cursor/%d", rnd.IntN(names))
				if subs := held[name]; len(subs) > 0 && rnd.IntN(2) == 0 {
					m.Leave(0, name)
					left[subs[len(subs)-1]] = true
					held[name] = subs[:len(subs)-1]
				}
				m.Join(conn(0, 1), sub, name, rnd.IntN(2) == 0, 0)
				held[name] = append(held[name], sub)
				switch rnd.IntN(1500) {
				case 0:
					m.ops.Do(m.gap)
				case 1:
					m.ops.Do(func() { m.snapshot("r1") })
				case 2:
					m.ops.Do(func() { m.checkAll("gap") })
				case 3:
					if second == nil {
						second = edgetest.NewRouter(t, w.nats, "r2", "e1")
					}
				}
			}
			edgetest.WaitFor(t, "all answers", func() error {
				mu.Lock()
				defer mu.Unlock()
				for sub, n := range answers {
					if n != 1 {
						return fmt.Errorf("join %d is answered %d times", sub, n)
					}
				}
				return nil
			})
			for sub, err := range failed {
				if !left[sub] || code.Of(err) != wirev1.Code_CODE_CANCELLED {
					t.Fatalf("join %d, whose subscription has left: %v, is told %v", sub, left[sub], err)
				}
			}
			var want []string
			for name, subs := range held {
				if len(subs) > 0 {
					want = append(want, name)
				}
			}
			w.router.WaitHolds(want...)
			if second != nil {
				second.WaitHolds(want...)
			}
			if n := m.joins.waiting.Load(); n != 0 {
				t.Errorf("%d wait", n)
			}
		})
	}
}
