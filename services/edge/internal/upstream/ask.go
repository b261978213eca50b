package upstream

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"

	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// tally waits for one answer of each loop.
type tally struct {
	mu   sync.Mutex
	left int
	done chan struct{}
}

func (t *tally) add(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
	if t.left--; t.left == 0 {
		close(t.done)
	}
}

func (t *tally) wait(ctx context.Context) {
	select {
	case <-t.done:
	case <-ctx.Done():
	}
}

func (o *outlets) count(ctx context.Context, topics []string) []uint64 {
	sums := make([]uint64, len(topics))
	t := &tally{left: len(o.all), done: make(chan struct{})}
	for i := range o.all {
		o.post(uint16(i), exchange.Count{Topics: topics, Reply: func(counts []uint64) {
			t.add(func() {
				for j := range min(len(counts), len(sums)) {
					sums[j] += counts[j]
				}
			})
		}})
	}
	t.wait(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]uint64(nil), sums...)
}

func (o *outlets) disconnect(ctx context.Context, d *meshv1.DisconnectClients) int {
	return sum(ctx, o.all, func(reply func(int)) exchange.Event {
		return exchange.Disconnect{ClientID: d.GetClientId(), User: d.GetUser(), Code: d.GetCode(), Reason: d.GetReason(), Reply: reply}
	})
}

func (o *outlets) setProfile(ctx context.Context, r *meshv1.ReplaceProfile) int {
	p := exchange.NewProfile(r.GetProfile(), r.GetVector())
	return sum(ctx, o.withConnections(), func(reply func(int)) exchange.Event {
		return exchange.SetProfile{ClientID: r.GetClientId(), User: r.GetUser(), Profile: p, Reply: reply}
	})
}

// rebalanceJitter is over how long those that are told together spread their coming back.
const rebalanceJitter = 500 * time.Millisecond

func (o *outlets) rebalance(ctx context.Context, r *meshv1.RebalanceConnections, addresses func() []string) int {
	return sum(ctx, o.withConnections(), func(reply func(int)) exchange.Event {
		return exchange.Rebalance{
			Share: r.GetShare(), OverMS: r.GetWithinMs(), JitterMS: uint32(rebalanceJitter.Milliseconds()), Addresses: addresses, Reply: reply,
		}
	})
}

// sum asks loops and adds up what they reply until ctx ends.
func sum(ctx context.Context, loops []*outlet, event func(reply func(int)) exchange.Event) int {
	total := 0
	t := &tally{left: len(loops), done: make(chan struct{})}
	for _, l := range loops {
		l.post(event(func(n int) { t.add(func() { total += n }) }))
	}
	t.wait(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	return total
}

// membersOfPage bounds the members in one answer.
const membersOfPage = 1000

// listMembers asks every loop. It answers nothing but the whole: who is missing from a page would
// be passed over for good.
func (o *outlets) listMembers(ctx context.Context, l *meshv1.ListMembers) (*meshv1.MemberPage, error) {
	if err := topic.Check(l.GetTopic()); err != nil {
		return nil, err
	}
	limit := min(int(l.GetLimit()), membersOfPage)
	page := &meshv1.MemberPage{}
	loops := len(o.withConnections())
	t := &tally{left: loops, done: make(chan struct{})}
	for i := range loops {
		o.post(uint16(i), exchange.ListMembers{Topic: l.GetTopic(), After: l.GetAfter(), Limit: limit, Reply: func(all []*presence.Member, more bool) {
			t.add(func() {
				page.Members = append(page.Members, all...)
				page.More = page.More || more
			})
		}})
	}
	t.wait(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left > 0 {
		return nil, fmt.Errorf("%d loops did not answer", t.left)
	}
	slices.SortFunc(page.Members, func(a, b *presence.Member) int { return cmp.Compare(a.GetConnectionId(), b.GetConnectionId()) })
	if len(page.Members) > limit {
		page.Members, page.More = page.Members[:limit], true
	}
	return page, nil
}
