package delivery

import (
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/admin"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/report"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/roster"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/departure"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/membership"
	"github.com/pushmesh/pushmesh/services/edge/internal/members"
	"github.com/pushmesh/pushmesh/services/edge/internal/permissions"
	"github.com/pushmesh/pushmesh/services/edge/internal/presence"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// rooms are features of the loop with a state of their own.
type rooms struct {
	roster      *roster.Roster
	jobs        walk.Jobs
	claims      *claims.Desk
	presence    *presence.Watch
	members     *members.Desk
	admin       *admin.Admin
	departure   *departure.Departures
	report      *report.Reporter
	principals  *principals.Table
	permissions *permissions.Desk
}

func newRooms(h *Hub) rooms {
	all := &roster.Roster{Loop: h.cfg.Loop, Seed: h.idSeed, Conns: &h.conns, Topics: &h.topics, Counts: &h.counts, Wall: func() uint64 { return h.wall }}
	p := port{all, h}
	who := principals.New(h.cfg.Principals, p, &h.rooms.jobs, &h.cost, func() (int64, uint64) { return h.now, h.wall }, h.originOf)
	desk := permissions.New(permissions.Config{Asker: h.cfg.Permissions, Delivery: p, Who: who, Jobs: &h.rooms.jobs, Cost: &h.cost, Now: func() int64 { return h.now }, Origin: h.originOf})
	who.Allow(desk.Holds)
	in := members.New(members.Config{
		Loop: h.cfg.Loop, Delivery: p, Mesh: h.mesh, Rules: &h.rules, Jobs: &h.rooms.jobs, Cost: &h.cost, Now: func() (int64, uint64) { return h.now, h.wall },
	})
	all.Names, all.States = who, in
	return rooms{
		roster: all, members: in,
		claims: claims.New(p, h.mesh),
		presence: presence.New(presence.Config{
			Loop: h.cfg.Loop, Delivery: p, Mesh: h.mesh, Jobs: &h.rooms.jobs, Cost: &h.cost,
			Watched: func(topic string) bool { return h.cfg.PolicyFor(topic).Presence },
		}),
		admin:      &admin.Admin{Delivery: p, Jobs: &h.rooms.jobs, Cost: &h.cost},
		departure:  departure.New(p, &h.rooms.jobs),
		report:     report.New(p, h.cfg.Events, h.cfg.Refusals.Sampler()),
		principals: who, permissions: desk,
	}
}

// port is the hub as its rooms see it: each declares the part that it needs. Handles are of
// connections that have not ended.
type port struct {
	*roster.Roster
	h *Hub
}

func (h *Hub) port() port { return port{h.rooms.roster, h} }

func (p port) conn(at exchange.Conn) *state.Conn { return p.h.conns.Get(at.Slot) }

// ControlBytes implements claims.Delivery.
func (p port) ControlBytes(at exchange.Conn) int { return p.conn(at).Out.Answers() }

// ClaimState implements claims.Delivery.
func (p port) ClaimState(at exchange.Conn, st *wirev1.ClaimState) {
	p.h.control(p.conn(at), wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, st)
}

// RefuseRequest implements claims.Delivery.
func (p port) RefuseRequest(at exchange.Conn, ref uint32, why *code.Error) {
	p.h.refuse(p.conn(at), ref, why)
}

// Keep implements claims.Delivery.
func (p port) Keep(at exchange.Conn, bytes int) { p.h.kept.Charge(at.Slot, bytes) }

// CloseSlot implements admin.Delivery.
func (p port) CloseSlot(slot uint32, why wirev1.Code, reason string) {
	p.h.fail(p.h.conns.Get(slot), why, reason)
}

// SetProfile implements admin.Delivery.
func (p port) SetProfile(slot uint32, profile *exchange.Profile) {
	p.h.conns.SetProfile(p.h.conns.Get(slot), profile)
}

// AskToGo implements departure.Delivery.
func (p port) AskToGo(slot uint32, m *wirev1.GoAway, until int64) {
	h, c := p.h, p.h.conns.Get(slot)
	if c.Draining {
		c.Deadline = min(c.Deadline, until)
		return
	}
	c.Draining = true
	if len(c.Groups) > 0 {
		h.jobs.Push(&pausing{c: c, gen: c.Gen, remaining: len(c.Groups)})
	}
	h.control(c, wirev1.FrameType_FRAME_TYPE_GO_AWAY, m)
	c.Deadline = until
	h.wheel.Set(c.Slot, h.now+int64(Tick))
}

// TurnAway implements departure.Delivery.
func (p port) TurnAway(slot uint32, m *wirev1.GoAway) {
	c := p.h.conns.Get(slot)
	c.Out.KeepAnswers()
	p.h.control(c, wirev1.FrameType_FRAME_TYPE_GO_AWAY, m)
	p.h.close(c, wirev1.Code_CODE_DRAINING, m.GetReason())
}

// Connections implements departure.Delivery.
func (p port) Connections() int { return int(p.h.stats.Connections) }

// Now implements departure.Delivery and lag.Delivery.
func (p port) Now() int64 { return p.h.now }

// Stands implements lag.Delivery.
func (p port) Stands(t *state.Track) bool { return p.h.replay.stands(t) }

// Greet implements principals.Delivery.
func (p port) Greet(at exchange.Conn, m *wirev1.Hello) {
	p.h.greet(p.conn(at), m)
	p.h.conns.Resumed = append(p.h.conns.Resumed, at.Slot)
}

// Close implements principals.Delivery.
func (p port) Close(at exchange.Conn, why *code.Error) { p.h.failErr(p.conn(at), why) }

// Refreshed implements principals.Delivery.
func (p port) Refreshed(at exchange.Conn, m *wirev1.Refreshed) {
	p.h.control(p.conn(at), wirev1.FrameType_FRAME_TYPE_REFRESHED, m)
	p.h.wheel.Sooner(at.Slot, p.h.now)
}

// LoseClaims implements principals.Delivery.
func (p port) LoseClaims(at exchange.Conn, owner string, denied func(resource string) bool) {
	p.h.rooms.claims.Lose(p.conn(at).Claims, owner, denied)
}

// EndIf implements principals.Delivery.
func (p port) EndIf(at exchange.Conn, shared bool, i int, denied func(id uint32, filter, group string) (why string)) (ended bool) {
	why, c := "", p.conn(at)
	if shared {
		g := c.Groups[i]
		if why = denied(g.ID, g.Filter, g.Group); why != "" {
			p.h.groups.end(g, wirev1.Code_CODE_FORBIDDEN, why)
		}
	} else if s := c.Subs.At(i); !s.Dead {
		if why = denied(s.ID, s.Filter(), ""); why != "" {
			p.h.endSub(s, wirev1.Code_CODE_FORBIDDEN, why)
		}
	}
	return why != ""
}

// Park implements permissions.Delivery.
func (p port) Park(at exchange.Conn, parked bool) {
	p.h.wheel.Sooner(at.Slot, p.h.conns.Park(p.conn(at), parked, p.h.now))
}

// EndSubscription implements permissions.Delivery.
func (p port) EndSubscription(at exchange.Conn, id uint32, why wirev1.Code, reason string) {
	if c := p.conn(at); c.SubByID(id) != nil {
		p.h.endSub(c.SubByID(id), why, reason)
	} else if g := c.MemberByID(id); g != nil {
		p.h.groups.end(g, why, reason)
	} else {
		p.h.rooms.members.Unwatch(at.Slot, id, why, reason)
	}
}

// Claims implements permissions.Delivery.
func (p port) Claims(at exchange.Conn, resource string, end bool) bool {
	return end && p.h.rooms.claims.TakeBack(p.conn(at).Claims, resource, p.h.rooms.principals.Owner(at.Slot, p.conn(at).ClientID)) || !end && p.conn(at).Claims.Concerns(resource)
}

// Policy implements membership.Delivery.
func (p port) Policy(topic string) *policy.Policy { return p.h.cfg.PolicyFor(topic) }

// Acknowledged implements membership.Delivery.
func (p port) Acknowledged(m *membership.Member, msg *exchange.Message) {
	p.h.rooms.report.Delivered(m.Conn, msg.Topic, m.Group, msg.Epoch, msg.Seq)
}

// Asking implements members.Delivery.
func (p port) Asking(at exchange.Conn, id uint32) request.Client { return p.h.asking(p.conn(at), id) }

// Fits implements members.Delivery.
func (p port) Fits(at exchange.Conn, bytes int) bool { return p.h.kept.Fits(at.Slot, bytes) }

// Share implements members.Delivery.
func (p port) Share(at exchange.Conn, frame []byte) {
	it := sendq.AnswerOf(frame)
	p.h.push(p.conn(at), &it)
}

// Answer implements members.Delivery.
func (p port) Answer(at exchange.Conn, t wirev1.FrameType, m proto.Message) {
	p.h.control(p.conn(at), t, m)
}

// Hold implements members.Delivery.
func (p port) Hold(at exchange.Conn, id uint32) { p.h.rooms.permissions.Hold(at, id) }

// Over implements members.Delivery.
func (p port) Over(slot, id uint32) { p.h.rooms.permissions.Over(slot, id) }

// Moved implements members.Delivery.
func (p port) Moved(at exchange.Conn, topic string) { p.h.rooms.presence.Moved(at, topic, false) }

// Names implements members.Delivery.
func (p port) Names(at exchange.Conn, topic string) bool { return p.h.rooms.presence.Names(at, topic) }

// Watches implements principals.Delivery.
func (p port) Watches(at exchange.Conn) int { return p.h.rooms.members.Watches(at.Slot) }

// EndWatchIf implements principals.Delivery.
func (p port) EndWatchIf(at exchange.Conn, i int, denied func(id uint32, filter, group string) (why string)) (ended bool) {
	return p.h.rooms.members.EndIf(at.Slot, i, denied)
}
