package book

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Apply does an operation: the step has its answer. CONFLICT: the shard of its resource was not
// loaded.
func (b *Book) Apply(now uint64, op Op) {
	b.now = now
	st, err := b.apply(now, &op)
	a := Answer{Ref: op.Ref, State: st}
	if e := code.From(err); e != nil {
		a.Code, a.Error, a.RetryAfter, a.State = e.Code, e.Message, e.RetryAfter, nil
		b.step.Counts.refused(e.Code)
	} else if c := st.GetCode(); c != wirev1.Code_CODE_OK {
		b.step.Counts.refused(c)
	}
	b.step.Answers = append(b.step.Answers, a)
}

func (b *Book) apply(now uint64, op *Op) (*wirev1.ClaimState, error) {
	if err := check(op); err != nil {
		return nil, err
	}
	s := b.shards[topic.Shard(op.GetResource())]
	if s == nil {
		return nil, code.New(wirev1.Code_CODE_CONFLICT, "another store owns the shard of this resource")
	}
	r := s.resources[op.GetResource()]
	p := b.own(r, op, now)
	switch op.GetKind() {
	case meshv1.ClaimOp_KIND_ACQUIRE:
		return b.acquire(s, r, p, op, now)
	case meshv1.ClaimOp_KIND_RENEW:
		return b.extend(p, op, now)
	case meshv1.ClaimOp_KIND_RELEASE:
		return b.release(r, p, op, now)
	case meshv1.ClaimOp_KIND_LEAVE:
		return b.giveUp(r, p, op, now), nil
	case meshv1.ClaimOp_KIND_WATCH:
		return b.startWatch(s, r, p, op, now)
	case meshv1.ClaimOp_KIND_UNWATCH:
		if r != nil {
			b.unwatchBy(op, r)
		}
		return b.resourceState(r, op.GetResource(), now), nil
	case meshv1.ClaimOp_KIND_UNTIE:
		if p != nil && p.node != nil && p.node.is(op) && p.conn == op.GetConn() {
			b.untie(p, now)
		}
		return b.state(r, p, op, now), nil
	}
	b.takeUp(p, op, now)
	return b.state(r, p, op, now), nil // CHECK
}

// own is the place of an operation's owner, after all that is over at the resource has ended; nil:
// it has none.
func (b *Book) own(r *resource, op *Op, now uint64) *place {
	if r == nil {
		return nil
	}
	b.expire(r, now)
	id := placeID{r, op.GetOwner()}
	if p := r.shard.places[id]; p != nil {
		if at, why := p.end(); at <= now {
			b.lose(p, why)
		}
	}
	b.fill(r, now)
	return r.shard.places[id]
}

// state is that of the owner's place, or else of the resource.
func (b *Book) state(r *resource, p *place, op *Op, now uint64) *wirev1.ClaimState {
	if p == nil {
		return b.resourceState(r, op.GetResource(), now)
	}
	st := b.placeState(p, now)
	if p.node != nil && p.node.is(op) && p.conn == op.GetConn() {
		p.notified = st.GetPosition()
	}
	return st
}

// heard of an owner: notices of its place, if it has one, go to the connection of the operation.
// Without one a tie stays as it is; but who asks for a place whose connection is gone has come back
// to poll.
func (b *Book) heard(p *place, op *Op, now uint64) {
	if p == nil {
		return
	}
	p.heard = now
	switch {
	case op.GetConn() != 0 && op.Node != "":
		b.tie(p, op)
	case p.gone != 0:
		p.gone = 0
		b.changed(p)
	}
	b.arm(p)
}

// unanswered is heard, of an owner whose answer does not report its place: a tie that is new is
// pushed the position.
func (b *Book) unanswered(p *place, op *Op, now uint64) {
	b.heard(p, op, now)
	if p != nil && p.node != nil && !p.holds() && p.notified == 0 {
		p.r.shifted = true
		b.moved(p.r)
	}
}

// takeUp is heard, of an owner that is notified of what it was granted.
func (b *Book) takeUp(p *place, op *Op, now uint64) {
	b.heard(p, op, now)
	if p != nil && p.offered != 0 {
		p.offered = 0
		b.changed(p)
	}
}

// extend is RENEW. A hold whose longest time is over ends, however early its renewal came.
func (b *Book) extend(p *place, op *Op, now uint64) (*wirev1.ClaimState, error) {
	if p == nil || !p.holds() || p.token != op.GetToken() {
		b.unanswered(p, op, now)
		return nil, code.New(wirev1.Code_CODE_NOT_HELD, "the fencing token is not that of a current hold")
	}
	if err := checkMaxTTL(op, p.r.rules); err != nil {
		return nil, err
	}
	end := p.holdEnd(now, uint64(milliseconds(op.GetTtlMs()).Microseconds()))
	if end <= now {
		b.lose(p, wirev1.Code_CODE_EXPIRED)
		b.fill(p.r, now)
		return nil, code.New(wirev1.Code_CODE_NOT_HELD, "the hold has reached the maximum duration of its namespace")
	}
	if end != p.expires {
		p.expires = end
		b.changed(p)
	}
	b.takeUp(p, op, now)
	return b.state(p.r, p, op, now), nil
}

// release is RELEASE. Nothing changes with a token that is not that of the owner's hold.
func (b *Book) release(r *resource, p *place, op *Op, now uint64) (*wirev1.ClaimState, error) {
	if p == nil || !p.holds() || p.token != op.GetToken() {
		b.unanswered(p, op, now)
		st := b.resourceState(r, op.GetResource(), now)
		st.Code = wirev1.Code_CODE_NOT_HELD
		return st, nil
	}
	if err := b.succeed(p, op, now); err != nil {
		return nil, err
	}
	st := b.give(p, op)
	b.fill(r, now)
	return st, nil
}

// giveUp is LEAVE.
func (b *Book) giveUp(r *resource, p *place, op *Op, now uint64) *wirev1.ClaimState {
	if p == nil || p.holds() && p.offered == 0 {
		b.heard(p, op, now)
		return b.state(r, p, op, now)
	}
	st := b.give(p, op)
	b.fill(r, now)
	return st
}

// startWatch is WATCH.
func (b *Book) startWatch(s *shard, r *resource, p *place, op *Op, now uint64) (*wirev1.ClaimState, error) {
	if r == nil {
		r = b.resource(s, op.GetResource())
	}
	b.moved(r)
	if !b.watchBy(b.node(op.Node, op.Incarnation), r, p == nil) {
		return nil, code.Retry(wirev1.Code_CODE_OVERLOADED, r.rules.WaitTTL/3, "too many watches")
	}
	b.takeUp(p, op, now)
	return b.state(r, p, op, now), nil
}
