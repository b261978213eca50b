package permissions

import "math"

// timer is something that is due at a time, at most once until it is set again.
type timer struct {
	at    int64
	place int // in due, and 1; 0: it is not set
	fire  func()
}

// due has timers in the order of a heap: each comes before the two at twice its place.
type due struct{ of []*timer }

// set has a timer be due at a time.
func (d *due) set(t *timer, at int64) {
	t.at = at
	if t.place == 0 {
		d.of = append(d.of, t)
		t.place = len(d.of)
	}
	d.settle(t)
}

// clear has a timer not be due.
func (d *due) clear(t *timer) {
	if t.place == 0 {
		return
	}
	last := d.of[len(d.of)-1]
	d.of[len(d.of)-1] = nil
	d.of = d.of[:len(d.of)-1]
	if last != t {
		d.put(last, t.place)
		d.settle(last)
	}
	t.place = 0
}

// first is when the first one is due; math.MaxInt64: none is.
func (d *due) first() int64 {
	if len(d.of) == 0 {
		return math.MaxInt64
	}
	return d.of[0].at
}

// any reports whether one is due.
func (d *due) any(now func() int64) bool { return len(d.of) > 0 && d.of[0].at <= now() }

// next takes out one that is due; nil: none is.
func (d *due) next(now int64) *timer {
	if d.first() > now {
		return nil
	}
	t := d.of[0]
	d.clear(t)
	return t
}

func (d *due) put(t *timer, place int) {
	d.of[place-1] = t
	t.place = place
}

// settle moves a timer to its place.
func (d *due) settle(t *timer) {
	for t.place > 1 && d.of[t.place/2-1].at > t.at {
		up := d.of[t.place/2-1]
		at := t.place
		d.put(t, up.place)
		d.put(up, at)
	}
	for 2*t.place <= len(d.of) {
		down := d.of[2*t.place-1]
		if 2*t.place < len(d.of) && d.of[2*t.place].at < down.at {
			down = d.of[2*t.place]
		}
		if down.at >= t.at {
			return
		}
		at := t.place
		d.put(t, down.place)
		d.put(down, at)
	}
}
