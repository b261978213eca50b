package promise

import (
	"cmp"
	"context"
	"time"
)

// settle waits until everyone has what they are owed, Settle at most.
func (p *Play) settle(ctx context.Context, h *History) {
	waiting := map[string]*tally{}
	for _, sub := range p.subs {
		name := cmp.Or(sub.group, sub.name)
		if waiting[name] == nil {
			waiting[name] = newTally(h, sub.topics, sub.acks())
		}
		waiting[name].subs = append(waiting[name].subs, &reading{sub: sub})
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	deadline := time.After(p.Settle)
	for {
		for name, t := range waiting {
			if t.done() {
				p.Logf("%s has everything %s after the last answer", name, time.Since(began).Round(time.Millisecond))
				delete(waiting, name)
			}
		}
		if len(waiting) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			p.missing(ctx, waiting)
			return
		}
	}
}

// missing logs who is still owed something, and what the edges know of groups.
func (p *Play) missing(ctx context.Context, waiting map[string]*tally) {
	for name, t := range waiting {
		p.Logf("%s is owed %d messages after %s", name, len(t.owed), p.Settle)
	}
	if p.Groups != nil {
		p.Logf("what edges know of groups:\n%s", p.Groups(ctx))
	}
}

// tally counts what one subscriber, or a group, still misses.
type tally struct {
	subs []*reading
	acks bool
	owed map[place]bool
}

// reading is how far a diary was read.
type reading struct {
	sub *subscriber
	n   int
}

func newTally(h *History, topics []string, acks bool) *tally {
	t := &tally{acks: acks, owed: map[place]bool{}}
	for _, topic := range topics {
		for _, m := range h.Log[topic] {
			if !acks || !poison(m.ID) {
				t.owed[place{topic: topic, seq: m.Seq}] = true
			}
		}
	}
	return t
}

func (t *tally) done() bool {
	for _, r := range t.subs {
		events := r.sub.events(r.n)
		r.n += len(events)
		for _, e := range events {
			if e.Kind == Acked || e.Kind == Delivered && !t.acks {
				delete(t.owed, place{topic: e.Topic, seq: e.Seq})
			}
		}
	}
	return len(t.owed) == 0
}
