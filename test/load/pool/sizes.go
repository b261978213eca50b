package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// sizeCallers call at the same time, more than the largest pool serves.
const sizeCallers = 128

// sizeRounds are measured one after the other, of which the median counts: the machine has other
// things to do.
const sizeRounds = 3

// sizes measures cursor writes, a transaction with one fsync each, with pools of many sizes. A size
// of 0 is the default with the adaptive limit.
func (b *bench) sizes(ctx context.Context) error {
	all := []int{1, 2, 4, 8, 16, 20, 32, 64, 0}
	rounds := map[int][]*result{}
	for range sizeRounds {
		for _, size := range all {
			r, err := b.size(ctx, size)
			if err != nil {
				return fmt.Errorf("size %d: %w", size, err)
			}
			rounds[size] = append(rounds[size], r)
		}
	}
	for _, size := range all {
		rs := rounds[size]
		slices.SortFunc(rs, func(a, b *result) int { return cmp.Compare(a.rate, b.rate) })
		median := rs[len(rs)/2]
		name := fmt.Sprintf("cursor writes, pool of %d", size)
		if size == 0 {
			name = "cursor writes, default pool with the adaptive limit"
		}
		b.Add(table.Figure(name, median.rate, "/s", fmt.Sprintf("%s; of %.0f to %.0f/s", median, rs[0].rate, rs[len(rs)-1].rate)))
	}
	return nil
}

func (b *bench) size(ctx context.Context, size int) (r *result, err error) {
	defer try.Catch(&err)
	n := try.Get(startNode(ctx, store.Settings{DB: b.pg.URL(), DBMaxConns: size, DBFixed: size > 0}))
	defer func() { err = errors.Join(err, n.stop(ctx)) }()
	generations := make([]uint64, sizeCallers)
	user := func(i int) string { return fmt.Sprint("user", i) }
	for i := range generations {
		resp := try.Get(n.api.AttachSession(ctx, &meshv1.AttachSessionRequest{User: user(i), Name: "s", EdgeId: "edge"}))
		generations[i] = resp.GetGeneration()
	}
	floor := make([]uint64, sizeCallers)
	write := func(ctx context.Context, i int) error {
		floor[i]++
		_, err := n.api.WriteCursors(ctx, &meshv1.WriteCursorsRequest{Writes: []*meshv1.SessionWrite{{
			User: user(i), Name: "s", Generation: generations[i], Cursors: []*meshv1.SessionCursor{{Topic: "room/1", Epoch: 1, Floor: floor[i]}},
		}}})
		return err
	}
	load(ctx, sizeCallers, b.Span/4, write) // opens connections, plans statements
	return load(ctx, sizeCallers, b.Span/2, write), nil
}
