package groups

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/pace"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// What one store is asked at a time. A lease is renewed thrice in its time, with others that are to
// be renewed at about the same time: renewalsIn is how many such times there are.
const (
	questionsAtATime = 64
	renewalsAtATime  = 8
	leasesInACall    = 256
	renewalsIn       = 8
)

// owner is a store that has sessions of groups. What it does not answer holds up the groups that it
// has, and no others.
type owner struct {
	name      string
	questions pace.Turns[exchange.Conn, *share] // who dispatches?
	asking    int
	leases    walk.FIFO[*dispatcher] // to be renewed
	renewing  int
}

func (g *Groups) ownerOf(s *share) *owner {
	name := g.cfg.Owner(User, s.name)
	o := g.owners[name]
	if o == nil {
		o = &owner{name: name}
		g.owners[name] = o
	}
	return o
}

// askOwners asks stores as much as they may be asked at a time.
func (g *Groups) askOwners() {
	more := g.leases.Is(g.now) // to be renewed in the same call
	for _, o := range g.owners {
		for o.asking < questionsAtATime {
			s, ok := o.questions.Pop()
			if !ok {
				break
			}
			g.askWho(o, s)
		}
		for o.renewing < renewalsAtATime && (o.leases.Len() >= leasesInACall || o.leases.Len() > 0 && (!more || o.renewing == 0)) {
			g.renew(o)
		}
		if o.asking+o.renewing+o.questions.Len()+o.leases.Len() == 0 {
			delete(g.owners, o.name)
		}
	}
}

// askWho asks who dispatches for a group, and to be the one.
func (g *Groups) askWho(o *owner, s *share) {
	if len(s.members) == 0 {
		s.asking = false
		g.forget(s)
		return
	}
	o.asking++
	req := &meshv1.AttachSessionRequest{
		User: User, Name: s.name, EdgeId: g.cfg.Edge, ConnectionId: g.cfg.Incarnation, LeaseMs: uint32(g.cfg.Lease.Milliseconds()), Peek: g.draining,
	}
	asked := g.now
	g.work.Go("edge-groups-lease", func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, g.cfg.Lease)
		defer cancel()
		resp, err := g.cfg.Store.AttachSession(ctx, req)
		g.ops.Do(func() {
			o.asking--
			g.setup.Push(s.payer, func() { g.leased(s, req, resp, err, asked) })
		})
	})
}

// renewAt is when a lease that was asked for at a time is renewed.
func (g *Groups) renewAt(asked time.Time) time.Time {
	step := g.cfg.Lease / 3 / renewalsIn
	return g.began.Add(asked.Add(g.cfg.Lease / 3).Sub(g.began).Truncate(step))
}

// renew keeps some of a store's leases.
func (g *Groups) renew(o *owner) {
	var all []*dispatcher
	req := &meshv1.RenewLeasesRequest{EdgeId: g.cfg.Edge, LeaseMs: uint32(g.cfg.Lease.Milliseconds())}
	for len(all) < leasesInACall {
		d, ok := o.leases.Pop()
		if !ok {
			break
		}
		if g.dispatchers[d.conn.Slot] == d {
			all = append(all, d)
			req.Leases = append(req.Leases, &meshv1.RenewLeasesRequest_Lease{User: User, Name: d.of.name, Generation: d.generation})
		}
	}
	if len(all) == 0 {
		return
	}
	o.renewing++
	asked := g.now
	g.work.Go("edge-groups-renew", func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, g.cfg.Lease/3)
		defer cancel()
		resp := g.cfg.Store.RenewLeases(ctx, req)
		g.ops.Do(func() {
			o.renewing--
			for i, d := range all {
				c := wirev1.Code_CODE_UNAVAILABLE
				if i < len(resp.GetCodes()) {
					c = resp.GetCodes()[i]
				}
				g.renewals.Push(renewal{d, c, asked})
			}
		})
	})
}

// renewal is a store's answer for one lease, which was asked for at a time.
type renewal struct {
	d     *dispatcher
	code  wirev1.Code
	asked time.Time
}

// renewalsInAStep is how many answers are taken for one thing of each other kind.
const renewalsInAStep = 8

// takeRenewals takes some of the answers, and reports whether there were any.
func (g *Groups) takeRenewals() (did bool) {
	for range renewalsInAStep {
		r, ok := g.renewals.Pop()
		if !ok {
			return did
		}
		did = true
		g.renewed(r.d, r.code, r.asked)
	}
	return did
}

func (g *Groups) renewed(d *dispatcher, c wirev1.Code, asked time.Time) {
	if g.dispatchers[d.conn.Slot] != d {
		return
	}
	switch c {
	case wirev1.Code_CODE_OK:
		if !g.now.Before(d.until) { // it had run out, and messages wait
			g.isBusy(d)
		}
		d.until, d.renewAt = asked.Add(g.cfg.Lease), g.renewAt(asked)
	case wirev1.Code_CODE_SESSION_TAKEN_OVER, wirev1.Code_CODE_NOT_FOUND:
		g.lose(d)
		return
	default:
		d.renewAt = g.now.Add(askAgain)
	}
	g.plan(d)
}
