package delivery

import (
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/wildcards"
)

// letGoTopic forgets a topic that nobody needs any more.
func (h *Hub) letGoTopic(ts *state.Topic) {
	if ts.Tracks.Len() == 0 && ts.Exact+ts.Heard == 0 && h.fan.ts != ts {
		h.replay.reads.Forget(&ts.Reads)
		delete(h.starter.firsts, ts)
		h.topics.Forget(ts)
	}
}

// wildSubs are the subscriptions with wildcards of this loop.
type wildSubs struct {
	hub   *Hub
	index wildcards.Filters[state.Subscription]
	log   wildcards.Log[state.SubscriptionRef]
}

func (w *wildSubs) subscribe(s *state.Subscription, name string) {
	f := w.index.Add(name)
	s.SubscriptionMore = w.hub.subs.Mores.Take()
	s.Wild, s.At = f, uint32(f.Subscriptions.Len())
	f.Subscriptions.Append(&w.hub.arrays, s)
}

// unsubscribe takes s out of its filter's list. Where a fan-out is walking it, those it has not
// reached stay ahead of it.
func (w *wildSubs) unsubscribe(s *state.Subscription) {
	f, at := s.Wild, int(s.At)
	if last, moves := w.hub.fan.wild.StepBack(f, at); moves {
		moved := f.Subscriptions.At(last)
		f.Subscriptions.Set(at, moved)
		moved.At = uint32(at)
		at = last
	}
	if moved := f.Subscriptions.Take(&w.hub.arrays, at); moved != nil {
		moved.At = uint32(at)
	}
	s.Wild = nil
	if f.Subscriptions.Len() > 0 {
		return
	}
	w.hub.fan.wild.Forget(f)
	w.hub.counts.Forget(f)
	w.index.Drop(f)
}
