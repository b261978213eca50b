package book

import (
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// prepared is one for whom a resource is got ready. It waits, keeps its turn whoever comes, and
// nobody else gets its slot.
type prepared struct {
	token uint64
	// p is nil where the place has ended. Its slot stays taken until the call ends, so that no two
	// of them get the same slot of a resource ready.
	p *place
	// done: the call went well, and grants with smaller tokens are to come first.
	done bool
}

// fill gives what is free to those who are next. While somebody is prepared without need (the
// policy has changed) nobody goes ahead with a greater token.
func (b *Book) fill(r *resource, now uint64) {
	b.offerPrepared(r, now)
	for r.room() > 0 && r.inLine() > 0 && !r.shard.short() {
		p := r.line.First()
		if at, why := p.end(); at <= now {
			b.lose(p, why)
			continue
		}
		if r.rules.Prepare == nil && len(r.prepared) > 0 {
			return
		}
		r.leave(p)
		if r.rules.Prepare == nil {
			b.offer(p, r.shard.number(), now)
		} else {
			b.prepare(p)
		}
	}
}

// prepare has the resource got ready for one who is in the line no more.
func (b *Book) prepare(p *place) {
	r := p.r
	token := r.shard.number()
	r.prepared = append(r.prepared, prepared{token: token, p: p})
	r.shard.calls[token] = r
	p.preparing = true
	if p.node != nil {
		r.tied++
	}
	b.step.Prepare = append(b.step.Prepare, Prepare{p.key(), token, r.name, p.owner, r.rules.Prepare})
	b.moved(r)
}

// Prepared says how the call for one ended. One who has left since, or whose shard was dropped, is
// nobody.
func (b *Book) Prepared(now uint64, key backend.ClaimKey, token uint64, ok bool) {
	b.now = now
	s := b.shards[key.Shard]
	if s == nil || s.calls[token] == nil {
		return
	}
	r := s.calls[token]
	delete(s.calls, token)
	b.expire(r, now)
	i := slices.IndexFunc(r.prepared, func(a prepared) bool { return a.token == token })
	switch p := r.prepared[i].p; {
	case p != nil && ok:
		r.prepared[i].done = true
	case p != nil:
		b.lose(p, wirev1.Code_CODE_UNAVAILABLE)
		fallthrough
	default:
		r.prepared = slices.Delete(r.prepared, i, i+1)
	}
	b.moved(r)
	b.fill(r, now)
}

// offerPrepared offers to those whose call went well, in the order of their tokens.
func (b *Book) offerPrepared(r *resource, now uint64) {
	for len(r.prepared) > 0 && r.prepared[0].done {
		a := r.prepared[0]
		if at, why := a.p.end(); at <= now {
			b.lose(a.p, why)
			continue
		}
		r.prepared = slices.Delete(r.prepared, 0, 1)
		r.shifted = true
		if a.p.node != nil {
			r.tied--
		}
		b.offer(a.p, a.token, now)
	}
}

// offer grants to one who waited and is in the line no more: it has to take it up.
func (b *Book) offer(p *place, token, now uint64) {
	b.grant(p, token, now)
	wait := p.r.rules.WaitTTL
	if p.node != nil && p.node.up {
		wait = p.r.rules.OfferTTL
	}
	p.offered = later(now, wait)
	b.arm(p)
	b.push(p, b.granted(p, now))
}

func (b *Book) grant(p *place, token, now uint64) {
	p.token, p.granted, p.notified, p.preparing = token, now, 0, false
	p.expires = p.holdEnd(now, 0)
	p.r.holds = append(p.r.holds, p)
	b.holders++
	b.step.Counts.Waits = append(b.step.Counts.Waits, float64(now-min(now, p.joined))/1e6)
	b.arm(p)
	b.changed(p)
	b.moved(p.r)
}

// lose ends a place that its owner did not give up.
func (b *Book) lose(p *place, why wirev1.Code) {
	b.push(p, &wirev1.ClaimState{Resource: p.r.name, State: wirev1.ClaimState_STATE_LOST, Token: p.token, Code: why})
	b.remove(p, why)
}

// give ends a place that an operation gave up; its connection is notified, unless that is the one
// that asked.
func (b *Book) give(p *place, op *Op) *wirev1.ClaimState {
	st := &wirev1.ClaimState{Resource: p.r.name, State: wirev1.ClaimState_STATE_RELEASED, Token: p.token}
	if p.node == nil || !p.node.is(op) || p.conn != op.GetConn() {
		b.push(p, st)
	}
	b.remove(p, wirev1.Code_CODE_OK)
	return st
}

func (b *Book) remove(p *place, why wirev1.Code) {
	r := p.r
	switch {
	case p.holds():
		r.drop(p)
		b.holders--
	case p.preparing:
		i := slices.IndexFunc(r.prepared, func(a prepared) bool { return a.p == p })
		if r.prepared[i].p = nil; r.prepared[i].done {
			r.prepared = slices.Delete(r.prepared, i, i+1)
		}
		r.shifted = true
		if p.node != nil {
			r.tied--
		}
	default:
		r.leave(p)
	}
	p.ended = true
	b.cut(p)
	b.wakes.drop(p)
	delete(r.shard.places, placeID{r, p.owner})
	b.places--
	b.step.Counts.ended(why)
	b.changed(p)
	b.moved(r)
}
