// Package ownership divides the shards among the stores that live: each takes its share of what
// nobody owns, and fences an owner that fell silent. The database decides who lives and who is
// silent: all stores see the same one, also where NATS is away or in two halves. Beats over NATS
// are the fast hint that a store came, or leaves.
package ownership

import (
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Spread is the share of one store: the shards, in as many equal ranges as there are stores, go to
// the stores in the order of their ids. Every store that sees the same ones comes to the same
// answer.
func Spread(ids []string, me string) []int {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	i, found := slices.BinarySearch(ids, me)
	if !found {
		return nil
	}
	first, end := i*topic.Shards/len(ids), (i+1)*topic.Shards/len(ids)
	share := make([]int, 0, end-first)
	for s := first; s < end; s++ {
		share = append(share, s)
	}
	return share
}

// heard is the last beat of another store, and when it came.
type heard struct {
	beat *meshv1.StoreBeat
	at   time.Time
}

// living names the stores that take part: those that the database saw, and those heard within
// silence, less those that say that they leave.
func living(seen []string, beats map[string]heard, now time.Time) (ids []string) {
	ids = slices.Clone(seen)
	for id, h := range beats {
		if now.Sub(h.at) < silence {
			ids = append(ids, id)
		}
	}
	return slices.DeleteFunc(ids, func(id string) bool {
		h := beats[id] // of one that was never heard, long ago
		return now.Sub(h.at) < silence && h.beat.GetLeaving()
	})
}

// ranges joins shards with the same owner.
func ranges(owners map[int]backend.Owner) (all []*meshv1.OwnersResponse_Range) {
	for s := range topic.Shards {
		o, ok := owners[s]
		if !ok {
			continue
		}
		if n := len(all) - 1; n >= 0 && all[n].GetLast() == uint32(s)-1 && all[n].GetStoreId() == o.StoreID && all[n].GetAddress() == o.Address {
			all[n].Last = uint32(s)
			continue
		}
		all = append(all, &meshv1.OwnersResponse_Range{First: uint32(s), Last: uint32(s), StoreId: o.StoreID, Address: o.Address})
	}
	return all
}
