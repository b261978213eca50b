package delivery

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// mode is a frame as a client may send it, and what goes before and comes after.
type mode struct {
	name   string
	hello  *wirev1.Hello // nil: the frame is one
	before func(w *world, c *client)
	ft     wirev1.FrameType
	frame  proto.Message
	// set gives fields another value than this test would; a field of a kind that has no other is
	// left out.
	set map[string]func(m proto.Message)
}

const noLog = "An **ephemeral** topic has no log: seq is 0, nothing is repeated or recovered, and nothing is to be ACKed"

// unused says of fields without effect in a mode where docs/protocol.md says so, word for word; ""
// where it has one.
func unused(m *mode, field string) string {
	switch frame := m.frame.(type) {
	case *wirev1.Hello:
		switch field {
		case "traceparent":
			return "W3C trace context; the edge keeps none of it"
		case "agent":
			return "name and version of the client's software, for who looks at the wire"
		case "features":
			return "names that the edge does not know mean nothing"
		case "session_ttl_s":
			if frame.GetSession() == "" {
				return "without `session` it means nothing"
			}
		}
	case *wirev1.Subscribe:
		switch {
		case field == "skip_last": // with topics that keep theirs, see TestLastMessagesComeFirst
			return "in topics that keep none, and with a start or a position that says where to begin, it means nothing"
		case field == "no_echo": // with its own messages, see TestNoEcho
			if frame.GetGroup() == "" && frame.GetStart() != wirev1.Start_START_LIVE {
				// else it is not plain
				return "Where this client publishes nothing it means nothing"
			}
		case frame.GetGroup() != "":
			if field == "ack" && strings.HasPrefix(frame.GetFilter(), "talk") {
				return noLog
			}
		case field == "receive_window" && !frame.GetAck():
			return "without `ack` it means nothing"
		case !strings.HasPrefix(frame.GetFilter(), "talk"):
		case field == "ack", field == "receive_window", field == "seq" && (frame.GetSeq() > 0), field == "epoch" && frame.GetEpoch() > 0:
			return noLog
		}
	case *wirev1.RefreshToken:
		if field == "token" {
			return "An edge that trusts no issuer answers UNSUPPORTED, whatever the token"
		}
	case *wirev1.Nack:
		if field == "reason" {
			return "for people who look at the wire"
		}
	}
	return ""
}

// Nothing that a client says is ignored in silence: each field of each frame, in each mode, changes
// what comes of the frame, is refused, or stands in docs/protocol.md as one that means nothing
// there.
func TestNothingThatAClientSaysIsIgnored(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	covered := map[protoreflect.FullName]bool{}
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) {
			plain := m.outcome(t, nil)
			fields := m.frame.ProtoReflect().Descriptor().Fields()
			for i := range fields.Len() {
				fd := fields.Get(i)
				set := m.set[string(fd.Name())]
				if set == nil {
					set = func(to proto.Message) { change(to, fd) }
				}
				covered[fd.FullName()] = true
				same := m.outcome(t, set) == plain
				why := unused(&m, string(fd.Name()))
				switch {
				case same && why == "":
					t.Errorf("%s is ignored in silence", fd.Name())
				case !same && why != "":
					t.Errorf("%s has an effect, though docs/protocol.md says: %s", fd.Name(), why)
				case why != "" && !strings.Contains(string(page), why):
					t.Errorf("docs/protocol.md does not say of %s: %s", fd.Name(), why)
				}
			}
		})
	}
	for ft, frame := range clientFrames {
		fields := frame.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if !covered[fields.Get(i).FullName()] {
				t.Errorf("no mode has %v.%s", ft, fields.Get(i).Name())
			}
		}
	}
}

// change gives a field another value.
func change(to proto.Message, fd protoreflect.FieldDescriptor) {
	m := to.ProtoReflect()
	switch fd.Kind() {
	case protoreflect.BoolKind:
		m.Set(fd, protoreflect.ValueOfBool(!m.Get(fd).Bool()))
	case protoreflect.StringKind:
		m.Set(fd, protoreflect.ValueOfString(m.Get(fd).String()+"x"))
	case protoreflect.BytesKind:
		m.Set(fd, protoreflect.ValueOfBytes(append(m.Get(fd).Bytes(), 'x')))
	case protoreflect.Uint32Kind:
		m.Set(fd, protoreflect.ValueOfUint32(uint32(m.Get(fd).Uint())+2))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		m.Set(fd, protoreflect.ValueOfUint64(m.Get(fd).Uint()+2))
	default:
		panic("this test knows no other value of " + fd.FullName())
	}
}

// outcome is all that comes of the frame, once changed by set: what the client is told from then
// on, and what the mesh and the connection have.
func (m *mode) outcome(t *testing.T, set func(proto.Message)) string {
	t.Helper()
	w := newWorld(t, Limits{QueueMessages: 8})
	w.table = policy.NewTable([]*pushmeshv1.Namespace{
		{Prefix: "open", Policy: &pushmeshv1.Policy{Durable: true, ClientPublish: true}},
		{Prefix: "talk", Policy: &pushmeshv1.Policy{ClientPublish: true}},
		{Prefix: "seat", Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Clients: true, MaxClientPriority: 3}}},
	})
	w.h.judgeLinks(linkhealth.Report)
	w.h.cfg.Path = func(uint32) linkhealth.Path { return linkhealth.Path{} }
	w.mesh.Append("open/a", "1", "2", "3", "4", "5", "6")
	w.mesh.Retain("open/a", 2)
	c := w.dial()
	if m.hello != nil {
		hello := proto.Clone(m.hello).(*wirev1.Hello)
		hello.Version, hello.ClientId = 1, "c1"
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, hello)
		c.texts()
	}
	if m.before != nil {
		m.before(w, c)
	}
	frame := proto.Clone(m.frame)
	if set != nil {
		set(frame)
	}
	c.send(m.ft, frame)
	c.later()
	var out strings.Builder
	for _, f := range c.got {
		if w, ok := f.m.(*wirev1.Welcome); ok {
			w.ConnectionId = 0
		}
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(f.m)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%v %x\n", f.t, b)
	}
	s := w.h.Stats()
	fmt.Fprintf(&out, "refused %v, closed %v, %d ACKs, %d NACKs, %d un-ACKed, ended %v\n", s.Refused, s.Closes, s.Acks, s.Nacks, s.Unacked, c.ended)
	for _, it := range w.mesh.Published {
		fmt.Fprintln(&out, it.GetTopic(), string(it.GetPayload()), it.GetHeaders(), it.GetDedupeKey(), it.GetClientId())
	}
	for _, j := range w.mesh.Members() {
		fmt.Fprintln(&out, j.Group, j.Filter, j.Key, j.Window, j.Start.Mode, j.Start.Seq, j.Start.Epoch, len(j.Start.Positions))
	}
	for _, settled := range w.mesh.Settled() {
		fmt.Fprintln(&out, settled.Sub, settled.Message.Seq, settled.How, settled.DelayMS)
	}
	for _, op := range w.mesh.Claims.Asked {
		op.Conn = 0
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(op)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "claim %x\n", b)
	}
	for _, user := range []string{"client:c1", "client:c1x"} {
		for _, name := range []string{"s", "sx", "x"} {
			got := w.mesh.Session(user, name)
			fmt.Fprintln(&out, got.TTL, got.Held, got.Filters)
		}
	}
	if !c.ended {
		conn := w.h.conns.Get(c.slot)
		fmt.Fprint(&out, conn.Window, " ", conn.Profile != nil, " ", s.RTT)
	}
	return out.String()
}

// later is what goes on behind the frame: messages come while the client reads, then while it does
// not.
func (c *client) later() {
	w := c.w
	send := func(from int) {
		for i := range 4 {
			msgs := w.mesh.Send("open/a", fmt.Sprint(from+i))
			for _, m := range w.mesh.Members() {
				if topic.Match(m.Filter, "open/a") {
					w.mesh.Assign(m, 0, msgs...)
				}
			}
			w.mesh.Live(upstreamtest.Encode("talk/a", 0, 0, fmt.Sprint(from+i)))
		}
		w.settle()
	}
	send(7)
	c.take()
	c.slow = true
	for i := range 5 {
		send(11 + 4*i)
	}
	c.slow = false
	c.take()
	w.pass(11 * time.Second) // what won't come is named after 10 s
	c.take()
}

func modes() (all []mode) {
	plain := &wirev1.Hello{}
	all = append(all,
		mode{name: "Hello", ft: wirev1.FrameType_FRAME_TYPE_HELLO, frame: &wirev1.Hello{Version: 1, ClientId: "c1", HeartbeatMs: 10_000, ReceiveWindow: 5}, set: helloSet},
		mode{
			name: "Hello with a session", ft: wirev1.FrameType_FRAME_TYPE_HELLO,
			frame: &wirev1.Hello{Version: 1, ClientId: "c1", Session: "s", HeartbeatMs: 10_000}, set: helloSet,
		},
		mode{name: "RefreshToken", hello: plain, ft: wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN, frame: &wirev1.RefreshToken{Id: 1}},
		mode{name: "Ping", hello: plain, ft: wirev1.FrameType_FRAME_TYPE_PING, frame: &wirev1.Ping{SentAt: 7}},
	)
	return slices.Concat(all, subscribes(), publishes(), settles(), claimModes())
}

var helloSet = map[string]func(proto.Message){
	"profile":        func(m proto.Message) { m.(*wirev1.Hello).Profile = map[string]float64{"a": 1} },
	"profile_vector": func(m proto.Message) { m.(*wirev1.Hello).ProfileVector = []float32{1} },
	"features":       func(m proto.Message) { m.(*wirev1.Hello).Features = []string{"x"} },
	"heartbeat_ms":   func(m proto.Message) { m.(*wirev1.Hello).HeartbeatMs = 20_000 },
}

func subscribes() (all []mode) {
	set := map[string]func(proto.Message){
		"start": func(m proto.Message) {
			f := m.(*wirev1.Subscribe)
			f.Start = map[wirev1.Start]wirev1.Start{wirev1.Start_START_LIVE: wirev1.Start_START_EARLIEST}[f.GetStart()]
		},
		"overflow": func(m proto.Message) { m.(*wirev1.Subscribe).Overflow = wirev1.Overflow_OVERFLOW_CONFLATE },
		"where":    func(m proto.Message) { m.(*wirev1.Subscribe).Where = "payload > 12.0" },
		"positions": func(m proto.Message) {
			f := m.(*wirev1.Subscribe)
			f.Positions = []*wirev1.Position{{Topic: strings.Replace(f.GetFilter(), "+", "a", 1), Epoch: upstreamtest.BaseEpoch, Seq: 2}}
		},
		"group":     func(m proto.Message) { m.(*wirev1.Subscribe).Group += "g" },
		"group_key": func(m proto.Message) { m.(*wirev1.Subscribe).GroupKey = "topic" },
	}
	for _, filter := range []string{"open/a", "open/+", "talk/a", "talk/+"} {
		for _, start := range []wirev1.Start{wirev1.Start_START_LIVE, wirev1.Start_START_EARLIEST, wirev1.Start_START_AFTER_SEQ, wirev1.Start_START_LAST_N, wirev1.Start_START_SESSION} {
			for _, as := range []string{"", "ack", "group"} {
				if as == "group" && start == wirev1.Start_START_SESSION {
					// refused whatever else it says
					continue
				}
				f := &wirev1.Subscribe{Id: 1, Filter: filter, Start: start, Ack: as == "ack"}
				switch {
				case start == wirev1.Start_START_AFTER_SEQ && !strings.Contains(filter, "+"):
					f.Seq, f.Epoch = 3, upstreamtest.BaseEpoch
				case start == wirev1.Start_START_LAST_N:
					f.Seq = 2
				}
				if as == "group" {
					f.Group = "g"
				}
				all = append(all, mode{
					name: fmt.Sprint("Subscribe ", filter, " ", start, " ", as), hello: &wirev1.Hello{Session: "s"}, ft: wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, frame: f, set: set,
				})
			}
		}
	}
	return append(all, mode{
		name: "Unsubscribe", hello: &wirev1.Hello{}, ft: wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, frame: &wirev1.Unsubscribe{Id: 1},
		before: func(_ *world, c *client) { c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/a"}) },
	})
}

func publishes() (all []mode) {
	set := map[string]func(proto.Message){"headers": func(m proto.Message) { m.(*wirev1.Publish).Headers = map[string]string{"k": "v"} }}
	for _, name := range []string{"open/a", "talk/a"} {
		for id := range uint32(2) {
			all = append(all, mode{
				name: fmt.Sprint("Publish ", name, " id ", id), hello: &wirev1.Hello{}, ft: wirev1.FrameType_FRAME_TYPE_PUBLISH,
				frame: &wirev1.Publish{Id: id, Topic: name, Payload: []byte("hi")}, set: set,
			})
		}
	}
	return all
}

// settles are Ack and Nack of what a plain subscription, a session's and a group's member have.
func settles() (all []mode) {
	entry := func(change func(e *wirev1.Ack_Entry)) func(proto.Message) {
		return func(m proto.Message) { change(m.(*wirev1.Ack).GetEntries()[0]) }
	}
	acks := map[string]func(proto.Message){
		"topic": entry(func(e *wirev1.Ack_Entry) { e.Topic += "x" }), "seq": entry(func(e *wirev1.Ack_Entry) { e.Seq = 99 }),
		"through": entry(func(e *wirev1.Ack_Entry) { e.Through = true }), "sub": entry(func(e *wirev1.Ack_Entry) { e.Sub = 99 }),
		"epoch": entry(func(e *wirev1.Ack_Entry) { e.Epoch = 9 }),
	}
	for as, sub := range map[string]*wirev1.Subscribe{
		"plain": {Start: wirev1.Start_START_EARLIEST}, "session": {Start: wirev1.Start_START_SESSION}, "group": {Group: "g"},
	} {
		before := func(w *world, c *client) {
			sub := proto.Clone(sub).(*wirev1.Subscribe)
			sub.Id, sub.Filter, sub.Ack = 1, "open/a", true
			c.subscribe(sub)
			msgs := w.mesh.Send("open/a", "a", "b", "c") // 7, 8, 9
			if sub.GetGroup() != "" {
				w.mesh.Assign(w.mesh.Members()[0], 0, msgs...)
			}
			w.settle()
			c.take()
		}
		all = append(all, mode{
			name: "Nack " + as, hello: &wirev1.Hello{Session: "s"}, before: before, ft: wirev1.FrameType_FRAME_TYPE_NACK,
			frame: &wirev1.Nack{Topic: "open/a", Seq: 8}, set: map[string]func(proto.Message){"delay_ms": func(m proto.Message) { m.(*wirev1.Nack).DelayMs = 3000 }},
		})
		for name, set := range acks { // the fields of an entry
			all = append(all, mode{
				name: fmt.Sprint("Ack ", as, " ", name), hello: &wirev1.Hello{Session: "s"}, before: before, ft: wirev1.FrameType_FRAME_TYPE_ACK,
				frame: &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "open/a", Seq: 8}}}, set: map[string]func(proto.Message){"entries": set},
			})
		}
	}
	return all
}

// claimModes hand on to the store what the op has a use for or not: what it means there is the
// store's to say.
func claimModes() (all []mode) {
	set := map[string]func(proto.Message){"op": func(m proto.Message) { m.(*wirev1.Claim).Op = (m.(*wirev1.Claim).GetOp() + 1) % claims.Ops }}
	for op := range wirev1.Claim_Op(claims.Ops) {
		all = append(all, mode{
			name: fmt.Sprint("Claim ", op), hello: &wirev1.Hello{}, ft: wirev1.FrameType_FRAME_TYPE_CLAIM, set: set,
			frame: &wirev1.Claim{Id: 1, Resource: "seat/r", Op: op, Token: map[wirev1.Claim_Op]uint64{wirev1.Claim_OP_RENEW: 1, wirev1.Claim_OP_RELEASE: 1}[op]},
		})
	}
	return all
}
