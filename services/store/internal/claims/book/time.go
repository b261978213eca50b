package book

import "math"

// Due is when to call Advance; false: there is nothing to wait for. It may be early, by what was
// put off since.
func (b *Book) Due() (at uint64, any bool) {
	if len(b.refresh) > 0 {
		return b.now, true
	}
	at = math.MaxUint64
	if len(b.leaves) > 0 {
		at = b.leaves[0].at
	}
	if len(b.wakes) > 0 {
		at = min(at, b.wakes[0].at)
	}
	if len(b.notices) > 0 {
		at = min(at, b.notices[0].at)
	}
	return at, at != math.MaxUint64
}

// Advance does what is due, at most about so many things; true: there is more.
func (b *Book) Advance(now uint64, most int) (more bool) {
	b.now = now
	for most > 0 {
		switch {
		case len(b.leaves) > 0 && b.leaves[0].at <= now:
			most -= b.leave(b.leaves[0].what, now, most)
		case len(b.wakes) > 0 && b.wakes[0].at <= now:
			b.wake(b.wakes[0].what, now)
			most--
		case len(b.refresh) > 0:
			b.renew(now)
			most--
		case len(b.notices) > 0 && b.notices[0].at <= now:
			most -= b.notifyLate(b.notices[0].what, now, most)
		default:
			return false
		}
	}
	at, any := b.Due()
	return any && at <= now
}

// Refresh says that policies may have changed: Advance looks at every resource.
func (b *Book) Refresh(now uint64) {
	b.now = now
	b.refresh = b.refresh[:0]
	for _, s := range b.shards {
		for _, r := range s.resources {
			b.refresh = append(b.refresh, r)
		}
	}
}

// renew looks at the next resource of a refresh.
func (b *Book) renew(now uint64) {
	last := len(b.refresh) - 1
	r := b.refresh[last]
	b.refresh[last] = nil
	b.refresh = b.refresh[:last]
	if r.gone {
		return
	}
	b.expire(r, now)
	for _, p := range r.holds {
		b.arm(p)
	}
	for _, a := range r.prepared {
		if a.p != nil {
			b.arm(a.p)
		}
	}
	if r.line != nil {
		for _, p := range r.line.From(1) {
			b.arm(p)
		}
	}
	b.fill(r, now)
}

// wake ends a place whose time has come.
func (b *Book) wake(p *place, now uint64) {
	r := p.r
	r.rules = b.cfg.Rules(r.name)
	at, why := p.end()
	if at > now {
		b.wakes.set(p, at)
		return
	}
	b.lose(p, why)
	b.fill(r, now)
}

// expire ends the holds of a resource whose time has ended, before anything else happens there. Who
// waits is looked at when it is next.
func (b *Book) expire(r *resource, now uint64) {
	r.rules = b.cfg.Rules(r.name)
	for i := 0; i < len(r.holds); {
		p := r.holds[i]
		if at, why := p.end(); at <= now {
			b.lose(p, why)
		} else {
			i++
		}
	}
}

// arm has a place woken when it ends. A timer that is early stays: those who renew or are heard of
// all the time need not move it.
func (b *Book) arm(p *place) {
	end, _ := p.end()
	if at, armed := b.wakes.at(p); end != math.MaxUint64 && (!armed || end < at) {
		b.wakes.set(p, end)
	}
}
