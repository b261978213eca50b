package delivery

import (
	"cmp"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
	"github.com/pushmesh/pushmesh/services/edge/internal/sessions"
)

// Features of this edge, as Welcome lists them.
var Features = []string{"ack", "session", "wildcard", "positions", "publish", "overflow", "progress", "nack", "group", "where", "rank", "claim", "ping", "last", "presence"}

const attachTimeout = 10 * time.Second // that the mesh has to answer Attach

func (h *Hub) hello(c *state.Conn, body []byte) {
	if why := h.rules.Newcomer(); why != nil {
		h.failErr(c, why)
		return
	}
	var m wirev1.Hello
	if err := proto.Unmarshal(body, &m); err != nil {
		h.fail(c, wirev1.Code_CODE_BAD_FRAME, "Hello can't be decoded")
		return
	}
	if why := request.Hello(&m); why != nil {
		h.failErr(c, why)
		return
	}
	backend, wait, why := h.rooms.principals.Hello(h.handle(c), &m, c.Secure)
	if why != nil {
		h.failErr(c, why)
		return
	}
	if c.Backend = backend; wait { // the time is Hello's still
		c.Phase = state.Waiting
		return
	}
	h.greet(c, &m)
}

// greet goes on with a Hello of which it is known who says it.
func (h *Hub) greet(c *state.Conn, m *wirev1.Hello) {
	if c.Secure != exchange.Plain { // nobody asks again
		h.conns.More(c).Secure = exchange.Plain
		h.conns.Less(c)
	}
	id := h.connID(c)
	c.Since = uint32(h.wall / 1e6)
	request.Settle(m, h.lim.ReceiveWindow)
	c.ClientID, c.Heartbeat, c.Window = h.texts.Put(m.GetClientId()), m.GetHeartbeatMs(), m.GetReceiveWindow()
	if c.Pings == state.NoPings && request.Wants(m, "ping") {
		c.Pings = state.PingsOfFrames
	}
	h.conns.SetProfile(c, exchange.NewProfile(m.GetProfile(), m.GetProfileVector()))
	if m.GetSession() == "" {
		h.welcome(c, id, false)
		return
	}
	if c.HungUp {
		// the edge was late: by now the client may have its session elsewhere, from where it must
		// not be taken
		h.fail(c, wirev1.Code_CODE_HANDSHAKE_TIMEOUT, "the client hung up before it was answered")
		return
	}
	c.Phase = state.Waiting
	c.Deadline = h.now + int64(attachTimeout)
	h.wheel.Set(c.Slot, c.Deadline)
	h.conns.More(c).Session = &state.Session{Session: sessions.Session{User: h.user(c), Name: m.GetSession(), Conn: id}}
	h.mesh.Attach(h.handle(c), c.Session.User, c.Session.Name, m.GetSessionTtlS(), id, h.origin(c))
}

func (h *Hub) user(c *state.Conn) string { return cmp.Or(h.rooms.principals.Name(c.Slot), c.User()) }

func (h *Hub) asking(c *state.Conn, id uint32) request.Client {
	a, extra := c.Asking(id), h.rooms.permissions.For(h.handle(c)) // also where nobody is asked
	a.IDInUse = a.IDInUse || id != 0 && h.rooms.members.Uses(c.Slot, id)
	a.Subscriptions += h.rooms.members.Watches(c.Slot)
	if a.Rights, a.Known = h.rooms.principals.Rights(c.Slot); a.Known {
		a.Extra = extra
		h.addCost(a.Rights.Weight())
	}
	return a
}

// origin is the address for which what a connection makes, and has kept, counts; a router's is
// nobody's.
func (h *Hub) origin(c *state.Conn) string {
	if h.cfg.Origin == nil || c.Backend {
		return ""
	}
	return h.cfg.Origin(c.Slot)
}

func (h *Hub) originOf(slot uint32) string { return h.origin(h.conns.Get(slot)) }

// welcome opens the connection.
func (h *Hub) welcome(c *state.Conn, id uint64, resumed bool) {
	c.Phase, c.Deadline = state.Open, 0
	h.wheel.Set(c.Slot, min(c.SilentUntil(h.now, h.ms), h.signOfLife(c), h.rooms.principals.EndsAt(c.Slot)))
	h.control(c, wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{
		ConnectionId: id, Edge: h.cfg.EdgeID, HeartbeatMs: c.Heartbeat, MaxFrame: uint32(h.lim.MaxFrame), Resumed: resumed,
		ClientId: c.ClientID, Features: Features, Version: wire.Version, PublishWindow: uint32(h.lim.PublishWindow), User: h.rooms.principals.User(c.Slot),
	})
	h.rooms.report.Connected(h.handle(c), resumed)
	h.rooms.departure.Welcomed(c.Slot)
}

// Shed has newcomers refused, Hello (a session keeps its place) and Subscribe, or taken again.
func (h *Hub) Shed(on bool) { h.rules.Shedding = on }

// fits reports whether matches stay cheap with another filter.
func (h *Hub) fits(filter string, group bool) bool {
	if group {
		return h.groups.room.Fits(filter)
	}
	return h.wildcards.index.Fits(filter)
}

// connID names a connection, here and in what is told of it. It is made of what names its slot, so
// that it takes no memory.
func (h *Hub) connID(c *state.Conn) uint64 { return state.ConnID(h.idSeed, c.Slot, c.Gen) }
