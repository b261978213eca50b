package loop

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/admission"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// behind starts loops that share a door.
func behind(t *testing.T, n int, lim admission.Limits) (*admission.Door, []*Loop) {
	t.Helper()
	door := admission.New(lim)
	loops, err := NewAll(Config{
		EdgeID: "edge", Mesh: upstreamtest.New(func(exchange.Event) {}), PolicyFor: policy.NewTable(nil).For, ListenAddr: "127.0.0.1:0", Poller: testPoller,
		Door: door, Limits: usual(Limits{}),
	}, n)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range loops {
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := l.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	return door, loops
}

// over counts what happened on all loops.
func over(loops []*Loop, of func(Stats) uint64) (n uint64) {
	for _, l := range loops {
		n += of(l.Stats())
	}
	return n
}

func closedFor(why wirev1.Code) func(Stats) uint64 {
	return func(s Stats) uint64 { return s.Closes[why] }
}

// fill takes n connections, checks that the next ones are refused with the code, and that one may
// come once one has gone.
func fill(t *testing.T, loops []*Loop, n int, want wirev1.Code) {
	t.Helper()
	var in []*client
	for range n {
		c := dial(t, loops[0])
		c.hello(&wirev1.Hello{})
		in = append(in, c)
	}
	for n := range uint64(8) { // some on each loop
		refused(t, loops[0], want)
		eventually(t, "counted", func() bool { return over(loops, closedFor(want)) > n })
	}
	for _, c := range in { // nobody who is in has noticed
		c.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7})
		c.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
	}
	_ = in[0].Close()
	eventually(t, "it has gone", func() bool { return over(loops, closedFor(wirev1.Code_CODE_OK)) > 0 })
	eventually(t, "another comes in", func() bool {
		c := dial(t, loops[0])
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
		ft, _, _ := c.frame()
		return ft == wirev1.FrameType_FRAME_TYPE_WELCOME
	})
}

// refused is a connection that is told why it may not stay, and when to come back.
func refused(t *testing.T, l *Loop, want wirev1.Code) {
	t.Helper()
	for range 10 { // a machine that stands still may have cut it off
		c := dial(t, l)
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
		if e, whole := c.refusal(); whole {
			if e.GetCode() != want || e.GetRef() != 0 || e.GetRetryAfterMs() == 0 {
				t.Fatalf("got %v, want %v", e, want)
			}
			return
		}
	}
	t.Fatal("always cut off")
}

// However the kernel spreads connections over loops, as many may come as the edge takes in all.
func TestConnectionsAreLimitedInAll(t *testing.T) {
	door, loops := behind(t, 2, admission.Limits{Connections: 10})
	fill(t, loops, 10, wirev1.Code_CODE_TOO_MANY_CONNECTIONS)
	if n := door.Held(); n > 10 {
		t.Fatalf("%d are held", n)
	}
}

func TestConnectionsOfAnAddressAreLimited(t *testing.T) {
	_, loops := behind(t, 2, admission.Limits{AddressConnections: 5})
	fill(t, loops, 5, wirev1.Code_CODE_TOO_MANY_CONNECTIONS)
	if n := over(loops, func(s Stats) uint64 { return s.AddressRefusals }); n < 8 {
		t.Fatalf("%d were counted", n)
	}
	for _, l := range loops {
		if s := l.Stats(); s.AddressRefusals > 0 && (s.LastRefused != netip.MustParseAddr("127.0.0.1") || s.RefusedFor != wirev1.Code_CODE_TOO_MANY_CONNECTIONS) {
			t.Fatalf("%v was refused for %v", s.LastRefused, s.RefusedFor)
		}
	}
}

func TestExemptAddressesAreNotLimited(t *testing.T) {
	exempt, err := admission.ParsePrefixes("exempt-from", []string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	_, loops := behind(t, 1, admission.Limits{AddressConnections: 1, AddressRate: 1, Exempt: exempt})
	for range 5 {
		dial(t, loops[0]).hello(&wirev1.Hello{})
	}
}

func TestConnectionsOfAnAddressHaveARate(t *testing.T) {
	l, _ := byHandBehind(t, admission.Limits{AddressRate: 3})
	var all []*client
	for range 5 {
		all = append(all, dial(t, l))
	}
	turnUntil(t, l, "all have come", func() bool { return l.stats.Accepts == 5 && !l.turn() })
	if n := l.hub.Stats().Closes[wirev1.Code_CODE_RATE_LIMITED]; n != 2 {
		t.Fatalf("%d were refused", n)
	}
	if ft, _, err := all[4].frame(); err != nil || ft != wirev1.FrameType_FRAME_TYPE_ERROR {
		t.Fatalf("the last one is told %v, %v", ft, err)
	}
	passes(l, time.Second)
	c := dial(t, l)
	turnUntil(t, l, "one more has come", func() bool { return l.stats.Accepts == 6 })
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	turnUntil(t, l, "it is in", func() bool { return l.hub.Stats().Frames == 1 })
}

// Who comes faster than the edge takes connections waits in the kernel, and none is refused.
func TestConnectionsHaveARate(t *testing.T) {
	l, _ := byHandBehind(t, admission.Limits{Rate: 4})
	for range 10 {
		dial(t, l)
	}
	turnUntil(t, l, "as many have come as come at once", func() bool { return l.stats.AcceptWaits > 0 })
	if n := l.stats.Accepts; n != 4 {
		t.Fatalf("%d came at once", n)
	}
	for range 50 {
		l.turn()
	}
	if n := l.stats.Accepts; n != 4 || l.stats.AcceptWaits != 1 || l.accepts {
		t.Fatalf("%d came, and the listener was looked at %d times more", n, l.stats.AcceptWaits-1)
	}
	passes(l, time.Second/2)
	turnUntil(t, l, "those of half a second have come", func() bool { return l.stats.AcceptWaits > 1 })
	if n := l.stats.Accepts; n < 6 || n > 8 {
		t.Fatalf("%d came in half a second", n)
	}
	passes(l, time.Second)
	turnUntil(t, l, "all have come", func() bool { return l.stats.Accepts == 10 })
	if s := l.hub.Stats(); s.Connections != 10 || s.Closes[wirev1.Code_CODE_RATE_LIMITED] != 0 {
		t.Fatalf("%d are in", s.Connections)
	}
}

// Of those that are refused a loop keeps a bounded number until they have read why.
func TestRefusedConnectionsAreBounded(t *testing.T) {
	l, _ := byHandBehind(t, admission.Limits{Connections: 1})
	l.turned = mostTurned - 2
	var all []*client
	for range 6 {
		all = append(all, dial(t, l))
	}
	turnUntil(t, l, "all were accepted", func() bool { return l.stats.Accepts == 6 })
	if l.turned != mostTurned {
		t.Fatalf("%d are kept", l.turned)
	}
	if s := l.hub.Stats(); s.Connections != 3 || s.Closes[wirev1.Code_CODE_TOO_MANY_CONNECTIONS] != 5 {
		t.Fatalf("%d are in, %d closes", s.Connections, s.Closes[wirev1.Code_CODE_TOO_MANY_CONNECTIONS])
	}
	for _, c := range all {
		_ = c.Close()
	}
	turnUntil(t, l, "all have gone", func() bool { return l.hub.Stats().Connections == 0 })
	if l.turned != mostTurned-2 || l.door.Held() != 0 {
		t.Fatalf("%d are kept, %d are in", l.turned, l.door.Held())
	}
}

// byHandBehind is byHand behind a door with limits.
func byHandBehind(t *testing.T, lim admission.Limits) (*Loop, *upstreamtest.Mesh) {
	t.Helper()
	l, mesh := byHand(t, "write")
	l.door = admission.New(lim)
	return l, mesh
}

// passes has the loop believe that time has gone by, and ticks.
func passes(l *Loop, d time.Duration) {
	l.started = l.started.Add(-d)
	l.setTime(partPoll)
	l.tick()
}
