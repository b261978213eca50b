package intake

import (
	"container/list"
	"context"
	"time"
)

const (
	// lookedAt is how many addresses that wait in vain are looked at when bytes are given back.
	lookedAt = 256
	// lookAgain is how often who waits looks for itself, where there are more than that.
	lookAgain = time.Second
)

// waiter is a stream whose next request waits for room, or one that has come and waits to be
// decoded: it keeps what it is charged already.
type waiter struct {
	caller   *caller
	from, to int64 // bytes
	place    *list.Element
	granted  chan struct{} // closed

	charged, beyond int64 // once it is granted
}

// wait charges a request for what it grows by as soon as there is room. It tells what the request
// is charged then, and what it takes beyond that (see admit).
func (b *Budget) wait(ctx context.Context, c *caller, from, to int64) (charged, beyond int64, err error) {
	b.mu.Lock()
	if to > b.limit() {
		b.mu.Unlock()
		return from, 0, tooLarge(to, b.limit())
	}
	w := &waiter{caller: c, from: from, to: to}
	if b.large(from) {
		b.countLarge(c.origin, -1) // it does nothing while it waits
	}
	if b.admit(w) {
		b.mu.Unlock()
		return w.charged, w.beyond, nil
	}
	b.count.waits.Inc()
	w.granted = make(chan struct{})
	b.join(w)
	b.mu.Unlock()
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		select {
		case <-w.granted:
			return w.charged, w.beyond, nil
		case <-look.C:
			b.look(w)
		case <-ctx.Done():
			return b.giveUp(ctx, w)
		}
	}
}

// giveUp ends a wait whose context has ended: the request stays charged as it is.
func (b *Budget) giveUp(ctx context.Context, w *waiter) (charged, beyond int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.place == nil { // granted meanwhile
		return w.charged, w.beyond, ctx.Err()
	}
	b.quit(w)
	if b.large(w.from) {
		b.countLarge(w.caller.origin, 1)
	}
	return w.from, 0, ctx.Err()
}

// look lets a waiter go on if there is room.
func (b *Budget) look(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.place != nil && b.admit(w) {
		b.quit(w)
		close(w.granted)
	}
}

// admit charges a waiter if there is room. A request that has come already is let in beyond what
// there is room for, and not charged for it, one at a time for each address, and of large ones one
// at a time of all: otherwise requests that wait for each other's bytes would do so for ever. b.mu
// is held.
func (b *Budget) admit(w *waiter) bool {
	o := w.caller.origin
	fits := b.fits(w.caller, w.from, w.to, w.from > 0)
	if !fits && (w.from == 0 || o.beyond || b.large(w.to) && b.larges > 0) {
		return false
	}
	if b.large(w.from) {
		b.countLarge(o, 1)
	}
	if fits {
		w.charged = b.charged(w.to)
		b.charge(w.caller, w.from, w.charged)
		return true
	}
	w.charged, w.beyond = w.from, w.to
	o.beyond = true
	if b.large(w.to) && !b.large(w.from) {
		b.countLarge(o, 1)
	}
	return true
}

// again has a request that grows further wait for room anew.
func (b *Budget) again(c *caller, charged, beyond int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.within(c.origin, charged, beyond)
}

// within ends what a request was let in beyond what it is charged. b.mu is held.
func (b *Budget) within(o *origin, charged, beyond int64) {
	if beyond == 0 {
		return
	}
	o.beyond = false
	if b.large(beyond) && !b.large(charged) {
		b.countLarge(o, -1)
	}
}

// join puts a waiter behind the others of its address. b.mu is held.
func (b *Budget) join(w *waiter) {
	o := w.caller.origin
	if o.waiters.Len() == 0 {
		o.place = b.ring.PushBack(o)
	}
	w.place = o.waiters.PushBack(w)
	b.waiting++
}

// quit takes a waiter away. b.mu is held.
func (b *Budget) quit(w *waiter) {
	o := w.caller.origin
	o.waiters.Remove(w.place)
	w.place = nil
	if o.waiters.Len() == 0 {
		b.ring.Remove(o.place)
	}
	b.waiting--
}

// grant lets some of those who wait go on: addresses take turns, and the first one of each is
// looked at. Those that don't fit yet go behind the others. b.mu is held.
func (b *Budget) grant() {
	for missed := 0; missed < min(b.ring.Len(), lookedAt); {
		place := b.ring.Front()
		o := place.Value.(*origin)
		first := o.waiters.Front()
		w := first.Value.(*waiter)
		b.ring.MoveToBack(place)
		if !b.admit(w) {
			o.waiters.MoveToBack(first)
			missed++
			continue
		}
		b.quit(w)
		close(w.granted)
	}
}
