package groups

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// Bounds and paces of links.
const (
	frameBytes = 512 << 10
	opsAtATime = 1024
	beatEvery  = 400 * time.Millisecond
	answerIn   = 400 * time.Millisecond
	linkAgain  = 50 * time.Millisecond
	// deadAfter is how long an edge may not answer before it is taken for dead. Its members'
	// messages go to others then: that has to be well within the default ack_timeout of 2 s.
	deadAfter = 1200 * time.Millisecond
)

// link carries what this edge says to another, in order. The next frame is sent once the last was
// answered, so that nothing is lost or doubled in silence.
type link struct {
	edge     string
	id       uint64
	n        uint64
	queue    []outgoing
	sent     []outgoing // in the frame under way
	frame    []byte     // under way; nil: none
	asking   bool       // its answer is waited for
	again    time.Time
	answered time.Time // last
	failing  time.Time // since when nothing was answered; zero: it was
	peer     uint64    // incarnation
}

type outgoing struct {
	op   *meshv1.GroupOp
	done func() // it was heard
}

// send says something to an edge, this one included. done, which may be nil, is called once it was
// heard.
func (g *Groups) send(edge string, op *meshv1.GroupOp, done func()) {
	if edge == g.cfg.Edge {
		g.local = append(g.local, func() {
			g.take(edge, op)
			if done != nil {
				done()
			}
		})
		return
	}
	l := g.links[edge]
	if l == nil {
		l = &link{edge: edge, id: rand.Uint64() | 1, answered: g.now}
		g.links[edge] = l
	}
	l.queue = append(l.queue, outgoing{op, done})
}

// take sorts what an edge said.
func (g *Groups) take(edge string, op *meshv1.GroupOp) {
	switch op.GetOp().(type) {
	case *meshv1.GroupOp_Join, *meshv1.GroupOp_Leave, *meshv1.GroupOp_Settle:
		g.fromMember(edge, op)
	default:
		g.fromDispatcher(edge, op)
	}
}

// pump sends what waits, or again what was not answered.
func (g *Groups) pump(l *link) {
	if l.asking || g.now.Before(l.again) {
		return
	}
	if l.frame == nil {
		if len(l.queue) == 0 {
			return
		}
		g.fill(l)
	}
	g.ask(l)
}

func (g *Groups) fill(l *link) {
	f := &meshv1.GroupFrame{EdgeId: g.cfg.Edge, EdgeIncarnation: g.cfg.Incarnation, Link: l.id}
	size := 0
	for len(l.queue) > 0 && len(l.sent) < opsAtATime {
		size += proto.Size(l.queue[0].op) + 8
		if len(l.sent) > 0 && size > frameBytes {
			break
		}
		l.sent = append(l.sent, l.queue[0])
		f.Ops = append(f.Ops, l.queue[0].op)
		l.queue = l.queue[1:]
	}
	if len(f.GetOps()) > 0 {
		l.n++
	}
	f.N = l.n
	frame, err := proto.Marshal(f)
	if err != nil {
		g.cfg.Log.Error("frame of groups", "error", err)
	}
	l.frame = frame
}

func (g *Groups) ask(l *link) {
	l.asking = true
	frame, id := l.frame, l.id
	g.work.Go("edge-groups-link", func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, answerIn)
		defer cancel()
		reply := &meshv1.GroupFrameReply{}
		data, err := g.cfg.Request(ctx, l.edge, frame)
		if err == nil {
			err = proto.Unmarshal(data, reply)
		}
		g.ops.Do(func() {
			if g.links[l.edge] == l && l.id == id {
				g.answer(l, reply, err)
			}
		})
	})
}

func (g *Groups) answer(l *link, reply *meshv1.GroupFrameReply, err error) {
	l.asking = false
	switch {
	case err != nil:
		if l.failing.IsZero() {
			l.failing = g.now
		}
		l.again = g.now.Add(linkAgain)
		if g.now.Sub(l.failing) > deadAfter {
			g.Stats.Dead.Add(1)
			g.cfg.Log.Info("an edge does not answer", "edge", l.edge)
			g.dead[l.edge] = g.now
			g.down(l.edge)
		}
	case reply.GetLost(), !g.sameProcess(l, reply.GetEdgeIncarnation()):
		g.down(l.edge)
	default:
		l.peer, l.answered, l.failing = reply.GetEdgeIncarnation(), g.now, time.Time{}
		sent := l.sent
		l.sent, l.frame = nil, nil
		for _, o := range sent {
			if o.done != nil {
				o.done()
			}
		}
	}
}

// sameProcess reports whether an answer is of the process that answered before, and that the edge's
// members are of. Its first frame on a link is taken by any process.
func (g *Groups) sameProcess(l *link, incarnation uint64) bool {
	h := g.heard[l.edge]
	return (l.peer == 0 || l.peer == incarnation) && (h == nil || h.incarnation == incarnation)
}

// down has everything begin anew that has to do with an edge: its members are gone until they come
// again, and so is its word as a dispatcher.
func (g *Groups) down(edge string) {
	delete(g.links, edge)
	delete(g.heard, edge)
	g.membersGone(edge)
	if p := g.neighbours[edge]; p != nil {
		for s := range p.shares {
			g.ofShare(s, edge, func() {
				g.setAt(s, "")
				s.askAt = g.now
				g.planShare(s)
			})
		}
	}
}

// membersGone ends an edge's members here until they come again.
func (g *Groups) membersGone(edge string) {
	p := g.neighbours[edge]
	if p == nil {
		return
	}
	for d := range p.dispatchers {
		if !slices.Contains(d.departed, edge) {
			d.departed = append(d.departed, edge)
			g.inTurn(d, func(d *dispatcher) { g.depart(d, edge) })
		}
	}
}

// depart ends the members that an edge had here before, if that is still to be done. It is done
// before anything that the edge says since, and before anybody is assigned anything.
func (g *Groups) depart(d *dispatcher, edge string) {
	i := slices.Index(d.departed, edge)
	if i < 0 {
		return
	}
	d.departed = slices.Delete(d.departed, i, i+1)
	d.waiting = slices.DeleteFunc(d.waiting, func(o said) bool { return o.edge == edge })
	d.core.LeaveEdge(edge)
	g.meets(d, edge, false)
	g.isBusy(d)
}

// ofShare does something with a group in its turn, if an edge is still its dispatcher then.
func (g *Groups) ofShare(s *share, edge string, f func()) {
	g.setup.Push(s.payer, func() {
		if g.groups[s.name] == s && s.at == edge {
			f()
		}
	})
}

// tendLink beats where another edge's life matters, and forgets links that nobody needs.
func (g *Groups) tendLink(l *link) {
	if l.asking || len(l.queue) > 0 || l.frame != nil || g.now.Sub(l.answered) < beatEvery {
		return
	}
	if !g.needs(l.edge) {
		delete(g.links, l.edge)
		return
	}
	g.fill(l)
	g.ask(l)
}

// heard is how far another edge's link has come here.
type heard struct {
	incarnation, link, n uint64
}

// Receive takes a frame of another edge. It is called by the goroutine of the NATS subscription;
// respond is called once the frame was taken.
func (g *Groups) Receive(data []byte, respond func([]byte) error) {
	f := &meshv1.GroupFrame{}
	if err := proto.Unmarshal(data, f); err != nil || bus.CheckID(f.GetEdgeId()) != nil {
		g.Stats.BadFrames.Add(1)
		return
	}
	g.ops.Do(func() {
		reply, err := proto.Marshal(&meshv1.GroupFrameReply{EdgeIncarnation: g.cfg.Incarnation, Lost: !g.hear(f)})
		if err == nil {
			err = respond(reply)
		}
		if err != nil {
			g.cfg.Log.Debug("frame of groups not answered", "error", err)
		}
	})
}

// hear takes a frame unless it was taken before; false where one before it is missing.
func (g *Groups) hear(f *meshv1.GroupFrame) bool {
	edge := f.GetEdgeId()
	delete(g.dead, edge)
	h := g.heard[edge]
	if h == nil || h.link != f.GetLink() {
		if f.GetN() > 1 || f.GetN() == 1 && len(f.GetOps()) == 0 {
			return false
		}
		known := h != nil
		h = &heard{incarnation: f.GetEdgeIncarnation(), link: f.GetLink()}
		g.heard[edge] = h
		if known {
			g.membersGone(edge) // what the link before had yet to say of them is lost
			g.anew(edge)
		}
	}
	switch {
	case len(f.GetOps()) == 0:
		return f.GetN() == h.n
	case f.GetN() == h.n:
		return true // its answer was lost
	case f.GetN() != h.n+1:
		return false
	}
	h.n++
	for _, op := range f.GetOps() {
		g.take(edge, op)
	}
	return true
}

// anew follows an edge that began a new link: as a dispatcher it has forgotten the members here.
func (g *Groups) anew(edge string) {
	if p := g.neighbours[edge]; p != nil {
		for s := range p.shares {
			s.forgotten = true
			g.ofShare(s, edge, func() {
				if s.forgotten {
					g.introduceAll(s)
				}
			})
		}
	}
}
