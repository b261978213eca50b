package upstream

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// numbered ephemeral messages: the numbers are in their expiry, which nobody looks at here.
func numbered(topic string, n uint64) *meshv1.Delivery {
	return &meshv1.Delivery{Topic: topic, ExpiresAt: n, Body: []byte{}}
}

func (l *loop) expiries(topic string) (out []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if live, ok := e.(exchange.Live); ok {
			for _, m := range live.Messages {
				if m.Topic == topic {
					out = append(out, m.ExpiresAt)
				}
			}
		}
	}
	return out
}

// Broadcasts and frames for the edge come on two subjects, and stay in the order in which the
// router sent them.
func TestBothWaysAreOneOrder(t *testing.T) {
	w := newWorld(t)
	m, loops := w.edge("e1", 1)
	join(t, m, loops[0], "cursor/a")
	const n = 2000
	for i := uint64(1); i <= n; i++ {
		if i%3 == 0 {
			w.router.Broadcast(numbered("cursor/a", i), numbered("cursor/unwanted", i))
		} else {
			w.router.Send(numbered("cursor/a", i))
		}
	}
	edgetest.WaitFor(t, "all", func() error {
		if got := loops[0].expiries("cursor/a"); len(got) < n {
			return fmt.Errorf("%d of %d", len(got), n)
		}
		return nil
	})
	for i, got := range loops[0].expiries("cursor/a") {
		if got != uint64(i)+1 {
			t.Fatalf("message %d came as number %d", got, i+1)
		}
	}
	if got := loops[0].expiries("cursor/unwanted"); len(got) > 0 {
		t.Errorf("%d messages that nobody wants", len(got))
	}
	if got := m.feed.Stats().Unwanted.Load(); got != n/3 {
		t.Errorf("%d messages counted that nobody wants", got)
	}
	if m.stats.Broadcasts.Load() != n/3 || m.stats.Checks()["hole"] != 0 {
		t.Errorf("%d broadcasts, holes %v", m.stats.Broadcasts.Load(), m.stats.Checks())
	}
}

func TestALostBroadcastIsRepaired(t *testing.T) {
	w := newWorld(t)
	m, loops := w.edge("e1", 1)
	join(t, m, loops[0], "room/1")
	w.router.Broadcast(w.store.Publish("room/1", 1)...)
	waitLive(t, loops[0], "room/1", "1")
	w.store.Publish("room/1", 2)
	w.router.LoseBroadcast() // the beat names it
	waitLive(t, loops[0], "room/1", "1 2 3")
	w.store.Publish("room/1", 1)
	w.router.LoseBroadcast()
	w.router.Broadcast(w.store.Publish("room/1", 1)...) // the next one shows the hole
	waitLive(t, loops[0], "room/1", "1 2 3 4 5")
}

// What an edge makes for a message does not depend on how many there are: a frame of 64 costs a few
// pieces of memory.
func TestAFrameMakesLittleGarbage(t *testing.T) {
	m := New(Config{ID: "e", Incarnation: 1, Bus: bus.New(bus.Config{}), Durable: durable, Connections: func() int { return 0 }, Log: quiet})
	l := &loop{forget: true}
	m.SetLoops([]exchange.Loop{l})
	const size = 64
	frame := func(f *meshv1.RouterFrame, topics int, prefix string) []byte {
		f.RouterId, f.RouterIncarnation, f.EdgeIncarnation = "r", 1, 1
		for i := range size {
			topic := fmt.Sprint(prefix, i%topics)
			if !strings.HasPrefix(prefix, "no") {
				m.feed.Add(0, topic)
			}
			f.Deliveries = append(f.Deliveries, &meshv1.Delivery{Topic: topic, Body: plainBody(t, 128)})
		}
		data, err := proto.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for _, c := range []struct {
		name  string
		frame []byte
		most  float64 // pieces of memory for a frame of 64 messages
	}{
		{"of one topic", frame(&meshv1.RouterFrame{}, 1, "cursor/one/"), 20},
		{"of many topics", frame(&meshv1.RouterFrame{}, size, "cursor/many/"), 28},
		{"that nobody wants", frame(&meshv1.RouterFrame{Broadcast: 1}, size, "nobody/"), 0},
	} {
		handle := func() {
			f := &m.decoder.frame
			if !f.Decode(c.frame) {
				t.Fatal("can't be read")
			}
			m.deliver(f)
			m.handOn()
		}
		if got := testing.AllocsPerRun(100, handle); got > c.most {
			t.Errorf("a frame %s: %v allocations", c.name, got)
		} else {
			t.Logf("a frame %s: %v allocations", c.name, got)
		}
	}
}
