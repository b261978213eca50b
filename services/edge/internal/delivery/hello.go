package delivery

import (
	"cmp"
	"encoding/hex"
	"math/rand/v2"
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
var Features = []string{"ack", "session", "wildcard", "positions", "publish", "overflow", "progress", "nack", "group", "where", "rank", "claim"}

const (
	minHeartbeat     = 1000
	maxHeartbeat     = 600_000
	defaultHeartbeat = 30_000
	maxWindow        = 65_536
	// attachTimeout is how long the mesh has to answer Attach.
	attachTimeout = 10 * time.Second
)

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
	if len(m.GetTicket()) > 0 {
		if c.Backend = h.cfg.Redeem != nil && h.cfg.Redeem(m.GetTicket(), h.wall); !c.Backend {
			h.fail(c, wirev1.Code_CODE_UNAUTHENTICATED, "the ticket is not good, or not any more")
			return
		}
	}
	if h.cfg.TLSOnly && !c.Secure && !c.Backend {
		h.fail(c, wirev1.Code_CODE_UNSUPPORTED, "this edge takes TLS alone")
		return
	}
	if c.Secure { // nobody asks again
		h.conns.More(c).Secure = false
		h.conns.Less(c)
	}
	id := h.connID(c)
	c.Since = uint32(h.wall / 1e6)
	c.ClientID = h.texts.Put(cmp.Or(m.GetClientId(), madeUpID()))
	c.Heartbeat = clamp(m.GetHeartbeatMs(), minHeartbeat, maxHeartbeat, defaultHeartbeat)
	c.Window = clamp(m.GetReceiveWindow(), 1, maxWindow, h.lim.ReceiveWindow)
	h.setProfile(c, exchange.NewProfile(m.GetProfile(), m.GetProfileVector()))
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
	h.conns.More(c).Session = &state.Session{Session: sessions.Session{User: c.User(), Name: m.GetSession(), Conn: id}}
	h.mesh.Attach(h.handle(c), c.Session.User, c.Session.Name, m.GetSessionTtlS(), id, h.origin(c))
}

// origin is the address for which what a connection makes, and has kept, counts; a router's is
// nobody's.
func (h *Hub) origin(c *state.Conn) string {
	if h.cfg.Origin == nil || c.Backend {
		return ""
	}
	return h.cfg.Origin(c.Slot)
}

// welcome opens the connection.
func (h *Hub) welcome(c *state.Conn, id uint64, resumed bool) {
	c.Phase, c.Deadline = state.Open, 0
	h.wheel.Set(c.Slot, h.silentUntil(c))
	h.control(c, wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{
		ConnectionId: id, Edge: h.cfg.EdgeID, HeartbeatMs: c.Heartbeat, MaxFrame: uint32(h.lim.MaxFrame), Resumed: resumed,
		ClientId: c.ClientID, Features: Features, Version: wire.Version, PublishWindow: uint32(h.lim.PublishWindow),
	})
	h.rooms.report.Connected(h.handle(c), resumed)
	h.rooms.departure.Welcomed(c.Slot)
}

// silentUntil is when the connection will have been silent for too long.
func (h *Hub) silentUntil(c *state.Conn) int64 {
	return h.now - int64(h.ms-c.Heard)*int64(time.Millisecond) + c.Patience()
}

func clamp(v, low, high, otherwise uint32) uint32 {
	if v == 0 {
		return otherwise
	}
	return min(max(v, low), high)
}

func madeUpID() string {
	var b [8]byte
	for i, v := 0, rand.Uint64(); i < len(b); i, v = i+1, v>>8 {
		b[i] = byte(v)
	}
	return "c-" + hex.EncodeToString(b[:])
}

// setProfile has the connection's messages ranked for p from now on. The rankings that are asked
// for already are of the one before.
func (h *Hub) setProfile(c *state.Conn, p *exchange.Profile) {
	if p == c.Profile {
		return
	}
	h.conns.More(c).Profile = p
	h.conns.Less(c)
}

// Shed has newcomers refused, Hello (and so sessions that resume: they keep their place) and
// Subscribe, or taken again. What there is goes on.
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
func (h *Hub) connID(c *state.Conn) uint64 {
	id := h.idSeed ^ (uint64(c.Slot)<<32 | uint64(c.Gen))
	id = (id ^ id>>33) * 0xff51afd7ed558ccd // the finalizer of MurmurHash3
	id = (id ^ id>>33) * 0xc4ceb9fe1a85ec53
	return (id ^ id>>33) | 1
}
