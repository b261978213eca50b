package loop

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims/handover"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/handshake"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// game is a loop whose turns are the test's, on a mesh in memory and with a clock that moves when
// the test says so, a bystander who does everything right, and players who do what an input says.
type game struct {
	*testing.T
	kind gameKind
	in   input
	l    *Loop
	mesh *upstreamtest.Mesh
	pool *handshake.Pool // nil: without TLS
	all  [4]*player      // nil: not connected
	came int
	good *bystander
	desk *handover.Claims // nil: without claims
	book *book
	band *band // nil: without groups

	mu     sync.Mutex
	topics map[string][]*exchange.Message // durable ones that somebody published to
}

// gameKind is what the players of a game know of.
type gameKind struct{ tls, claims, groups bool }

// Bounds of a game: small ones, so that inputs come to them.
var gameLimits = Limits{
	MaxFrame: 64 << 10, Subscriptions: 6, QueueMessages: 12, QueueBytes: 32 << 10, ReadBytes: 16 << 10, WildcardTopics: 5,
	HandshakeTimeout: 5 * time.Second, FrameTimeout: 5 * time.Second, StuckTimeout: 10 * time.Second, PublishWindow: 4,
}

var gamePolicies = policy.NewTable(append(policy.Builtin(),
	&pushmeshv1.Namespace{Prefix: "open", Policy: &pushmeshv1.Policy{Durable: true, ClientPublish: true}},
	&pushmeshv1.Namespace{Prefix: "talk", Policy: &pushmeshv1.Policy{}},
	&pushmeshv1.Namespace{Prefix: "seat", Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Clients: true, MaxClientPriority: 3}}},
)).For

// play plays an input to its end, in a bubble with a clock of its own.
func play(t *testing.T, kind gameKind, in []byte) {
	synctest.Test(t, func(t *testing.T) {
		g := newGame(t, kind, in)
		defer g.end()
		for steps := 0; steps < 24 && len(g.in) > 0; steps++ {
			g.step()
		}
		g.finish()
	})
}

func newGame(t *testing.T, kind gameKind, in []byte) *game {
	g := &game{T: t, kind: kind, in: in, topics: map[string][]*exchange.Message{}}
	g.mesh = upstreamtest.New(g.post)
	cfg := Config{
		EdgeID: "edge", Mesh: gameMesh{g.mesh, g}, PolicyFor: gamePolicies, ListenAddr: "127.0.0.1:0", Poller: PollerEpoll, Limits: usual(gameLimits),
		QueueMemory: 128 << 10, FrameMemory: 96 << 10,
	}
	if kind.tls {
		g.pool = handshake.New(handshake.Config{TLS: gameTLS().server, Workers: 1, Most: 3, Post: func(_ uint16, e exchange.Event) bool { return g.l.Post(e) }})
		cfg.Handshakes = g.pool
	}
	var err error
	if g.l, err = single(cfg); err != nil {
		t.Fatal(err)
	}
	g.l.sender = poll.NewWriter()
	if late := g.in.byte(); late%2 == 1 {
		g.l.sender = newLateSender(uint64(late))
	}
	if err := g.l.poller.Listen(); err != nil {
		t.Fatal(err)
	}
	if kind.claims {
		g.useClaims()
	}
	if kind.groups {
		g.useGroups()
	}
	g.good = &bystander{player: g.connect(), next: map[string]uint64{}}
	g.good.take = g.good.frame
	g.good.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, HeartbeatMs: 600_000, ReceiveWindow: 64})
	g.good.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/#", Ack: true})
	g.good.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 2, Filter: "open/#", Ack: true})
	g.quiet()
	return g
}

// post is what the mesh tells the loop; the dispatchers of groups hear of messages too.
func (g *game) post(e exchange.Event) {
	if live, ok := e.(exchange.Live); ok && g.band != nil {
		g.band.groups.Post(live)
	}
	g.l.Post(e)
}

// publish appends messages to a topic. Those of a durable one may be lost on their way, but for the
// log; those of "talk" are ephemeral.
func (g *game) publish(name string, n, size int, lost bool) {
	payloads := make([]string, n)
	for i := range payloads {
		payloads[i] = payload(name, g.sent(name)+1+i, size)
	}
	switch {
	case name == "talk":
		g.mesh.Live(upstreamtest.Run(name, 0, 0, payloads...)...)
	case lost:
		g.note(g.mesh.Append(name, payloads...)...)
	default:
		msgs := g.mesh.Append(name, payloads...)
		g.note(msgs...)
		g.mesh.Live(msgs...)
	}
}

func (g *game) note(msgs ...*exchange.Message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range msgs {
		g.topics[m.Topic] = append(g.topics[m.Topic], m)
	}
}

// sent is how many messages a durable topic has.
func (g *game) sent(name string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.topics[name])
}

// quiet turns the loop until it has nothing to do, and everyone who reads has read everything.
func (g *game) quiet() {
	for idle, n := 0, 0; idle < 2; n++ {
		synctest.Wait()
		more := g.l.turn()
		for _, p := range g.all {
			more = p != nil && p.move() || more
		}
		if g.l.off.any() { // until the next period
			<-time.After(time.Millisecond) // in the bubble's time
			g.l.release()
			more = true
		}
		idle++
		if more = g.good != nil && g.good.move() || more; more {
			idle = 0
		}
		if n > 5000 {
			g.Fatal("the loop is never done")
		}
	}
}

// pass has time pass, with ticks of the loop in it.
func (g *game) pass(d time.Duration) {
	for pace := max(d/8, delivery.Tick); d > 0; d -= pace {
		<-time.After(min(pace, d)) // in the bubble's time
		if g.book != nil {
			g.book.expire()
		}
		g.l.tickDue = g.l.now()
		g.l.tick()
		g.quiet()
	}
}

// answers sees to it that the bystander is answered within a few turns, whatever others do.
func (g *game) answers() {
	g.good.pings++
	g.good.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: uint64(g.good.pings)})
	g.good.move()
	for range 20 {
		synctest.Wait()
		g.l.turn()
		if g.good.move(); g.good.pongs == g.good.pings {
			return
		}
		if g.l.off.any() {
			<-time.After(time.Millisecond) // in the bubble's time
			g.l.release()
		}
	}
	g.Fatalf("the bystander has %d Pongs to %d Pings", g.good.pongs, g.good.pings)
}

// finish mends what is broken, has the bystander read everything, everyone leave, and looks for
// what is left.
func (g *game) finish() {
	g.mesh.CloseStore(false)
	g.mesh.Release()
	for name := range g.topics {
		g.mesh.Away(name, false)
	}
	g.answers()
	for name := range g.topics { // which shows what was lost before
		g.publish(name, 1, 0, false)
	}
	g.pass(3 * time.Second)
	for name, msgs := range g.topics {
		if want := uint64(len(msgs)) + 1; g.good.next[name] != want {
			g.Fatalf("the bystander waits for %s %d, and %d were published", name, g.good.next[name], len(msgs))
		}
	}
	for i, p := range g.all {
		if p != nil {
			p.leave(i%2 == 0)
		}
	}
	g.answers()
	g.good.leave(false)
	g.good = nil
	g.pass(time.Second)
	if g.band != nil {
		g.pass(10 * time.Second) // dispatchers stay for a while
	}
	g.nothingIsLeft()
}

func (g *game) nothingIsLeft() {
	for what, n := range g.l.hub.InUse() {
		if n != 0 {
			g.Errorf("%d %s are left", n, what)
		}
	}
	s := g.l.hub.Stats()
	for what, n := range map[string]int{
		"bytes of parts of frames": g.l.peers.kept, "parts of frames": g.l.peers.rests.Taken(), "parts of sockets": g.l.peers.mores.Taken(), "with TLS": g.l.peers.secures.Taken(),
		"secure": int(g.l.stats.Secure), "at the door": g.l.door.Held(), "joins": g.mesh.Joins - g.mesh.Leaves, "bytes of the budget": int(s.BudgetBytes), "bytes of the kernel": int(s.KernelBytes),
		"stalled": int(s.Stalled), "behind": int(s.Subscriptions), "large parts": len(g.l.peers.large.bySlot), "addresses with large parts": len(g.l.peers.large.byAddress),
		"put off": len(g.l.off.fresh) + g.l.off.turns.Len(),
	} {
		if n != 0 {
			g.Errorf("%d %s are left", n, what)
		}
	}
	closed := uint64(0)
	for c, n := range s.Closes {
		if closed += n; n > 0 && !endings[wirev1.Code(c)] {
			g.Errorf("%d connections were closed for %v", n, wirev1.Code(c))
		}
	}
	if closed != uint64(g.came) {
		g.Errorf("%d connections came, and %d ends are counted", g.came, closed)
	}
	if g.pool != nil && g.pool.Stats().UnderWay != 0 {
		g.Errorf("%+v", g.pool.Stats())
	}
	if g.book != nil {
		g.book.empty()
	}
	if g.band != nil {
		g.band.empty()
	}
}

// endings are the reasons for which the edge ends connections of players.
var endings = map[wirev1.Code]bool{
	wirev1.Code_CODE_OK: true, wirev1.Code_CODE_BAD_FRAME: true, wirev1.Code_CODE_FRAME_TOO_LARGE: true, wirev1.Code_CODE_UNKNOWN_FRAME: true,
	wirev1.Code_CODE_HANDSHAKE_TIMEOUT: true, wirev1.Code_CODE_OVERLOADED: true, wirev1.Code_CODE_SLOW_CONSUMER: true, wirev1.Code_CODE_IDLE_TIMEOUT: true,
	wirev1.Code_CODE_SESSION_TAKEN_OVER: true, wirev1.Code_CODE_UNSUPPORTED: true, wirev1.Code_CODE_INVALID_ARGUMENT: true, wirev1.Code_CODE_ACK_TIMEOUT: true,
	wirev1.Code_CODE_MEMORY_BUDGET: true, wirev1.Code_CODE_UNAVAILABLE: true, wirev1.Code_CODE_UNAUTHENTICATED: true,
}

// end closes what is open, whatever became of the game.
func (g *game) end() {
	for _, p := range g.all {
		if p != nil && !p.gone {
			p.leave(true)
		}
	}
	if g.good != nil {
		g.good.leave(true)
	}
	g.l.stop.Store(true)
	g.l.run()
	_ = g.l.poller.Close()
	if g.pool != nil {
		_ = g.pool.Stop(g.Context())
	}
	if g.desk != nil {
		_ = g.desk.Stop(g.Context())
	}
	if g.band != nil {
		_ = g.band.groups.Stop(g.Context())
	}
}

// player is a connection, with what it has still to write and what it has read.
type player struct {
	g    *game
	id   int
	fd   int
	tls  *tlsEnd // nil: plain
	out  []byte  // for the socket
	have []byte  // of frames
	slow bool    // does not read
	hung bool    // writes nothing more
	gone bool
	// ended says that the edge has closed it.
	ended bool
	take  func(t wirev1.FrameType, body []byte)
	last  *wirev1.Error // the one that closes
	told  map[string]*wirev1.ClaimState
}

// connect makes a connection; the loop takes it.
func (g *game) connect() *player {
	at := g.l.poller.Addr()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		if g.good != nil { // players have little room, and segments that fit into it
			err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8192), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, 1000))
		}
		err = errors.Join(err, unix.Connect(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}), unix.SetNonblock(fd, true), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
	}
	if err != nil {
		g.Fatal(err)
	}
	g.came++
	p := &player{g: g, id: g.came, fd: fd, told: map[string]*wirev1.ClaimState{}}
	p.take = p.frame
	for n, accepts := 0, g.l.stats.Accepts; g.l.stats.Accepts == accepts; n++ {
		if g.l.turn(); n > 10_000 {
			g.Fatal("a connection is not taken")
		}
	}
	return p
}

// send puts a frame behind what is to be written.
func (p *player) send(t wirev1.FrameType, m proto.Message) {
	b, err := wire.Append(nil, t, m)
	if err != nil {
		return // more than a frame may have
	}
	p.put(b)
}

// put puts bytes behind what is to be written: through TLS, where there is one.
func (p *player) put(b []byte) {
	if p.tls != nil {
		p.tls.seal(b)
		return
	}
	p.out = append(p.out, b...)
}

// write gives the socket at most so many bytes.
func (p *player) write(most int) (wrote int) {
	if p.tls != nil {
		p.out = append(p.out, p.tls.sealed()...)
	}
	if p.gone || p.hung {
		p.out = nil
		return 0
	}
	n, err := unix.Write(p.fd, p.out[:min(most, len(p.out))])
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		p.out = nil // the edge has ended it
		return 0
	}
	p.out = p.out[max(n, 0):]
	return max(n, 0)
}

// move reads what has come, unless the player is slow. The bystander writes, too.
func (p *player) move() bool {
	if p.gone {
		return false
	}
	if p.tls != nil { // what was read before is opened by now
		p.have = append(p.have, p.tls.plain()...)
		p.frames()
	}
	return !p.slow && p.read(1<<20)
}

// read takes at most so many bytes.
func (p *player) read(most int) (some bool) {
	var room [16 << 10]byte
	for most > 0 {
		n, err := unix.Read(p.fd, room[:min(most, len(room))])
		if err != nil || n == 0 {
			p.ended = p.ended || !errors.Is(err, unix.EAGAIN)
			return some
		}
		some = true
		most -= n
		if p.tls != nil {
			p.tls.receive(room[:n])
			continue
		}
		p.have = append(p.have, room[:n]...)
		p.frames()
	}
	return some
}

func (p *player) frames() {
	for {
		size, t, ok := wire.Header(p.have)
		if !ok || len(p.have) < wire.HeaderSize+size {
			return
		}
		body := p.have[wire.HeaderSize : wire.HeaderSize+size]
		if p.last != nil {
			p.g.Fatalf("%v follows the last word: %v", t, p.last)
		}
		if t == wirev1.FrameType_FRAME_TYPE_ERROR {
			p.error(body)
		}
		p.take(t, body)
		p.have = p.have[wire.HeaderSize+size:]
	}
}

func (p *player) error(body []byte) {
	e := &wirev1.Error{}
	if err := proto.Unmarshal(body, e); err != nil || wirev1.Code_name[int32(e.GetCode())] == "" || e.GetCode() == wirev1.Code_CODE_OK || e.GetCode() == wirev1.Code_CODE_INTERNAL {
		p.g.Fatalf("an Error of the edge: %v %v", e, err)
	}
	if e.GetRef() == 0 {
		p.last = e
	}
}

// leave closes the socket, with a reset or in order.
func (p *player) leave(reset bool) {
	if p.gone {
		return
	}
	p.gone = true
	if reset {
		_ = unix.SetsockoptLinger(p.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	if err := unix.Close(p.fd); err != nil {
		p.g.Error(err)
	}
	if p.tls != nil {
		p.tls.end()
	}
}

// bystander is the player who does everything right: what is published to durable topics comes to
// it once, in order and unchanged.
type bystander struct {
	*player
	next         map[string]uint64
	pings, pongs int
}

// move reads, and writes what there is to write.
func (b *bystander) move() bool {
	some := b.player.move()
	for len(b.out) > 0 {
		if b.write(len(b.out)) == 0 {
			return true
		}
		some = true
	}
	return some
}

func (b *bystander) frame(t wirev1.FrameType, body []byte) {
	switch t {
	case wirev1.FrameType_FRAME_TYPE_WELCOME, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED:
	case wirev1.FrameType_FRAME_TYPE_PONG:
		b.pongs++
	case wirev1.FrameType_FRAME_TYPE_MESSAGE:
		m := &wirev1.Message{}
		if err := proto.Unmarshal(body, m); err != nil {
			b.g.Fatal(err)
		}
		b.message(m)
	case wirev1.FrameType_FRAME_TYPE_PROGRESS:
		if !namesEpoch(body) {
			b.g.Fatalf("the bystander misses something: %x", body)
		}
	default:
		b.g.Fatalf("the bystander got %v %q", t, body)
	}
}

func (b *bystander) message(m *wirev1.Message) {
	name, seq := m.GetTopic(), m.GetSeq()
	if b.next[name] == 0 {
		b.next[name] = 1
	}
	b.send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: name, Seq: seq, Through: true}}})
	if m.GetAttempt() > 0 && seq < b.next[name] {
		return
	}
	if seq != b.next[name] {
		b.g.Fatalf("the bystander got %s %d, want %d", name, seq, b.next[name])
	}
	b.next[name]++
	b.g.mu.Lock()
	msg := b.g.topics[name][seq-1]
	b.g.mu.Unlock()
	want := &wirev1.Message{}
	if err := proto.Unmarshal(msg.Frame[wire.HeaderSize:], want); err != nil || !slices.Equal(want.GetPayload(), m.GetPayload()) {
		b.g.Fatalf("the bystander got other bytes as %s %d: %v", name, seq, err)
	}
}

// name of a client; those of claims are of one connection alone.
func (p *player) name(n byte) string {
	if p.g.kind.claims {
		return fmt.Sprint("p", p.id)
	}
	return []string{"", "ann", "bob"}[n%3]
}
