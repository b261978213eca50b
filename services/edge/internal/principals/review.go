package principals

import (
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// ender ends a subscription for which denied gives a reason, and says so.
type ender func(denied func(id uint32, filter, group string) (why string)) (ended bool)

// look decides about one subscription.
type look func(end ender)

// review looks at the subscriptions of a connection, from the last to the first: what takes the
// place of one that ends was looked at.
type review struct {
	t             *Table
	c             exchange.Conn
	look          look
	alone, shared int // the next ones to look at; alone below 0: not begun
	watches       int // of topics, likewise
}

func newReview(t *Table, c exchange.Conn, l look) *review {
	return &review{t: t, c: c, look: l, alone: -1}
}

// reviewSlice is how many subscriptions are looked at in one go.
const (
	reviewSlice = 32
	// reviewLooks is how many levels of filters are compared in one go.
	reviewLooks = 256 * walk.ItemsPerUnit
)

// Step implements walk.Job.
func (j *review) Step() (done bool) {
	t, d := j.t, j.t.delivery
	if at, open := d.OpenConn(j.c.Slot); at != j.c || !open {
		return true
	}
	alone, shared := d.Subscriptions(j.c)
	if j.alone < 0 {
		j.alone, j.shared, j.watches = alone, shared, d.Watches(j.c)
	}
	j.alone, j.shared, j.watches = min(j.alone, alone), min(j.shared, shared), min(j.watches, d.Watches(j.c))
	for range reviewSlice {
		switch {
		case t.cost.Items >= reviewLooks:
			return false
		case j.alone > 0:
			j.alone--
			j.at(false, j.alone)
		case j.shared > 0:
			j.shared--
			j.at(true, j.shared)
		case j.watches > 0:
			j.watches--
			j.look(func(denied func(id uint32, filter, group string) string) bool {
				return d.EndWatchIf(j.c, j.watches, denied)
			})
		default:
			return true
		}
	}
	return false
}

func (j *review) at(shared bool, i int) {
	j.look(func(denied func(id uint32, filter, group string) string) bool {
		return j.t.delivery.EndIf(j.c, shared, i, denied)
	})
}
