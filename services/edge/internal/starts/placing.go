package starts

import (
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/frames"
	"github.com/pushmesh/pushmesh/services/edge/internal/sessions"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Delivery is what placing needs of the subscription and its connection. T names a position of the
// connection in a topic.
type Delivery[T any] interface {
	Filter() string
	// Shared is the position in a topic that the subscription will share, and where that is.
	Shared(topic string) (t T, epoch, pos uint64, is bool)
	// Hold has a position stay where it is until the subscription shares it; false: it is gone, or
	// there was none.
	Hold(t T) (pos uint64, held bool)
	// Subscriptions is how many the connection has that the subscription may share positions with,
	// once there are any. Awaits reports whether the i-th of them is live and has heard nothing yet
	// of a topic that it matches.
	Subscriptions() int
	Awaits(i int, topic string) bool
	// Session is that of the connection; asked for only where the subscription is the session's.
	Session() *sessions.Session
}

// Placing works out the places of one subscription, then its answer, some at a time. The zero value
// is ready.
type Placing[T any] struct {
	// Places are those that were worked out so far.
	Places []Place[T]
	// First is the write that has a session's first positions stored; nil where it is no session's.
	First *meshv1.SessionWrite

	// indexed, answered and sought say how many positions were checked and made quick to find, how
	// many places are in the answer, and how many positions were looked for in vain.
	indexed, answered, sought int
	done                      bool
	search                    walk.Search
}

// Done reports whether all places are worked out, and the answer is whole.
func (p *Placing[T]) Done() bool { return p.done }

// Step does one more thing, and says how much that was, in deliveries; what it looked at beside is
// added to cost. With an error the subscription is to be refused.
func (p *Placing[T]) Step(st *Start, a *frames.Subscribed, d Delivery[T], cost *walk.Cost) (n int, err error) {
	switch {
	case p.indexed < len(st.Positions):
		err = st.index(d.Filter(), st.Positions[p.indexed])
		p.indexed++
	case len(p.Places) < len(st.Heads):
		return p.placeNext(st, d, cost), nil
	case !a.Begun:
		a.Begun, a.Recovered = true, true
	case p.answered < len(p.Places):
		p.answer(st, a, d, &p.Places[p.answered])
		p.answered++
	case p.sought < len(st.Positions):
		st.answerUnknown(a, st.Positions[p.sought])
		p.sought++
	default:
		if p.done = true; len(st.Heads) == 0 && len(st.Positions) == 0 && st.Mode == wirev1.Start_START_AFTER_SEQ && st.Seq > 0 {
			a.Recovered = false // no log knows the topic
		}
	}
	return 1, err
}

// placeNext works out one more place, or some of what it depends on, and says how much that was.
func (p *Placing[T]) placeNext(st *Start, d Delivery[T], cost *walk.Cost) (n int) {
	if p.Places == nil {
		p.Places = make([]Place[T], 0, len(st.Heads))
		if st.Mode == wirev1.Start_START_SESSION {
			p.First = d.Session().Write()
		}
	}
	at, done, matched := p.place(st, d, st.Heads[len(p.Places)], cost)
	if !done {
		return matched
	}
	if at.Fresh {
		p.First.Cursors = append(p.First.Cursors, at.Cursor.Encode(at.Head.Topic))
	}
	p.Places = append(p.Places, at)
	delete(st.byTopic, at.Head.Topic)
	return 1 + matched
}

// place also takes into account what the connection's positions were given already. done is false
// where there is more to look at; matched is what it has cost.
func (p *Placing[T]) place(st *Start, d Delivery[T], head exchange.Head, cost *walk.Cost) (at Place[T], done bool, matched int) {
	if t, epoch, pos, is := d.Shared(head.Topic); is && epoch == head.Epoch {
		p.search = walk.Search{}
		head.Head = max(head.Head, pos)
		return Place[T]{Head: head, Pos: pos, recovered: true, Shared: t}, true, 0
	}
	if st.Mode == wirev1.Start_START_SESSION {
		return p.placeSession(st, d.Session(), head, cost)
	}
	awaited := false
	if st.Mode == wirev1.Start_START_LIVE {
		if awaited, done, matched = p.search.Step(d.Subscriptions(), func(i int) bool { return d.Awaits(i, head.Topic) }); !done {
			return at, false, matched
		}
	}
	if awaited {
		return Place[T]{Head: head, recovered: true}, true, matched
	}
	head.Oldest = max(head.Oldest, 1)
	return placeAt[T](head, st.in(head)), true, matched
}

// placeSession is where the session stands.
func (p *Placing[T]) placeSession(st *Start, s *sessions.Session, head exchange.Head, cost *walk.Cost) (at Place[T], done bool, matched int) {
	if !s.Has(head.Topic) {
		known, done, matched := p.search.Step(len(s.Filters), func(i int) bool { return topic.Match(s.Filters[i], head.Topic) })
		if !done {
			return at, false, matched
		}
		cur := &cursor.Cursor{Epoch: head.Epoch}
		if !known {
			// a filter of the session knows topics without a cursor: these appeared later
			cur.Floor = st.live(head).pos
		}
		return sessionPlace[T](head, cur, true), true, matched
	}
	p.search = walk.Search{}
	cur, size := s.Take(head.Topic)
	cost.Add(size)
	return sessionPlace[T](head, cur, false), true, 0
}

func placeAt[T any](head exchange.Head, p point) Place[T] {
	return Place[T]{Head: head, Pos: p.pos, recovered: p.recovered, last: p.last, missed: p.missed}
}

func sessionPlace[T any](head exchange.Head, cur *cursor.Cursor, fresh bool) Place[T] {
	head.Oldest = max(head.Oldest, 1)
	p, cur := resume(head, cur)
	at := placeAt[T](head, p)
	at.Cursor, at.Fresh = cur, fresh
	return at
}

// answer puts a place into the answer. A position that is shared may have gone on meanwhile; from
// here on it stays where it is until the subscription shares it.
func (p *Placing[T]) answer(st *Start, a *frames.Subscribed, d Delivery[T], at *Place[T]) {
	if pos, held := d.Hold(at.Shared); held {
		at.Pos = pos
		at.Head.Head = max(at.Head.Head, pos)
	}
	told := at.Head.Head
	if at.last {
		told = at.Pos // what is above it will come
	}
	a.Recovered = a.Recovered && at.recovered
	a.Missed += at.missed
	if st.wildcard {
		a.AddPosition(at.Head.Topic, at.Head.Epoch, told, at.recovered, at.missed)
		return
	}
	a.Epoch, a.Head = at.Head.Epoch, told
}

// answerUnknown puts a position into the answer if no log knows its topic.
func (st *Start) answerUnknown(a *frames.Subscribed, p *wirev1.Position) {
	if p.GetSeq() == 0 || st.byTopic[p.GetTopic()] == nil {
		return
	}
	a.Recovered = false
	if st.wildcard {
		a.AddPosition(p.GetTopic(), 0, 0, false, 0)
	}
}
