package loop

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// input is what is left of a fuzz target's bytes. Behind its end there are zeros.
type input []byte

func (in *input) byte() byte {
	if len(*in) == 0 {
		return 0
	}
	b := (*in)[0]
	*in = (*in)[1:]
	return b
}

func (in *input) bytes(n int) []byte {
	b := (*in)[:min(n, len(*in))]
	*in = (*in)[len(b):]
	return b
}

// one of a list.
func one[V any](in *input, of ...V) V { return of[int(in.byte())%len(of)] }

// bit reports whether a byte has a bit.
func bit(b byte, n int) bool { return b>>n&1 == 1 }

// Topics and filters that players name.
var (
	gameTopics  = []string{"room/0", "room/1", "open/0", "open/1", "talk"}
	gameFilters = append([]string{"room/#", "open/+", "+/0", "#", "a//b", "$events/x", "", "room/deep/er"}, gameTopics...)
)

// step is one thing that happens: a byte says what, and who does it.
func (g *game) step() {
	op := g.in.byte()
	at := int(op>>4) % len(g.all)
	p := g.all[at]
	if p == nil || p.gone { // whoever does something is there
		p = g.arrive()
		g.all[at] = p
	}
	switch op & 15 {
	case 0:
		p.hello()
	case 1, 2, 3, 4:
		p.compose()
	case 5: // bytes of the input's own
		p.put(g.in.bytes(int(g.in.byte()) % 64))
	case 6: // frames that are broken
		p.spoil()
	case 7, 8:
		p.write(one(&g.in, 1, 3, 7, 50, 1<<20))
	case 9:
		for p.write(1<<20) > 0 { // a handshake takes some
			g.quiet()
		}
		g.answers()
	case 10:
		p.quit()
	case 11:
		g.pass(one(&g.in, time.Millisecond, 100*time.Millisecond, time.Second, 2500*time.Millisecond, 6*time.Second, 40*time.Second))
	case 12, 13:
		how := g.in.byte()
		g.publish(gameTopics[int(how)%len(gameTopics)], 1+int(how>>3)%4, one(&g.in, 0, 100, 3000, 30_000), how >= 0xe0)
	case 14:
		g.trouble()
	case 15:
		for range 1 + g.in.byte()%4 {
			g.l.turn()
		}
	}
	g.agree()
}

// arrive is a new player, with TLS where the game has it and the input does not say otherwise.
func (g *game) arrive() *player {
	p := g.connect()
	if how := g.in.byte(); g.kind.tls && how%8 > 0 {
		p.tls = newTLSEnd(how)
	} else if how%8 > 1 { // most say Hello
		p.hello()
	}
	return p
}

// trouble is what happens to the mesh.
func (g *game) trouble() {
	how := g.in.byte()
	on := bit(how, 7)
	switch how % 4 {
	case 0:
		g.mesh.CloseStore(on)
	case 1:
		g.mesh.Away(gameTopics[how>>2%4], on)
	case 2:
		g.mesh.Hold()
	case 3:
		g.mesh.Release()
	}
}

// quit closes a connection, half of it, or has its player read no more or again.
func (p *player) quit() {
	switch p.g.in.byte() % 6 {
	case 0:
		p.leave(false)
	case 1:
		p.leave(true)
	case 2:
		_ = unix.Shutdown(p.fd, unix.SHUT_WR) // its error is that the edge was faster
		p.hung = true
	case 3:
		p.slow = true
	case 4:
		p.slow = false
	case 5:
		p.read(1 + int(p.g.in.byte()))
	}
}

// hello, mostly a good one.
func (p *player) hello() {
	how := p.g.in.byte()
	m := &wirev1.Hello{Version: 1, ClientId: p.name(how), HeartbeatMs: one(&p.g.in, uint32(0), 1, 600_000, 1<<31), ReceiveWindow: uint32(how>>4) % 8}
	if bit(how, 2) && !p.g.kind.claims {
		m.Session = "s"
	}
	if how == 0xff {
		m.Version = 9
	}
	p.send(wirev1.FrameType_FRAME_TYPE_HELLO, m)
}

// compose sends a frame that the protocol knows, with fields that may mean nothing.
func (p *player) compose() { p.send(p.draw()) }

// spoil sends such a frame with a byte that is changed, or without its end.
func (p *player) spoil() {
	t, m := p.draw()
	b, err := wire.Append(nil, t, m)
	if err != nil {
		return
	}
	if at := int(p.g.in.byte()); at < len(b) {
		if x := p.g.in.byte(); x > 0 {
			b[at] ^= x
		} else {
			b = b[:at]
		}
	}
	p.put(b)
}

func (p *player) draw() (wirev1.FrameType, proto.Message) {
	in := &p.g.in
	what, id := in.byte(), uint32(in.byte())%5
	switch {
	case p.g.kind.claims && what%4 > 0:
		return wirev1.FrameType_FRAME_TYPE_CLAIM, p.claim(id)
	case what%16 < 5:
		return wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, p.subscribe(id)
	case what%16 < 7:
		return wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: id}
	case what%16 < 10:
		m := &wirev1.Ack{}
		for range 1 + id%3 {
			how := in.byte()
			m.Entries = append(m.Entries, &wirev1.Ack_Entry{Topic: one(in, gameTopics...), Seq: p.seq(), Through: bit(how, 0), Sub: uint32(how>>1) % 5})
		}
		return wirev1.FrameType_FRAME_TYPE_ACK, m
	case what%16 == 10:
		return wirev1.FrameType_FRAME_TYPE_NACK, &wirev1.Nack{Topic: one(in, gameTopics...), Seq: p.seq(), DelayMs: one(in, uint32(0), 50, 5000, 1<<31), Sub: id}
	case what%16 == 11:
		return wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: uint64(id)}
	case what%16 < 14:
		return wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: id, Topic: one(in, gameTopics...), Payload: make([]byte, one(in, 0, 10, 5000, 70_000))}
	case what%16 == 14:
		return wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN, &wirev1.RefreshToken{Id: id, Token: "t"}
	}
	return wirev1.FrameType(in.byte()), &wirev1.Ping{SentAt: 1}
}

func (p *player) seq() uint64 { return one(&p.g.in, uint64(1), 2, 3, 4, 5, 9, 0, 1<<60) }

func (p *player) subscribe(id uint32) *wirev1.Subscribe {
	in := &p.g.in
	how, more := in.byte(), in.byte()
	m := &wirev1.Subscribe{
		Id: id, Filter: one(in, gameFilters...), Ack: bit(how, 0), NoEcho: bit(how, 1), Start: wirev1.Start(how >> 2 % 8), Overflow: wirev1.Overflow(how >> 5 % 5), ReceiveWindow: uint32(more) % 4,
	}
	if m.GetStart() == wirev1.Start_START_AFTER_SEQ || m.GetStart() == wirev1.Start_START_LAST_N {
		m.Seq = p.seq()
	}
	switch {
	case p.g.kind.groups && more < 0xc0:
		m.Group, m.Ack, m.Start = one(in, "g", "h"), true, wirev1.Start_START_EARLIEST
		m.Filter, m.GroupKey = one(in, "room/0", "room/+", "open/0"), one(in, "", "", "", "topic")
	case more%16 == 4:
		m.Where = one(in, "priority > 3", "no expression", strings.Repeat("(", 40))
	case more%16 == 5:
		m.RankTopK = uint32(in.byte()) % 4
	case more%16 == 6:
		m.Positions = []*wirev1.Position{{Topic: one(in, gameTopics...), Epoch: 1000, Seq: p.seq()}}
	case more%16 == 7:
		m.Group = "g"
	}
	return m
}

// frame of the edge to a player. What it says beyond what every player may be told, kinds of games
// look at.
func (p *player) frame(t wirev1.FrameType, body []byte) {
	into := map[wirev1.FrameType]proto.Message{
		wirev1.FrameType_FRAME_TYPE_WELCOME: &wirev1.Welcome{}, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED: &wirev1.Subscribed{}, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED: &wirev1.Unsubscribed{},
		wirev1.FrameType_FRAME_TYPE_MESSAGE: &wirev1.Message{}, wirev1.FrameType_FRAME_TYPE_PONG: &wirev1.Pong{}, wirev1.FrameType_FRAME_TYPE_PUBLISHED: &wirev1.Published{},
		wirev1.FrameType_FRAME_TYPE_CLAIM_STATE: &wirev1.ClaimState{}, wirev1.FrameType_FRAME_TYPE_ERROR: &wirev1.Error{}, wirev1.FrameType_FRAME_TYPE_PROGRESS: &wirev1.Progress{},
		wirev1.FrameType_FRAME_TYPE_GO_AWAY: &wirev1.GoAway{},
	}[t]
	if into == nil {
		p.g.Fatalf("the edge sent %v %x", t, body[:min(len(body), 40)])
	}
	if err := proto.Unmarshal(body, into); err != nil {
		p.g.Fatalf("the edge sent a %v that can't be decoded: %v", t, err)
	}
	if m, ok := into.(*wirev1.ClaimState); ok {
		p.told[m.GetResource()] = m
	}
}

// agree is what must hold whenever everyone has heard everything.
func (g *game) agree() {
	if g.book != nil {
		g.book.agree()
	}
}
