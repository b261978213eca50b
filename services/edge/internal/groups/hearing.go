package groups

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// hearing is which dispatchers want which messages. Where many want one, it goes to some of them at
// a time, in turns with other topics.
type hearing struct {
	of      topic.Index[*audience]
	filters map[string]*audience
	matched []*audience

	changes uint64
	fanned  map[string]*fan // by topic
	fans    walk.FIFO[*fan]

	// readers are the dispatchers, by slot, that wait for a range of a log.
	readers map[logRange][]uint32
}

func newHearing() hearing {
	return hearing{filters: map[string]*audience{}, fanned: map[string]*fan{}, readers: map[logRange][]uint32{}}
}

// audience is the dispatchers of one filter.
type audience struct {
	filter string
	all    []*dispatcher
	// changes counts who came and left.
	changes uint64
}

// logRange is what is read of a log, by its first seq.
type logRange struct {
	topic string
	from  uint64
}

// fan is runs of a topic on their way to many dispatchers.
type fan struct {
	topic string
	runs  walk.FIFO[fanned]
	// all that the last of runs was for, and the changes of these when it came.
	all   []*dispatcher
	as    uint64
	heard int // audiences
	// waiting is how many messages runs has. The newest one of a durable topic stands for all that
	// came beyond fanMost: a group reads what is before it.
	waiting int
	newest  *exchange.Message
}

// runMost is how many messages are put together at most, to be handed on in one step.
const runMost = 32

// fanMost is how many messages of a topic wait to be handed on, so that there is room for others.
const fanMost = 1024

type fanned struct {
	msgs []*exchange.Message
	own  bool // msgs may be appended to
	to   []*dispatcher
}

// atOnce is how many dispatchers are handed a run, or a range, before others have their turn.
const atOnce = 16

func (h *hearing) add(d *dispatcher) {
	a := h.filters[d.of.filter]
	if a == nil {
		a = &audience{filter: d.of.filter}
		h.filters[a.filter] = a
		h.of.Add(a.filter, a)
	}
	d.hears, d.place = a, len(a.all)
	a.all = append(a.all, d)
	h.changes++
	a.changes = h.changes
}

func (h *hearing) remove(d *dispatcher) {
	a, last := d.hears, len(d.hears.all)-1
	h.changes++
	a.changes = h.changes
	a.all[d.place] = a.all[last]
	a.all[d.place].place = d.place
	a.all[last] = nil
	if a.all = a.all[:last]; last == 0 {
		h.of.Remove(a.filter, a)
		delete(h.filters, a.filter)
	}
	for _, r := range d.core.Reading() {
		h.unread(logRange{r.Topic, r.From}, d.conn.Slot)
	}
}

// unread ends a dispatcher's wait for a range.
func (h *hearing) unread(r logRange, slot uint32) {
	all := h.readers[r]
	for i, o := range all {
		if o == slot {
			all[i] = all[len(all)-1]
			if h.readers[r] = all[:len(all)-1]; len(all) == 1 {
				delete(h.readers, r)
			}
			return
		}
	}
}

// live takes messages of topics, the messages of one behind each other.
func (g *Groups) live(msgs []*exchange.Message) {
	h := &g.hearing
	for len(msgs) > 0 {
		n := 1
		for n < len(msgs) && msgs[n].Topic == msgs[0].Topic {
			n++
		}
		run := msgs[:n]
		msgs = msgs[n:]
		h.matched = h.of.Match(h.matched[:0], run[0].Topic)
		many := count(h.matched)
		f := h.fanned[run[0].Topic]
		if f == nil && many <= atOnce {
			for _, a := range h.matched {
				for _, d := range a.all {
					g.handTo(d, run)
				}
			}
			g.lives.Add(-int64(n))
			continue
		}
		if f == nil {
			f = &fan{topic: run[0].Topic}
			h.fanned[f.topic] = f
			h.fans.Push(f)
		}
		if f.waiting < fanMost {
			f.add(run, h.matched, many)
			continue
		}
		for _, m := range run {
			if m.Seq > 0 {
				f.newest = m
			} else {
				g.Stats.TooMany.Add(1)
			}
		}
		g.lives.Add(-int64(n))
	}
	clear(h.matched)
}

// add has a run handed to the audiences as they are now. Runs for the same dispatchers share the
// list of them, and those that nobody was handed are one.
func (f *fan) add(run []*exchange.Message, to []*audience, many int) {
	f.waiting += len(run)
	var as uint64
	for _, a := range to {
		as = max(as, a.changes)
	}
	if f.all == nil || f.as != as || f.heard != len(to) {
		f.all, f.as, f.heard = make([]*dispatcher, 0, many), as, len(to)
		for _, a := range to {
			f.all = append(f.all, a.all...)
		}
	} else if n := f.runs.Len(); n > 0 && len(f.runs.At(n-1).to) == len(f.all) && len(f.runs.At(n-1).msgs) < runMost {
		last := f.runs.At(n - 1)
		if !last.own {
			last.msgs, last.own = slices.Clone(last.msgs), true
		}
		last.msgs = append(last.msgs, run...)
		return
	}
	f.runs.Push(fanned{msgs: run, to: f.all})
}

// count is how many dispatchers audiences have.
func count(all []*audience) (n int) {
	for _, a := range all {
		n += len(a.all)
	}
	return n
}

// fan hands a run on to some of those that want it, and reports whether there was one.
func (g *Groups) fan() bool {
	h := &g.hearing
	f, ok := h.fans.Pop()
	if !ok {
		return false
	}
	one := f.runs.Peek()
	n := min(atOnce, len(one.to))
	for _, d := range one.to[:n] {
		g.handTo(d, one.msgs)
	}
	if one.to = one.to[n:]; len(one.to) == 0 {
		g.lives.Add(-int64(len(one.msgs)))
		f.waiting -= len(one.msgs)
		f.runs.Pop()
	}
	if f.runs.Len() == 0 && f.newest != nil {
		m := f.newest
		f.newest = nil
		g.lives.Add(1)
		h.matched = h.of.Match(h.matched[:0], m.Topic)
		many := count(h.matched)
		f.add([]*exchange.Message{m}, h.matched, many)
		clear(h.matched)
	}
	if f.runs.Len() > 0 {
		h.fans.Push(f)
	} else {
		delete(h.fanned, f.topic)
	}
	return true
}

// handTo hands a run to one dispatcher.
func (g *Groups) handTo(d *dispatcher, run []*exchange.Message) {
	switch {
	case g.dispatchers[d.conn.Slot] != d:
		return
	case !d.begun && d.answered:
		d.keepEarly(run)
		return
	case !d.begun: // what came before the heads is in the log
		return
	}
	g.advance(d)
	d.core.Live(run)
	g.isBusy(d)
}

// earlyMost is how many messages are kept that came behind the heads, before these are taken.
const earlyMost = 256

// keepEarly keeps messages that came behind the heads. Of more than earlyMost the last of each
// durable topic is enough: the core reads what is before it. Ephemeral ones go to nobody before the
// dispatcher is open.
func (d *dispatcher) keepEarly(run []*exchange.Message) {
	for _, m := range run {
		if m.Seq > 0 {
			d.early = append(d.early, m)
		}
	}
	if len(d.early) < 2*earlyMost {
		return
	}
	last := make(map[string]int, earlyMost)
	for i, m := range d.early {
		last[m.Topic] = i
	}
	kept := d.early[:0]
	for i, m := range d.early {
		if last[m.Topic] == i {
			kept = append(kept, m)
		}
	}
	clear(d.early[len(kept):])
	d.early = kept
}

// read asks for a part of a log.
func (g *Groups) read(d *dispatcher, r logRange, epoch uint64) {
	g.hearing.readers[r] = append(g.hearing.readers[r], d.conn.Slot)
	g.cfg.Mesh.Read(g.cfg.Loop, r.topic, epoch, r.from, 0, readBytes)
}

// ranged hands a part of a log to those that asked for it.
func (g *Groups) ranged(r *exchange.Range) {
	k := logRange{r.Topic, r.From}
	all := g.hearing.readers[k]
	delete(g.hearing.readers, k)
	for i, slot := range all {
		d := g.dispatchers[slot]
		switch {
		case d == nil:
		case i < atOnce:
			d.core.Range(r)
			g.isBusy(d)
		default:
			g.inTurn(d, func(d *dispatcher) {
				d.core.Range(r)
				g.isBusy(d)
			})
		}
	}
}
