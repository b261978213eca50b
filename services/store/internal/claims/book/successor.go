package book

// succeed puts the successor that a RELEASE names before all who wait, so that it gets what is free
// then: at once, unless fewer may hold the resource by now, or it has to be prepared. One who is
// prepared has a turn of its own already.
func (b *Book) succeed(p *place, op *Op, now uint64) error {
	r, owner := p.r, op.GetSuccessor()
	if owner == "" {
		return nil
	}
	next := r.shard.places[placeID{r, owner}]
	if next != nil {
		if at, why := next.end(); at <= now {
			b.lose(next, why)
			next = nil
		}
	}
	switch {
	case next != nil && next.holds():
		return invalid("the successor holds the resource already")
	case next != nil && next.preparing:
		return nil
	case r.shard.short():
		return errNumbers
	case next != nil:
		b.jump(next)
	default:
		next = &place{r: r, owner: owner, seq: r.shard.number(), joined: now, heard: now, priority: successor}
		b.admit(next)
		r.join(next)
		b.arm(next)
	}
	return nil
}

// jump has one who waits wait as a successor. It has a new number, since the numbers of a
// priority's line are its order.
func (b *Book) jump(was *place) {
	r, p := was.r, &place{}
	*p = *was
	p.seq, p.priority = r.shard.number(), successor
	p.node, p.dirty, p.stored, p.counted, p.timerAt = nil, false, false, false, 0
	n, conn, bound := was.node, was.conn, was.bound
	r.leave(was)
	was.ended = true
	b.cut(was)
	b.wakes.drop(was)
	b.changed(was)
	b.places--
	b.admit(p)
	r.join(p)
	if n != nil {
		b.bind(p, n, conn, bound)
	}
	b.arm(p)
}
