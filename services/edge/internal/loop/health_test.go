package loop

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// road is a way to a loop on which what is sent arrives later.
type road struct {
	net.Listener
	target string
	delay  atomic.Int64 // in each direction
	wg     sync.WaitGroup
}

func newRoad(t *testing.T, target string) *road {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &road{Listener: ln, target: target}
	r.wg.Go(func() {
		for {
			client, err := r.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", r.target)
			if err != nil {
				_ = client.Close()
				continue
			}
			r.wg.Go(func() { r.carry(server, client) })
			r.wg.Go(func() { r.carry(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = r.Close()
		r.wg.Wait()
	})
	return r
}

type parcel struct {
	due   time.Time
	bytes []byte
}

// carry takes bytes from one end to the other, then ends both.
func (r *road) carry(to, from net.Conn) {
	parcels := make(chan parcel, 1024)
	r.wg.Go(func() {
		defer close(parcels)
		for {
			b := make([]byte, 4096)
			n, err := from.Read(b)
			if err != nil {
				return
			}
			parcels <- parcel{time.Now().Add(time.Duration(r.delay.Load())), b[:n]}
		}
	})
	for p := range parcels {
		<-time.After(time.Until(p.due))
		_, _ = to.Write(p.bytes) // an end that is gone is seen by who reads it
	}
	_, _ = to.Close(), from.Close()
}

// traveller measures round trips with Pings, and reports them.
type traveller struct {
	*client
	ends chan *wirev1.Error
}

// frames reads until the connection ends, and hands on what Pongs carry.
func (c *traveller) frames(pongs chan<- uint64) {
	defer close(pongs)
	for header := make([]byte, wire.HeaderSize); ; {
		if _, err := io.ReadFull(c, header); err != nil {
			return
		}
		size, ft, _ := wire.Header(header)
		body := make([]byte, size)
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		var pong wirev1.Pong
		switch ft {
		case wirev1.FrameType_FRAME_TYPE_PONG:
			if proto.Unmarshal(body, &pong) == nil {
				pongs <- pong.GetSentAt()
			}
		case wirev1.FrameType_FRAME_TYPE_ERROR:
			why := &wirev1.Error{}
			if proto.Unmarshal(body, why) == nil {
				c.ends <- why
			}
		}
	}
}

// travel sends Pings, several at a time, and reports each round trip, until the connection ends.
// Once 64 in a row were quick the road becomes slow.
func (c *traveller) travel(r *road, slow time.Duration) {
	began, pongs, quick := time.Now(), make(chan uint64, 1024), 0
	go c.frames(pongs)
	ping := func(report time.Duration) {
		_, _ = c.Write(frameOf(c.t, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: uint64(time.Since(began)), LastRttUs: uint32(report.Microseconds())}))
	}
	for range 3 {
		ping(0)
	}
	for at := range pongs {
		took := time.Since(began) - time.Duration(at)
		if quick++; took > 300*time.Millisecond && r.delay.Load() == 0 {
			quick = 0
		}
		if quick == 64 {
			r.delay.Store(int64(slow))
		}
		ping(took)
	}
}

// A connection whose way has become slow is closed, over real sockets, and one beside it whose way
// has not stays.
func TestConnectionOnASlowRoadIsClosed(t *testing.T) {
	l, _ := byHandIn(t, Config{Send: poll.ModeAuto, Unhealthy: linkhealth.Close})
	r := newRoad(t, l.Addr())
	conn, err := net.Dial("tcp", r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ill := &traveller{&client{t, conn}, make(chan *wirev1.Error, 1)}
	well := dial(t, l)
	for _, c := range []*client{ill.client, well} {
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, HeartbeatMs: 600_000})
	}
	var ended sync.WaitGroup
	ended.Go(func() { ill.travel(r, 450*time.Millisecond) })
	defer ended.Wait()
	defer func() { _ = conn.Close() }()

	var why *wirev1.Error
	deadline, pause := time.After(patience), time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for why == nil {
		select {
		case why = <-ill.ends:
		case <-pause.C:
			for l.turn() {
			}
		case <-deadline:
			t.Fatalf("never closed: %+v", l.hub.Stats())
		}
	}
	if why.GetCode() != wirev1.Code_CODE_UNHEALTHY || why.GetRef() != 0 {
		t.Fatalf("it is told %v", why)
	}
	well.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
	well.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{LastRttUs: 1})
	frames := l.hub.Frames()
	turnUntil(t, l, "the Ping is read", func() bool { return l.hub.Frames() > frames && !l.turn() })
	well.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
	s := l.hub.Stats()
	if s.Closes[wirev1.Code_CODE_UNHEALTHY] != 1 || s.UnhealthyTimes != 1 || s.RTTLate != 0 {
		t.Fatalf("%+v", s)
	}
}

// A loop that is late with its tick has round trips not count, whether the tick has come or not.
func TestALateLoopJudgesNobody(t *testing.T) {
	l, _ := byHandIn(t, Config{Send: poll.ModeAuto, Unhealthy: linkhealth.Close})
	c := dial(t, l)
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, HeartbeatMs: 600_000})
	turnUntil(t, l, "Welcome", func() bool { return l.hub.Frames() == 1 && !l.turn() })
	c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
	beat := func() {
		t.Helper()
		frames := l.hub.Frames()
		c.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{LastRttUs: 5_000_000})
		turnUntil(t, l, "the Ping is read", func() bool { return l.hub.Frames() > frames && !l.turn() })
	}
	beat()
	l.tickDue = l.now() - int64(linkhealth.TooLate) - 1
	l.turn()
	l.tickDue = 0 // no tick comes while a test turns the loop
	for range 5 {
		beat()
	}
	if s := l.hub.Stats(); s.RTTLate != 5 || s.UnhealthyTimes != 0 || s.Connections != 1 {
		t.Fatalf("%+v", s)
	}
}
