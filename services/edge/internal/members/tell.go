package members

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Told takes what is told of a topic, and reports whether anybody is to be told.
func (d *Desk) Told(e exchange.MembersTold) bool {
	in := d.topics[e.Topic]
	if in == nil {
		return false
	}
	if e.Conn.Gen == 0 {
		d.toldAll(in, e)
		return true
	}
	h := d.held[e.Conn.Slot]
	if h == nil || h.conn != e.Conn {
		return false
	}
	for _, w := range h.watches {
		if w.in == in {
			d.tell(w, &e)
			return true
		}
	}
	return false
}

// toldAll has everybody told who watches, some at a time. Where more waits than may, everybody is
// told anew: each asks for that once its turn comes.
func (d *Desk) toldAll(in *watched, e exchange.MembersTold) {
	if in.pending.Len() == maxPending {
		in.pending = walk.FIFO[exchange.MembersTold]{}
		in.left = 0
	}
	in.pending.Push(e)
	if !in.telling {
		in.telling = true
		d.cfg.Jobs.Push(&telling{d: d, in: in})
	}
}

// telling tells everybody who watches a topic what is pending, one frame after the other. It goes
// from the last to the first: what takes the place of one that ends was told, and who comes is told
// all that there is by then.
type telling struct {
	d  *Desk
	in *watched
}

// Step implements walk.Job.
func (j *telling) Step() bool {
	d, in := j.d, j.in
	for range d.cfg.Cost.Slice(stepWatches) {
		if in.left = min(in.left, len(in.watches)); in.left == 0 && !in.next() {
			in.telling = false
			return true
		}
		if in.left = min(in.left, len(in.watches)); in.left > 0 {
			in.left--
			d.tell(in.watches[in.left], &in.now)
		}
	}
	return false
}

// next takes the next frame that is pending in hand; false where there is none.
func (in *watched) next() bool {
	e, ok := in.pending.Pop()
	if !ok {
		in.now = exchange.MembersTold{}
		return false
	}
	in.now, in.left = e, len(in.watches)
	return true
}

// tell tells a connection, unless it knows already, or has not taken what it was told before.
func (d *Desk) tell(w *watching, e *exchange.MembersTold) {
	one := e.Conn.Gen != 0
	switch {
	case w.begun && !w.behind && e.Serial <= w.serial:
		return
	case !w.begun && !one, w.behind && !one:
		return // what it asked for comes
	case w.begun && !e.Snapshot && e.Serial != w.serial+1:
		d.missed(w)
		d.again(w)
		return
	case d.cfg.Delivery.ControlBytes(w.of.conn) > MaxQueued:
		d.missed(w)
		w.asked = false // it asks once it has taken what is queued
		return
	}
	d.caughtUp(w)
	w.begun, w.serial = true, e.Serial
	d.stats.Told++
	d.cfg.Delivery.Share(w.of.conn, e.Frame)
}

// missed notes that a connection is to be told all anew.
func (d *Desk) missed(w *watching) {
	if !w.behind {
		w.behind = true
		w.of.behind++
		d.behind++
		d.stats.Missed++
	}
}

func (d *Desk) caughtUp(w *watching) {
	if w.behind {
		w.behind, w.asked = false, false
		w.of.behind--
		d.behind--
	}
}

// again asks for all that is known, for a connection that has missed something.
func (d *Desk) again(w *watching) {
	if !w.asked {
		w.asked = true
		d.cfg.Mesh.Follow(w.of.conn, w.in.name)
	}
}

// Behind reports whether any connection has missed something.
func (d *Desk) Behind() bool { return d.behind > 0 }

// Wrote is for a connection that has taken some of what was queued for it.
func (d *Desk) Wrote(c exchange.Conn) {
	h := d.held[c.Slot]
	if h == nil || h.behind == 0 || d.cfg.Delivery.ControlBytes(c) > MaxQueued {
		return
	}
	for _, w := range h.watches {
		if w.behind {
			d.again(w)
		}
	}
}

// Ended ends every watch of a topic, some at a time.
func (d *Desk) Ended(e exchange.MembersEnded) bool {
	in := d.topics[e.Topic]
	if in != nil {
		d.cfg.Jobs.Push(&ending{d: d, in: in, why: e.Code, reason: e.Reason})
	}
	return in != nil
}

// PoliciesChanged ends the watches of topics where clients see nothing any more, some topics at a
// time: from the last to the first, for what comes is asked about when it comes.
func (d *Desk) PoliciesChanged() {
	left := len(d.all)
	d.cfg.Jobs.Push(walk.Func(func() bool {
		for range d.cfg.Cost.Slice(stepWatches) {
			if left = min(left, len(d.all)); left == 0 {
				return true
			}
			left--
			in := d.all[left]
			if why := d.cfg.Rules.PolicyFor(in.name).HidesMembers(); why != nil {
				d.cfg.Jobs.Push(&ending{d: d, in: in, why: why.Code, reason: why.Message})
			}
		}
		return false
	}))
}

type ending struct {
	d      *Desk
	in     *watched
	why    wirev1.Code
	reason string
}

// Step implements walk.Job.
func (j *ending) Step() bool {
	for range j.d.cfg.Cost.Slice(stepWatches) {
		n := len(j.in.watches)
		if n == 0 {
			return true
		}
		j.d.end(j.in.watches[n-1], j.why, j.reason)
	}
	return false
}
