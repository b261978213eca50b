package promise

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// crowdOf is how many topics a run has beside those that are subscribed to; PUSHMESH_CHAOS_TOPICS.
func crowdOf(t *testing.T) int {
	t.Helper()
	s := os.Getenv("PUSHMESH_CHAOS_TOPICS")
	if s == "" {
		return 2000
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("PUSHMESH_CHAOS_TOPICS is %q, want a number above 0", s)
	}
	return n
}

// forced has stores fold all the time, so that takeovers meet folds.
var forced = []string{"--db-fold", "100ms"}

// crowded has a crowd publish while during runs, and judges it.
func crowded(t *testing.T, p *Play, during func()) {
	t.Helper()
	c := &Crowd{Routers: p.Routers, Prefix: p.prefixes()[0], Topics: crowdOf(t), Rand: rand.New(rand.NewPCG(p.Seed, 1000))}
	if err := c.Seed(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d topics were published to", c.Topics)
	c.Start(t.Context(), 200)
	during()
	breaches, answered, err := c.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d answers of %d topics", answered, c.Topics)
	report.crowd = append(report.crowd, breaches...)
	for i, b := range breaches {
		if i == 20 {
			t.Errorf("and %d more", len(breaches)-i)
			break
		}
		t.Error(b)
	}
}

// A crowd notices a seq that is given twice, and one that is not above what was acknowledged
// before.
func TestACrowdNoticesRewoundHeads(t *testing.T) {
	c := &Crowd{Topics: 2, last: make([]place, 2), seen: map[crowdPlace]bool{}}
	for seq := uint64(1); seq <= 3; seq++ {
		c.acknowledged(c.reached(0), crowdPlace{0, 7, seq})
	}
	c.acknowledged(c.reached(1), crowdPlace{1, 7, 1})
	c.acknowledged(c.reached(1), crowdPlace{1, 8, 1}) // a new epoch
	if len(c.breaches) > 0 {
		t.Fatalf("nothing was wrong: %q", c.breaches)
	}
	c.acknowledged(place{}, crowdPlace{0, 7, 3})
	c.acknowledged(c.reached(1), crowdPlace{1, 7, 2})
	if len(c.breaches) != 2 {
		t.Errorf("breaches: %q, want two", c.breaches)
	}
}
