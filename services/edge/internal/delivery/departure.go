package delivery

import (
	"math/rand/v2"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// goAway is what clients are told that shall go.
type goAway struct {
	reason    string
	jitterMS  uint32
	addresses func() []string // nil: none are known
}

// frame is another for each client: it comes back at a time of its own, and the first place named
// is not everybody's first.
func (g *goAway) frame() *wirev1.GoAway {
	m := &wirev1.GoAway{Code: wirev1.Code_CODE_DRAINING, Reason: g.reason, ReconnectAfterMs: rand.Uint32N(g.jitterMS + 1)}
	if g.addresses == nil {
		return m
	}
	if all := g.addresses(); len(all) > 0 {
		at := rand.IntN(len(all))
		m.Addresses = append(append(make([]string, 0, len(all)), all[at:]...), all[:at]...)
	}
	return m
}

// departure asks connections to go, over a time, so that whoever takes them in is not stormed: all
// there are, or a random sample of a certain size. It goes over the slots once; by each tick as
// many were asked as the time that has passed is of the whole.
type departure struct {
	going       goAway
	began, over int64 // nanoseconds; over 0: at once
	wanted      int
	all         bool
	done        func() // everyone was asked

	next    uint32 // slot that has not been looked at
	open    int    // connections not looked at, where a sample is taken
	asked   int
	due     int  // are asked by now, while it is not over
	working bool // among the hub's jobs
}

// sendAway begins a departure; one that was under way ends where it is.
func (h *Hub) sendAway(d departure) {
	d.began = h.now
	h.leaving = &d
	h.depart()
}

// depart has those asked whose time has come. It is called with every tick.
func (h *Hub) depart() {
	d := h.leaving
	if d == nil {
		return
	}
	if passed := h.now - d.began; passed < d.over {
		// afterwards it is everyone's, who came meanwhile among them
		d.due = int(float64(d.wanted) * float64(passed) / float64(d.over))
	}
	if !d.working {
		d.working = true
		h.jobs.push(d)
	}
}

// step goes on as far as is due.
func (d *departure) step(h *Hub) bool {
	if h.leaving != d {
		return true
	}
	for range fanSlice {
		if d.next >= h.conns.len() || !d.all && d.asked >= d.wanted {
			h.leaving = nil
			if d.done != nil {
				d.done()
			}
			return true
		}
		if d.asked >= d.due && h.now-d.began < d.over {
			d.working = false
			return true
		}
		if c := h.conns.get(d.next); d.picks(c) {
			d.asked++
			h.tellToGo(c, &d.going)
		}
		d.next++
	}
	return false
}

// picks decides about one connection: of those that are left each has the same chance to be among
// those still wanted, so that the sample is as large as was asked for and everyone as likely in it
// as everyone else (selection sampling).
func (d *departure) picks(c *conn) bool {
	if c.state == stateFree || c.state == stateClosing {
		return false
	}
	if d.all {
		return true
	}
	if c.state != stateOpen || c.draining {
		return false
	}
	d.open--
	return rand.Float64()*float64(d.open+1) < float64(d.wanted-d.asked)
}

// tellToGo tells one connection to go.
func (h *Hub) tellToGo(c *conn, g *goAway) {
	if c.state != stateOpen {
		if c.state != stateWaiting { // one that waits for its session is told with Welcome
			h.turnAway(c)
		}
		return
	}
	until := h.now + int64(drainPatience)
	if h.drain != nil {
		until = min(until, h.drain.deadline-int64(2*Tick))
	}
	if c.draining {
		c.deadline = min(c.deadline, until)
		return
	}
	c.draining = true
	if len(c.groups) > 0 {
		h.jobs.push(&pausing{c: c, gen: c.gen, left: len(c.groups)})
	}
	h.control(c, wirev1.FrameType_FRAME_TYPE_GO_AWAY, g.frame())
	c.deadline = until
	h.wheel.Set(c.slot, h.now+int64(Tick))
}

// rebalance asks a share of the connections to go; the loop goes on taking others in. Shares of a
// connection are rounded at random, so that those of all loops together come out right on average.
func (h *Hub) rebalance(e exchange.Rebalance) {
	n := 0
	if h.drain == nil {
		n = min(int(e.Share*float64(h.stats.Connections)+rand.Float64()), int(h.stats.Connections))
		h.sendAway(departure{
			going: goAway{reason: "the edge hands on a share of its connections", jitterMS: e.JitterMS, addresses: e.Addresses},
			over:  int64(e.OverMS) * int64(time.Millisecond), wanted: n, open: int(h.stats.Connections),
		})
	}
	if e.Reply != nil {
		e.Reply(n)
	}
}
