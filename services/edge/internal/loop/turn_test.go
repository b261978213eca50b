package loop

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// The order of a turn's parts is what the rest relies on: answers leave in the turn that reads the
// question, and no send is under way where sockets are closed.
func TestTurnKeepsItsOrder(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "turn.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	ast.Inspect(file, func(n ast.Node) bool {
		fn, ok := n.(*ast.FuncDecl)
		if !ok || fn.Name.Name != "turn" {
			return !ok
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name != "begins" && f.Sel.Name != "did" {
					got = append(got, f.Sel.Name)
				}
			}
			return true
		})
		return false
	})
	want := []string{
		// the parts
		"poll", "setTime", "heed", "accept", "read", "takeMail", "work", "Relieve", "timers", "resume", "setTime", "flush", "closes",
		// whether it goes on
		"Draining", "stopListening", "Drained", "publishStats", "Busy", "Len", "Empty",
	}
	if !slices.Equal(got, want) {
		t.Fatalf("a turn calls\n%v, want\n%v", got, want)
	}
}

// subscribed opens connections that have a subscription each, and turns until it stands.
func subscribed(t *testing.T, l *Loop, n int) (all []*client) {
	t.Helper()
	for range n {
		c := dial(t, l)
		c.write(append(frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}),
			frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/1"})...))
		all = append(all, c)
	}
	turnUntil(t, l, "all are subscribed", func() bool { return l.hub.Stats().Subscriptions == int64(n) && !l.turn() })
	for _, c := range all {
		c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
		c.read(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{})
	}
	return all
}

func turnUntil(t *testing.T, l *Loop, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); l.turn() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestEachPartOfATurnHasItsBudget(t *testing.T) {
	l, _ := byHand(t, poll.ModeAuto)
	var all []*client
	for range 2 * acceptBudget {
		all = append(all, dial(t, l))
	}
	if l.turn(); l.stats.Accepts != acceptBudget {
		t.Fatalf("accepted %d of %d in a turn", l.stats.Accepts, len(all))
	}
	for len(all) < 2*readBudget {
		all = append(all, dial(t, l))
	}
	turnUntil(t, l, "all are accepted", func() bool { return l.stats.Accepts == uint64(len(all)) && len(l.reads) == 0 })
	for _, c := range all {
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	}
	before := l.stats.Reads
	if l.turn(); l.stats.Reads-before != readBudget {
		t.Fatalf("read %d of %d connections in a turn", l.stats.Reads-before, len(all))
	}
	turnUntil(t, l, "all said hello", func() bool { return l.hub.Stats().Frames == uint64(len(all)) })

	stale := l.hub.Stats().StaleEvents
	for range 2 * mailBudget {
		l.Post(exchange.Detached{Conn: exchange.Conn{Slot: 1 << 20}})
	}
	if l.turn(); l.hub.Stats().StaleEvents-stale != mailBudget {
		t.Fatalf("took %d events in a turn", l.hub.Stats().StaleEvents-stale)
	}
	for _, c := range all {
		_ = c.Close()
	}
	for left := int64(len(all)); left > 0; left = l.hub.Stats().Connections {
		if l.turn(); left-l.hub.Stats().Connections > closeBudget {
			t.Fatalf("closed %d in a turn", left-l.hub.Stats().Connections)
		}
	}
}

// What takes its time is cut off by the clock before its budget is spent, and goes on in the next
// turn.
func TestEachPartOfATurnHasItsTime(t *testing.T) {
	const conns = 4 * readSlice
	l, mesh := byHand(t, poll.ModeWrite)
	all := subscribed(t, l, conns)
	l.partTime = 0 // always over
	for _, c := range all {
		c.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{})
	}
	for turn, before := 1, l.stats.Reads; turn <= conns/readSlice; turn++ {
		l.turn()
		if n := l.stats.Reads - before; n > uint64(turn)*readSlice || n == 0 {
			t.Fatalf("%d connections were read in %d turns", n, turn)
		}
	}
	turnUntil(t, l, "all are answered", func() bool { return !l.turn() })
	for _, c := range all {
		c.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
	}
	var messages []*exchange.Message
	for i := range 3 * workSlice { // each of a topic that nobody has: a unit of work at least
		messages = append(messages, upstreamtest.Encode(fmt.Sprint("open/", i), upstreamtest.BaseEpoch, 1, "x"))
	}
	mesh.Live(messages...)
	if l.turn(); !l.hub.Busy() {
		t.Fatal("nothing was left for the next turn")
	}
	turnUntil(t, l, "all is done", func() bool { return !l.hub.Busy() })
}

// isOpen reports whether the process has the descriptor.
func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

func TestConnectionEndsInOneOrder(t *testing.T) {
	l, _ := byHand(t, poll.ModeAuto)
	c := subscribed(t, l, 1)[0]
	const slot = 0
	p := l.peers.get(slot)
	fd, gen := int(p.fd), p.gen
	// A second name of the socket keeps the kernel from forgetting it as soon as fd is closed: only
	// Drop ends its events then.
	twin, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer poll.Close(twin)

	l.end(slot, p)
	l.end(slot, p) // once is enough
	l.closes()
	if !isOpen(fd) || l.hub.Gen(slot) != gen || l.hub.Stats().Subscriptions != 1 {
		t.Fatal("the socket ended before the topic table let go of the connection")
	}
	for l.hub.Work(1) {
	}
	if l.hub.Stats().Subscriptions != 0 || l.hub.Stats().Topics != 0 {
		t.Fatalf("in the topic table yet: %+v", l.hub.Stats())
	}
	if l.hub.Tick(1 << 20); !isOpen(fd) || l.hub.Gen(slot) != gen || l.hub.Stats().Connections != 1 {
		t.Fatal("the slot was given away with its socket open")
	}
	l.closes()
	if isOpen(fd) || p.open() || l.hub.Gen(slot) == gen || l.hub.Stats().Connections != 0 {
		t.Fatalf("descriptor open: %v, generation %d after %d", isOpen(fd), l.hub.Gen(slot), gen)
	}
	c.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{})
	if l.poll(); l.stats.StaleEvents != 0 {
		t.Fatal("the poller was not told before the descriptor was closed")
	}
}

// An event that was taken before its connection ended finds another in the slot.
func TestStaleEventIsACountedNoOp(t *testing.T) {
	l, _ := byHand(t, poll.ModeAuto)
	old := subscribed(t, l, 1)[0]
	gen := l.peers.get(0).gen
	_ = old.Close()
	turnUntil(t, l, "it is gone", func() bool { return l.hub.Stats().Connections == 0 })
	l.happened(&poll.Event{Slot: 0, Gen: gen, Readable: true}) // nobody has the slot
	c := subscribed(t, l, 1)[0]
	p := l.peers.get(0)
	if p.gen == gen || !p.open() {
		t.Fatalf("the slot was not taken again: generation %d after %d", p.gen, gen)
	}
	was := *p
	for _, e := range []poll.Event{{Readable: true}, {Writable: true}, {HungUp: true}, {Broken: true}} {
		e.Slot, e.Gen = 0, gen
		l.happened(&e)
	}
	l.happened(&poll.Event{Slot: 1 << 30, Gen: 1, Broken: true})
	if l.stats.StaleEvents != 6 || *p != was || len(l.reads) != 0 {
		t.Fatalf("%d stale events; %+v became %+v", l.stats.StaleEvents, was, *p)
	}
	c.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{})
	turnUntil(t, l, "Ping was read", func() bool { return l.hub.Stats().Frames == 5 })
	c.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
}

// Connections that break while the kernel has their sends keep descriptor and slot until the flush
// is through: whoever comes meanwhile gets others, and not a byte of what was meant for those
// before.
func TestDescriptorsOutliveTheFlush(t *testing.T) {
	eachSender(t, func(t *testing.T, send SendMode) {
		l, mesh := byHand(t, send)
		all := subscribed(t, l, 64)
		fds := map[int]bool{}
		for slot := range l.peers.len() {
			fds[int(l.peers.get(slot).fd)] = true
		}
		mesh.Send("room/1", "for those who were there")
		l.takeMail()
		l.hub.Work(workBudget)
		for _, c := range all[:32] {
			// a reset, so that sends fail
			_ = c.Conn.(interface{ SetLinger(sec int) error }).SetLinger(0)
			_ = c.Close()
		}
		late := dial(t, l)
		// This breaks those that left, and knows of the newcomer.
		for deadline := time.Now().Add(patience); !l.accepts; l.poll() {
			if time.Now().After(deadline) {
				t.Fatal("nobody calls")
			}
		}
		l.flush()
		for fd := range fds {
			if !isOpen(fd) {
				t.Fatalf("descriptor %d was closed before the flush was through", fd)
			}
		}
		l.accept()
		if newest := l.peers.get(l.peers.len() - 1); fds[int(newest.fd)] {
			t.Fatal("a newcomer got a descriptor that is in use")
		}
		turnUntil(t, l, "the broken ones are gone", func() bool { return l.hub.Stats().Connections == 33 })
		for _, c := range all[32:] {
			if m := c.message(); string(m.GetPayload()) != "for those who were there" {
				t.Fatalf("got %v", m)
			}
		}
		late.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
		turnUntil(t, l, "the newcomer said hello", func() bool { return l.hub.Frames() == 2*64+1 && !l.turn() })
		// before which nothing came
		late.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
	})
}
