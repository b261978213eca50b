package loop

import (
	"bytes"
	"context"
	"crypto/tls"
	"math"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/handshake"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// flooding has a connection that has sent so many Pings with one write, and one that has sent
// nothing, on a loop where a period lasts until next is called.
func flooding(t *testing.T, pings int) (l *Loop, flood, neighbour *client, next func()) {
	t.Helper()
	l, _ = byHand(t, poll.ModeWrite)
	both := subscribed(t, l, 2)
	period := l.periodAt(l.now()) + 1
	l.periodAt = func(int64) uint16 { return period }
	both[0].write(bytes.Repeat(frameOf(t, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 1}), pings))
	return l, both[0], both[1], func() { period++ }
}

func TestWhoFloodsGetsItsShareAndNeighboursComeInBetween(t *testing.T) {
	const periods = 4
	l, flood, neighbour, next := flooding(t, periods*share)
	before, handled := l.hub.Frames(), func() uint64 { return l.hub.Frames() }
	for n := range uint64(periods) {
		turnUntil(t, l, "the share is used", func() bool { return handled()-before == (n+1)*share+n })
		neighbour.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: n})
		turnUntil(t, l, "the neighbour was read", func() bool { return handled()-before == (n+1)*(share+1) })
		var p wirev1.Pong
		if neighbour.read(wirev1.FrameType_FRAME_TYPE_PONG, &p); p.GetSentAt() != n {
			t.Fatalf("got %v", &p)
		}
		for range 10 {
			l.turn()
		}
		if got := handled() - before; got != (n+1)*(share+1) {
			t.Fatalf("%d frames in %d periods", got, n+1)
		}
		// Go's poller leaves open whether the flood has ended, and the next period sees.
		if deferred := l.off.any(); deferred != (n+1 < periods) && testPoller.Chosen() != PollerNet {
			t.Fatalf("period %d: deferred %v", n, deferred)
		}
		next()
	}
	for range periods * share {
		flood.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
	}
	if l.stats.Deferred < periods-1 {
		t.Fatalf("counted %d", l.stats.Deferred)
	}
}

// Bytes count too, of a frame that has not come whole.
func TestAShareIsOfBytesToo(t *testing.T) {
	l, flood, _, next := flooding(t, 0)
	const size = 8 * readSize
	long := make([]byte, wire.HeaderSize+size)
	wire.PutHeader(long, size, 0xf0) // of a type that may be skipped
	wrote := make(chan error, 1)
	go func() {
		_, err := flood.Write(long)
		wrote <- err
	}()
	began, frames := l.stats.ReadBytes, l.hub.Frames()
	for l.hub.Frames() == frames {
		before, deferred := l.stats.ReadBytes, l.stats.Deferred
		turnUntil(t, l, "it is put off, or at its end", func() bool { return l.stats.Deferred > deferred || l.hub.Frames() > frames })
		if n := l.stats.ReadBytes - before; n > 2*readSize {
			t.Fatalf("read %d bytes in a period", n)
		}
		next()
	}
	if err := <-wrote; err != nil || l.stats.ReadBytes-began != uint64(len(long)) {
		t.Fatalf("%v: read %d of %d bytes", err, l.stats.ReadBytes-began, len(long))
	}
}

// So does the work that a frame causes: an entry of an Ack takes two bytes, and is looked up.
func TestAShareIsOfWorkToo(t *testing.T) {
	const entries, acks = 400, 20 // each Ack takes less than 1 KiB, and most of a share
	l, flood, neighbour, next := flooding(t, 0)
	ack := append(make([]byte, wire.HeaderSize), bytes.Repeat([]byte{1<<3 | 2, 0}, entries)...)
	wire.PutHeader(ack, 2*entries, wirev1.FrameType_FRAME_TYPE_ACK)
	flood.write(bytes.Repeat(ack, acks))
	began, pings := l.hub.Frames(), uint64(0)
	done := func() uint64 { return l.hub.Frames() - began - pings }
	for done() < acks {
		before := done()
		turnUntil(t, l, "the share is used", func() bool { return l.off.any() || done() == acks })
		if did := done() - before; did > 2 {
			t.Fatalf("%d frames in a period", did)
		}
		handled := l.hub.Frames()
		neighbour.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: pings})
		turnUntil(t, l, "the neighbour was heard", func() bool { return l.hub.Frames() > handled })
		pings++
		var p wirev1.Pong
		l.turn() // which flushes
		if neighbour.read(wirev1.FrameType_FRAME_TYPE_PONG, &p); p.GetSentAt() != pings-1 {
			t.Fatalf("got %v", &p)
		}
		next()
	}
}

// Who ends while it is put off is gone as ever, and the next one in its slot is read as ever.
func TestConnectionsEndWhilePutOff(t *testing.T) {
	l, flood, neighbour, next := flooding(t, 2*share)
	turnUntil(t, l, "it is put off", func() bool { return len(l.off.fresh) == 1 })
	slot := l.off.fresh[0].slot
	// a reset: nothing is left to read
	_ = flood.Conn.(interface{ SetLinger(sec int) error }).SetLinger(0)
	_ = flood.Close()
	turnUntil(t, l, "it is gone", func() bool { return l.hub.Stats().Connections == 1 })
	c := dial(t, l)
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	turnUntil(t, l, "another has the slot", func() bool { return l.peers.get(slot).open() })
	// nor does it wait in the place of the one before
	turnUntil(t, l, "it is read", func() bool { return l.hub.Stats().Frames == 4+share+1 && !l.turn() })
	c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
	next()
	turnUntil(t, l, "nobody waits", func() bool { return !l.turn() && !l.off.any() })
	neighbour.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{})
	turnUntil(t, l, "Ping was read", func() bool { return l.hub.Stats().Frames == 4+share+2 })
	neighbour.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
}

// A loop with nobody but one that floods sleeps: nothing but the alarm goes on with it.
func TestWhoFloodsIsReadToTheEnd(t *testing.T) {
	l, _ := run(t, Limits{})
	c := dial(t, l)
	c.hello(&wirev1.Hello{})
	const pings = 40 * share
	go func() {
		_, _ = c.Write(bytes.Repeat(frameOf(t, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 1}), pings))
	}()
	for range pings {
		c.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
	}
	eventually(t, "it was counted", func() bool { return l.Stats().Deferred > 0 })
}

// putOffAll has each of the first so many connections use its share, and have more.
func putOffAll(l *Loop, conns uint32) {
	for slot := range conns {
		p := l.peers.get(slot)
		l.remainingShare(p)
		p.readable = true
		l.spend(p, l.remainingShare(p))
		l.goOn(slot, p)
	}
}

// goingOn is who is to be read, and isn't.
func goingOn(l *Loop) (all []uint32) {
	all = append(all, l.reads...)
	l.reads = l.reads[:0]
	for _, slot := range all {
		l.peers.get(slot).reading = false
	}
	return all
}

// beside has a loop whose turns are the test's, with so many connections, to which live messages
// come, and whose periods are counted by next.
func beside(t *testing.T, conns int) (l *Loop, mesh *upstreamtest.Mesh, next func()) {
	t.Helper()
	l, mesh = byHand(t, poll.ModeWrite)
	subscribed(t, l, conns)
	number := l.periodAt(l.now()) + 1
	l.periodAt = func(int64) uint16 { return number }
	l.period = number
	l.off.quietAt = math.MaxInt64
	return l, mesh, func() { number++ }
}

// Beside live messages some of those that have used their share go on in a period, in turns, and
// nobody is put off for long.
func TestThoseWhoFloodGoOnInTurns(t *testing.T) {
	const conns = floods + floodsBusy + 2
	l, _, next := beside(t, conns)
	putOffAll(l, conns)
	next()
	l.release()
	first := goingOn(l)
	if len(first) != floods || l.off.turns.Len() != conns-floods {
		t.Fatalf("%d go on, %d wait", len(first), l.off.turns.Len())
	}
	l.flushes = append(l.flushes, 0) // something waits to be sent
	l.release()
	second := goingOn(l)
	if len(second) != floodsBusy {
		t.Fatalf("%d go on beside messages that wait", len(second))
	}
	for i, slot := range slices.Concat(first, second) {
		if slot != uint32(i) {
			t.Fatalf("they go on in the order %v %v", first, second)
		}
	}
	l.flushes = l.flushes[:0]
	const many = 2 * floods * longestWait
	for l.off.turns.Len() < many {
		l.off.turns.Push(payer{slot: 1}, waiting{payer{slot: 1}, handle{1, l.peers.get(1).gen}})
	}
	if l.release(); len(l.off.fresh) > 0 || l.off.turns.Len() < many-looksPerPlace*2*floods || l.off.turns.Len() > many-2*floods {
		t.Fatalf("%d of %d wait", l.off.turns.Len(), many)
	}
}

// On a loop without live messages all go on in the next period, be they in line already.
func TestAllGoOnWhereTheLoopIsQuiet(t *testing.T) {
	const conns = 2 * floods
	l, mesh, next := beside(t, conns)
	putOffAll(l, conns)
	next()
	l.release()
	if n := len(goingOn(l)); n != floods {
		t.Fatalf("%d go on beside live messages", n)
	}
	l.off.quietAt = l.now()
	l.release()
	if n := len(goingOn(l)); n != conns-floods || l.off.any() {
		t.Fatalf("%d go on", n)
	}
	mesh.Send("room/1", "hi")
	if l.takeMail(); l.quiet() || l.off.quietAt < l.clock.at+quietAfter {
		t.Fatal("it is quiet after a live message")
	}
}

// An address with very many connections that flood goes on with as many of them in a period as
// there are places left by an address with one.
func TestThoseWhoFloodTakeTurnsByAddress(t *testing.T) {
	const flooders = 250
	l, _, next := beside(t, flooders+1)
	for slot := range uint32(flooders + 1) {
		l.peers.setClient(slot, netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + slot/flooders)}).As16())
	}
	putOffAll(l, flooders+1)
	for i := range 100 {
		next()
		l.release()
		all := goingOn(l)
		if len(all) != floods || !slices.Contains(all, flooders) {
			t.Fatalf("%v go on in period %d", all, i)
		}
		for _, slot := range all {
			p := l.peers.get(slot)
			l.spend(p, l.remainingShare(p))
			l.goOn(slot, p)
		}
	}
}

// Who owes some of its next shares takes no place of one who does not.
func TestWhoOwesTakesNoPlace(t *testing.T) {
	const conns = 2 * floods
	l, _, next := beside(t, conns)
	putOffAll(l, conns)
	for slot := range uint32(floods) {
		l.spend(l.peers.get(slot), share)
	}
	for _, want := range [][]uint32{{4, 5, 6, 7}, {0, 1, 2, 3}} {
		next()
		l.release()
		if all := goingOn(l); !slices.Equal(all, want) {
			t.Fatalf("%v go on, want %v", all, want)
		}
	}
	if l.off.any() {
		t.Fatal("somebody waits")
	}
}

// An alarm that has gone off and was not looked at is not lost where it is set again.
func TestAnAlarmThatWentOffIsNotLost(t *testing.T) {
	l, _ := byHand(t, poll.ModeWrite)
	subscribed(t, l, 1)
	putOffAll(l, 1)
	due := l.off.alarmAt
	for l.now() < due {
		runtime.Gosched()
	}
	l.setAlarm() // as work does where the hub is paced
	if l.poll(); l.off.any() || l.off.alarmAt != 0 {
		t.Fatal("it is lost")
	}
}

// Reading has half its time in a turn where messages wait, be it in the mailbox, in the hub or for
// their sockets.
func TestReadingHasHalfItsTimeBesideMessages(t *testing.T) {
	l, mesh := byHand(t, poll.ModeWrite)
	c := subscribed(t, l, 1)[0]
	if got := l.readTime(); got != l.partTime {
		t.Fatalf("%v of %v with nothing else to do", got, l.partTime)
	}
	mesh.Send("room/1", "hi")
	for _, next := range []func(){func() { l.takeMail() }, func() { l.hub.Work(workBudget); l.wantFlush(0, l.peers.get(0)) }, func() { l.flush() }} {
		if got := l.readTime(); got != l.partTime/2 {
			t.Fatalf("%v of %v beside a message", got, l.partTime)
		}
		next()
	}
	c.message()
}

// What a connection takes beyond its share is taken off the next ones.
func TestAShareThatIsOverdrawnIsPaidBack(t *testing.T) {
	l, _ := byHand(t, poll.ModeWrite)
	var p peer
	l.period = 65_535 // the next one is 0
	if got := l.remainingShare(&p); got != share {
		t.Fatalf("%d at first", got)
	}
	l.spend(&p, 3*share-10)
	for i, want := range []int{-share + 10, 10, share} {
		if l.period++; l.remainingShare(&p) != want {
			t.Fatalf("%d in period %d, want %d", l.remainingShare(&p), i, want)
		}
	}
	if l.spend(&p, 1<<20); l.remainingShare(&p) != share-255 {
		t.Fatalf("%d after very much", l.remainingShare(&p))
	}
	l.period += 100
	if got := l.remainingShare(&p); got != share {
		t.Fatalf("%d after a while", got)
	}
}

// A read that brings a byte costs a system call: a client that has each byte read alone gets fewer.
func TestAShareIsOfReadsToo(t *testing.T) {
	l, drip, _, _ := flooding(t, 0)
	before := l.stats.Reads
	ping := frameOf(t, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 1})
	for i := 0; !l.off.any(); i++ {
		if i > share {
			t.Fatalf("%d reads", l.stats.Reads-before)
		}
		drip.write(ping[i%len(ping) : i%len(ping)+1])
		drip.arrived(l)
		l.turn()
	}
	if n := l.stats.Reads - before; n > share/readUnits+1 {
		t.Fatalf("%d reads in a period", n)
	}
}

// shaken is a loop whose turns are the test's, and a client over TLS that is welcome there.
func shaken(t *testing.T) (l *Loop, c *client) {
	t.Helper()
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Certificate("localhost")
	if err != nil {
		t.Fatal(err)
	}
	pool := handshake.New(handshake.Config{
		TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, Workers: 1, Most: 1,
		Post: func(_ uint16, e exchange.Event) bool { return l.Post(e) },
	})
	t.Cleanup(func() {
		if err := pool.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	l, _ = byHandIn(t, Config{Handshakes: pool})
	conn := tls.Client(dial(t, l).Conn, &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"})
	ended := make(chan error, 1)
	go func() { ended <- conn.Handshake() }()
	turnUntil(t, l, "hands are shaken", func() bool {
		select {
		case err = <-ended:
			return true
		default:
			return false
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	c = &client{t, conn}
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	turnUntil(t, l, "it is welcome", func() bool { return l.hub.Frames() == 1 && !l.turn() })
	return l, c
}

// So does opening a record of TLS, which may hold a byte of a frame and is opened all the same.
func TestAShareIsOfRecordsToo(t *testing.T) {
	l, c := shaken(t)
	period := l.periodAt(l.now()) + 1
	l.periodAt = func(int64) uint16 { return period }
	ping := frameOf(t, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 1})
	const records = 4 * share
	for i := range records {
		c.write(ping[i%len(ping) : i%len(ping)+1])
	}
	for before := l.stats.Records; l.stats.Records-before < records; period++ {
		opened := l.stats.Records
		turnUntil(t, l, "its share is used", func() bool { return l.off.any() || l.stats.Records-before == records })
		for range 10 {
			l.turn()
		}
		if n := l.stats.Records - opened; n > share/(recordUnits+1)+1 {
			t.Fatalf("%d records were opened in a period", n)
		}
	}
}

// So does what a connection sends that is closing: it is read and thrown away, so that its client
// gets the reason.
func TestAShareIsOfWhatIsThrownAwayToo(t *testing.T) {
	l, flood, _, next := flooding(t, 0)
	flood.write(frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}))
	turnUntil(t, l, "it is closing", func() bool { return l.hub.Stats().Closes[wirev1.Code_CODE_BAD_FRAME] == 1 })
	slot := uint32(slices.IndexFunc([]uint32{0, 1}, func(slot uint32) bool { return l.hub.Status(slot).Closing }))
	const size = 1 << 20
	// until the edge ends it, on a slow machine
	go func() { _, _ = flood.Write(make([]byte, size)) }()
	p := l.peers.get(slot)
	over := func() bool { return !p.open() || p.discarded >= size/kib }
	for !over() {
		before := p.discarded
		next()
		turnUntil(t, l, "more is read", func() bool { return p.discarded > before || over() })
		for range 10 {
			l.turn()
		}
		if n := int(p.discarded) - int(before); p.open() && n > 2*share {
			t.Fatalf("%d KiB were read in a period", n)
		}
	}
}

// A part of a frame is counted while records wait behind it.
func TestPartsBehindWhichRecordsWaitAreCounted(t *testing.T) {
	l, c := shaken(t)
	period := l.periodAt(l.now()) + 1
	l.periodAt = func(int64) uint16 { return period }
	const size = 100 << 10
	part := make([]byte, wire.HeaderSize+size)
	wire.PutHeader(part, 2*size, wirev1.FrameType_FRAME_TYPE_PUBLISH)
	c.write(part)
	turnUntil(t, l, "the part was read", func() bool { period++; return l.peers.kept >= size })
	for range 4 * share {
		c.write(make([]byte, 1))
	}
	p := l.peers.get(0)
	turnUntil(t, l, "records wait", func() bool {
		if l.off.any() && !p.fed {
			period++ // it was read before the next ones came
		}
		return l.off.any() && p.fed
	})
	if n := l.peers.large.bySlot[0].bytes; n < size {
		t.Fatalf("%d bytes are counted of %d that are kept", n, l.peers.kept)
	}
}
