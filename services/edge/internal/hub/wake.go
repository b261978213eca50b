package hub

// waking is a walk over the tracks of a connection, then over its groups, for those that waited for a window or the queue, the last ones first: what
// takes the place of a track that goes meanwhile was looked at, or will be.
type waking struct {
	c      *conn
	begun  bool
	tracks int
	groups int
}

// wakeSlice is how many tracks are looked at in one go.
const wakeSlice = 256

// wake has the waiting tracks of a connection looked at, once more where that is under way.
func (h *Hub) wake(c *conn) {
	switch {
	case c.waking:
		c.rewake = true
	case c.waiting > 0:
		c.waking = true
		h.wakes.push(waking{c: c})
	}
}

// wakeSlice goes on with the next walk, and says how much it did.
func (h *Hub) wakeSlice() int {
	w, ok := h.wakes.pop()
	if !ok {
		return 0
	}
	c := w.c
	if c.state == stateFree {
		c.waking = false
		h.released(c)
		return 1
	}
	if !w.begun {
		c.rewake = false
		w.begun, w.tracks, w.groups = true, c.tracks.Len(), len(c.groups)
	}
	looked := w.slice(h)
	switch {
	case w.tracks+w.groups > 0:
		h.wakes.push(w)
	case c.rewake && c.waiting > 0:
		h.wakes.push(waking{c: c})
	default:
		c.waking = false
	}
	return 1 + looked/8
}

func (w *waking) slice(h *Hub) (n int) {
	c := w.c
	end := min(w.tracks, c.tracks.Len())
	w.tracks = max(end-wakeSlice, 0)
	n = end - w.tracks
	for i := w.tracks; i < end; i++ { // none goes meanwhile
		switch t := c.tracks.At(i); {
		case !t.waits:
		case t.latest != nil:
			h.notWaiting(t)
			h.tryLatest(t)
		default:
			switch room, enough := h.roomToRead(t); {
			case room && (enough || t.waited()):
				h.notWaiting(t)
				h.run(t)
			case room:
				h.readFewSoon(t)
			}
		}
	}
	for ; w.tracks == 0 && n < wakeSlice; n++ {
		if w.groups = min(w.groups, len(c.groups)); w.groups == 0 {
			break
		}
		w.groups--
		if g := c.groups[w.groups]; g.waits {
			h.runGroup(g)
			n += len(g.live()) / looksAsOne
		}
	}
	return n
}
