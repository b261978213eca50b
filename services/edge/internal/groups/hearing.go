package groups

import (
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

	fanned map[string]*fan // by topic
	fans   walk.FIFO[*fan]

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
}

type fanned struct {
	msgs []*exchange.Message
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
}

func (h *hearing) remove(d *dispatcher) {
	a, last := d.hears, len(d.hears.all)-1
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
		many := 0
		for _, a := range h.matched {
			many += len(a.all)
		}
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
		to := make([]*dispatcher, 0, many)
		for _, a := range h.matched {
			to = append(to, a.all...)
		}
		if f == nil {
			f = &fan{topic: run[0].Topic}
			h.fanned[f.topic] = f
			h.fans.Push(f)
		}
		f.runs.Push(fanned{run, to})
	}
	clear(h.matched)
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
		f.runs.Pop()
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
		g.inTurn(d, func(d *dispatcher) { g.handTo(d, run) }) // behind the heads
		return
	case !d.begun: // what came before the heads is in the log
		return
	}
	g.advance(d)
	d.core.Live(run)
	g.isBusy(d)
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
