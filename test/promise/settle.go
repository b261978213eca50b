package promise

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
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

// missing logs who is still owed something, what the mesh knows of their sessions, and what the
// edges know of groups.
func (p *Play) missing(ctx context.Context, waiting map[string]*tally) {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	letters, err := p.listed(ctx)
	if err != nil {
		p.Logf("%v", err)
	}
	for name, t := range waiting {
		dead, at, sub := 0, t.first(), t.subs[0].sub
		for _, l := range letters {
			if l.Session == name && t.owed[place{topic: l.Topic, seq: l.Seq}] {
				dead++
			}
		}
		p.Logf("%s is owed %d messages after %s, of which %d are dead letters; the first is %s seq %d; %s; %s", name, len(t.owed), p.Settle, dead, at.topic, at.seq, p.heldBy(ctx, sub, at.topic), sub.ends())
	}
	if p.Groups != nil {
		p.Logf("what edges know of groups:\n%s", p.Groups(ctx))
	}
}

// heldBy is what the mesh knows of a subscriber's session, and of where it stands in a topic.
func (p *Play) heldBy(ctx context.Context, s *subscriber, topic string) (known string) {
	if !s.session {
		return "no session"
	}
	if err := p.ask(ctx, func(ctx context.Context, r router) error {
		res, err := r.sessions.Get(ctx, &pushmeshv1.SessionServiceGetRequest{User: "client:" + s.name, Name: sessionName})
		held := res.GetSession()
		known = fmt.Sprintf("held by %q under %d, connections: %d", held.GetEdge(), held.GetGeneration(), s.connections())
		for _, at := range held.GetCursors() {
			if at.GetTopic() == topic {
				known += fmt.Sprintf(", at %d of %d there", at.GetFloor(), at.GetHead())
			}
		}
		return err
	}); err != nil {
		return "its session: " + err.Error()
	}
	return known
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

// first of what is owed; there must be something.
func (t *tally) first() place {
	return slices.MinFunc(slices.Collect(maps.Keys(t.owed)), func(a, b place) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), cmp.Compare(a.seq, b.seq))
	})
}

func (t *tally) done() bool {
	for _, r := range t.subs {
		events := r.sub.events(r.n)
		r.n += len(events)
		for _, e := range events {
			switch {
			case e.Kind == Acked, e.Kind == Delivered && !t.acks:
				delete(t.owed, place{topic: e.Topic, seq: e.Seq})
			case e.Kind == Skipped: // it won't come, which is for the judge
				for seq := e.From; seq <= e.Seq; seq++ {
					delete(t.owed, place{topic: e.Topic, seq: seq})
				}
			}
		}
	}
	return len(t.owed) == 0
}
