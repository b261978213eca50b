package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Cleanup(f func())
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// world is a hub with a mesh in memory and a clock of its own.
type world struct {
	t     tester
	h     *Hub
	mesh  *upstreamtest.Mesh
	mail  []exchange.Event
	now   int64
	table *policy.Table
	rests int // times the hub came to rest
}

const wallStart = 1_700_000_000_000_000

func newWorld(t tester, lim Limits) *world {
	w := &world{t: t, now: int64(time.Hour)}
	w.table = policy.NewTable([]*pushmeshv1.Namespace{
		{Prefix: "open", Policy: &pushmeshv1.Policy{Durable: true, ClientPublish: true, MaxPayload: 64}},
	})
	w.mesh = upstreamtest.New(func(e exchange.Event) { w.mail = append(w.mail, e) })
	w.h = newHub(t, Config{Loop: 3, EdgeID: "edge-1", Mesh: w.mesh, PolicyFor: func(name string) *policy.Policy { return w.table.For(name) }, Limits: lim})
	w.pass(0)
	return w
}

// lets says who comes in.
func (w *world) lets(cfg principals.Config) {
	h := w.h
	h.rooms.principals = principals.New(cfg, h.port(), &h.rooms.jobs, &h.cost, func() (int64, uint64) { return h.now, h.wall }, h.originOf)
	h.rooms.roster.Names = h.rooms.principals
}

// pass lets time go by, tick by tick.
func (w *world) pass(d time.Duration) {
	for end := w.now + int64(d); ; w.now += int64(Tick) {
		w.now = min(w.now, end)
		w.h.SetTime(w.now, wallStart+uint64(w.now/1000))
		for w.h.Tick(1000) {
		}
		w.settle()
		if w.rests < 30 || w.rests%16 == 0 {
			auditTimes(w.t, w.h)
		}
		if w.now == end {
			return
		}
	}
}

// settle hands events on until nothing is left to do.
func (w *world) settle() {
	for n := 0; ; n++ {
		if n > 100_000 {
			w.t.Fatal("the hub never comes to rest")
		}
		mail := w.mail
		w.mail = nil
		for _, e := range mail {
			w.h.Event(e)
		}
		more := w.h.Work(100)
		freeOver(w.h)
		if !more && len(w.mail) == 0 {
			w.h.Dirty(nil)
			checkItems(w.t, w.h)
			if w.rests++; w.rests < 30 || w.rests%16 == 0 {
				audit(w.t, w.h)
			}
			return
		}
	}
}

// checkItems sees to it that whatever a connection is owed belongs to a track that it has.
func checkItems(t tester, h *Hub) {
	for slot := range h.conns.Len() {
		c := h.conns.Get(slot)
		for i := range c.Out.Len() {
			tr := state.TrackOf(c.Out.At(i).Stream())
			if tr == nil {
				continue
			}
			found := false
			for j := 0; j < c.Tracks.Len() && !found; j++ {
				found = c.Tracks.At(j) == tr
			}
			if !found {
				t.Fatalf("connection %d is owed something of a track that is gone", slot)
			}
		}
	}
}

// client is the other end of one connection.
type client struct {
	w     *world
	slot  uint32
	gen   uint32
	in    []byte // bytes the hub has sent, not decoded
	kept  []byte // bytes sent to the hub that it has not used
	slow  bool   // takes nothing
	got   []frame
	ended bool

	asked  map[uint32]*wirev1.Subscribe
	over   map[uint32]bool   // subscriptions that have ended
	epochs map[string]uint64 // by topic, that the client was told of
	goes   bool              // GoAway has come
	last   *wirev1.Error     // the one that closes the connection
}

type frame struct {
	t wirev1.FrameType
	m proto.Message
}

func (w *world) dial() *client {
	slot, gen := w.h.Open()
	return &client{w: w, slot: slot, gen: gen, asked: map[uint32]*wirev1.Subscribe{}, over: map[uint32]bool{}, epochs: map[string]uint64{}}
}

// connect also says Hello and takes Welcome.
func (w *world) connect(hello *wirev1.Hello) *client {
	w.t.Helper()
	c := w.dial()
	hello.Version = 1
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, hello)
	c.expect("Welcome")
	return c
}

func (c *client) send(t wirev1.FrameType, m proto.Message) {
	c.w.t.Helper()
	b, err := wire.Append(nil, t, m)
	if err != nil {
		c.w.t.Fatal(err)
	}
	if s, ok := m.(*wirev1.Subscribe); ok {
		c.asked[s.GetId()] = s
		delete(c.over, s.GetId())
	}
	c.bytes(b)
}

func (c *client) bytes(b []byte) {
	c.kept = append(c.kept, b...)
	c.w.h.Heard(c.slot)
	c.feed()
	c.w.settle()
	c.take()
}

func (c *client) feed() {
	for !c.w.h.Status(c.slot).Hold {
		used, more := c.w.h.Feed(c.slot, c.kept, 10)
		c.kept = c.kept[used:]
		if !more {
			return
		}
	}
}

// take receives what the hub owes, unless the client is slow.
func (c *client) take() {
	for !c.slow && !c.ended && c.w.h.Gen(c.slot) == c.gen {
		bufs := c.w.h.Gather(c.slot, nil, 0)
		n := 0
		for _, b := range bufs {
			c.in = append(c.in, b...)
			n += len(b)
		}
		c.w.h.Wrote(c.slot, n)
		for _, slot := range c.w.h.Resumed(nil) {
			if slot == c.slot {
				c.feed()
			}
		}
		c.w.settle()
		st := c.w.h.Status(c.slot)
		if !st.Owes {
			if st.Closing && !st.Gone {
				c.ended = true
				c.w.h.Gone(c.slot)
				c.w.settle()
			}
			break
		}
	}
	c.decode()
}

func (c *client) decode() {
	for {
		n, t, ok := wire.Header(c.in)
		if !ok || len(c.in) < wire.HeaderSize+n {
			return
		}
		m := newMessage(t)
		if m == nil {
			c.w.t.Fatalf("the hub sent a frame of type %v", t)
		}
		if err := proto.Unmarshal(c.in[wire.HeaderSize:wire.HeaderSize+n], m); err != nil {
			c.w.t.Fatalf("%v: %v", t, err)
		}
		c.in = c.in[wire.HeaderSize+n:]
		c.lawful(frame{t, m})
		if !c.epochNamed(m) {
			c.got = append(c.got, frame{t, m})
		}
	}
}

// epochNamed checks, of everything that a client of any test gets, that a message of a durable
// topic comes under an epoch that the client was told of. first says that this is the first word of
// a topic's epoch, which stories leave out.
func (c *client) epochNamed(m proto.Message) (first bool) {
	ofGroup := func(ids []uint32) bool {
		return slices.ContainsFunc(ids, func(id uint32) bool { return c.asked[id].GetGroup() != "" })
	}
	switch m := m.(type) {
	case *wirev1.Subscribed:
		if s := c.asked[m.GetId()]; s != nil && m.GetEpoch() != 0 {
			c.epochs[s.GetFilter()] = m.GetEpoch()
		}
		for _, p := range m.GetPositions() {
			if p.GetEpoch() != 0 {
				c.epochs[p.GetTopic()] = p.GetEpoch()
			}
		}
	case *wirev1.Progress:
		known := c.epochs[m.GetTopic()]
		first = m.GetCode() == wirev1.Code_CODE_EPOCH_CHANGED && (known == 0 || known == m.GetEpoch())
		if m.GetCode() != wirev1.Code_CODE_EPOCH_CHANGED && known == 0 && !ofGroup(m.GetSubs()) {
			c.w.t.Fatalf("%v: its epoch was not named before", m)
		}
		c.epochs[m.GetTopic()] = m.GetEpoch()
	case *wirev1.Message:
		if m.GetSeq() > 0 && c.epochs[m.GetTopic()] == 0 && !ofGroup(m.GetSubs()) {
			c.w.t.Fatalf("%s/%d comes under an epoch that was never named", m.GetTopic(), m.GetSeq())
		}
	}
	return first
}

func newMessage(t wirev1.FrameType) proto.Message {
	switch t {
	case wirev1.FrameType_FRAME_TYPE_WELCOME:
		return &wirev1.Welcome{}
	case wirev1.FrameType_FRAME_TYPE_SUBSCRIBED:
		return &wirev1.Subscribed{}
	case wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED:
		return &wirev1.Unsubscribed{}
	case wirev1.FrameType_FRAME_TYPE_MESSAGE:
		return &wirev1.Message{}
	case wirev1.FrameType_FRAME_TYPE_PING:
		return &wirev1.Ping{}
	case wirev1.FrameType_FRAME_TYPE_PONG:
		return &wirev1.Pong{}
	case wirev1.FrameType_FRAME_TYPE_PUBLISHED:
		return &wirev1.Published{}
	case wirev1.FrameType_FRAME_TYPE_CLAIM_STATE:
		return &wirev1.ClaimState{}
	case wirev1.FrameType_FRAME_TYPE_ERROR:
		return &wirev1.Error{}
	case wirev1.FrameType_FRAME_TYPE_GO_AWAY:
		return &wirev1.GoAway{}
	case wirev1.FrameType_FRAME_TYPE_REFRESHED:
		return &wirev1.Refreshed{}
	case wirev1.FrameType_FRAME_TYPE_PRESENCE:
		return &wirev1.Presence{}
	case wirev1.FrameType_FRAME_TYPE_STATED:
		return &wirev1.Stated{}
	case wirev1.FrameType_FRAME_TYPE_PROGRESS:
		return &wirev1.Progress{}
	}
	return nil
}

// text of a frame, short enough for stories.
func (f frame) text() string {
	switch m := f.m.(type) {
	case *wirev1.Welcome:
		if m.GetResumed() {
			return "Welcome resumed"
		}
		return "Welcome"
	case *wirev1.Subscribed:
		out := fmt.Sprintf("Subscribed %d head=%d", m.GetId(), m.GetHead())
		if !m.GetRecovered() || m.GetMissed() > 0 {
			out += fmt.Sprintf(" recovered=%v missed=%d", m.GetRecovered(), m.GetMissed())
		}
		slices.SortFunc(m.Positions, func(a, b *wirev1.Subscribed_TopicPosition) int { return strings.Compare(a.GetTopic(), b.GetTopic()) })
		for _, p := range m.GetPositions() {
			out += fmt.Sprintf(" %s:%d", p.GetTopic(), p.GetHead())
		}
		return out
	case *wirev1.Refreshed:
		return fmt.Sprintf("Refreshed %d", m.GetId())
	case *wirev1.Unsubscribed:
		return fmt.Sprintf("Unsubscribed %d", m.GetId())
	case *wirev1.Presence:
		return fmt.Sprintf("Presence %s %d", m.GetTopic(), m.GetCount())
	case *wirev1.Stated:
		return fmt.Sprintf("Stated %d", m.GetId())
	case *wirev1.Message:
		out := fmt.Sprintf("%s/%d", m.GetTopic(), m.GetSeq())
		if m.GetSeq() == 0 {
			out = m.GetTopic() + "=" + string(m.GetPayload())
		}
		if m.GetAttempt() > 0 {
			out += fmt.Sprintf(" attempt=%d", m.GetAttempt())
		}
		if len(m.GetSubs()) > 0 {
			out += fmt.Sprintf(" subs=%v", m.GetSubs())
		}
		if m.GetScore() != 0 {
			out += fmt.Sprintf(" score=%g", m.GetScore())
		}
		if m.GetUnranked() {
			out += " unranked"
		}
		return out
	case *wirev1.Published:
		return fmt.Sprintf("Published %d", m.GetId())
	case *wirev1.ClaimState:
		out := fmt.Sprintf("ClaimState %d %s %s", m.GetId(), m.GetResource(), strings.TrimPrefix(m.GetState().String(), "STATE_"))
		switch {
		case m.GetState() == wirev1.ClaimState_STATE_QUEUED:
			out += fmt.Sprintf(" %d", m.GetPosition())
		case m.GetState() == wirev1.ClaimState_STATE_LOST:
			out += " " + strings.TrimPrefix(m.GetCode().String(), "CODE_")
		case m.GetToken() > 0:
			out += fmt.Sprintf(" token=%d", m.GetToken())
		}
		return out
	case *wirev1.Error:
		return fmt.Sprintf("Error %s ref=%d", strings.TrimPrefix(m.GetCode().String(), "CODE_"), m.GetRef())
	case *wirev1.GoAway:
		return "GoAway"
	case *wirev1.Ping:
		return "Ping"
	case *wirev1.Pong:
		return fmt.Sprintf("Pong %d", m.GetSentAt())
	case *wirev1.Progress:
		return fmt.Sprintf("Progress %s %d..%d %s", m.GetTopic(), m.GetFrom(), m.GetTo(), strings.TrimPrefix(m.GetCode().String(), "CODE_"))
	}
	return f.t.String()
}

// texts takes what came.
func (c *client) texts() (got []string) {
	c.w.settle()
	c.take()
	for _, f := range c.got {
		got = append(got, f.text())
	}
	c.got = nil
	return got
}

// expect takes what came and compares it.
func (c *client) expect(want ...string) {
	c.w.t.Helper()
	got := c.texts()
	if !slices.Equal(got, want) {
		c.w.t.Fatalf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (c *client) subscribe(m *wirev1.Subscribe) { c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m) }

func (c *client) ack(name string, seq uint64, through bool) {
	c.send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: name, Seq: seq, Through: through}}})
}

var _ tester = (*testing.T)(nil)

// freeOver does with connections that are over what a loop does once it has closed their sockets.
func freeOver(h *Hub) {
	for _, slot := range h.Over(nil, 1<<20) {
		h.Free(slot)
	}
}
