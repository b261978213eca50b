package delivery

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/kept"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/history"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// bounded has a world that has no connections keep within bounds.
func (w *world) bounded(keep kept.Config) *world {
	cfg := w.h.cfg
	cfg.Kept = keep
	w.h = newHub(w.t, cfg)
	w.pass(0)
	return w
}

// manyTopics makes topics that many/+ matches.
func (w *world) manyTopics(n int) {
	for i := range n {
		w.mesh.Append(fmt.Sprint("many/", i), "x")
	}
}

// hogged has one client keep as much un-ACKed as it may, more than its loop has room for.
func hogged(t *testing.T) *world {
	w := newWorld(t, Limits{}).bounded(kept.Config{Windows: 1 << 20, Connection: 2 << 20, Loop: 1 << 20})
	hog := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ReceiveWindow: 300, ClientId: "hog"})
	hog.subscribe(&wirev1.Subscribe{Id: 1, Filter: "hog/1", Ack: true})
	w.settle()
	for range 300 {
		w.mesh.Send("hog/1", strings.Repeat("x", 4<<10))
		hog.take()
	}
	if w.h.Stats().Released == 0 {
		t.Fatal("there was room for all")
	}
	return w
}

// What others' windows keep costs nobody a subscription with wildcards to a few hundred topics.
func TestWindowsOfOthersRefuseNoSubscription(t *testing.T) {
	w := hogged(t)
	w.manyTopics(200)
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ClientId: "honest"})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "many/+", Start: wirev1.Start_START_EARLIEST})
	c.take()
	if n := w.h.Stats().Refused[wirev1.Code_CODE_OVERLOADED]; n != 0 {
		t.Fatalf("%d are refused", n)
	}
}

// A plain live subscription with wildcards that there is no memory for goes on without the
// positions of its topics, as one does whose topics are too many to name; it gets what comes.
func TestPlainLiveWildcardsGoOnWithoutMemory(t *testing.T) {
	for _, n := range []int{1200, 200} {
		w := newWorld(t, Limits{}).bounded(kept.Config{Connection: 70 << 10})
		w.manyTopics(n)
		c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "many/+"})
		c.expect("Subscribed 1 head=0")
		if n := w.h.Stats().KeptBytes; n != 0 {
			t.Fatalf("%d bytes are kept for topics that are not", n)
		}
		w.mesh.Send("many/7", "y")
		c.expect("many/7/2")
		c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "many/#", Start: wirev1.Start_START_EARLIEST})
		if got := c.texts(); len(got) != 1 || !strings.HasPrefix(got[0], "Error ") {
			t.Fatalf("%d topics: got %q", n, got)
		}
	}
}

// With the default bounds of an edge with two loops, a burst of 64 short messages that 600
// connections have not ACKed yet has nothing released, and refuses nobody.
func TestABurstOfShortMessagesRefusesNobody(t *testing.T) {
	w := newWorld(t, Limits{}).bounded(kept.Config{Connection: 64 << 20, Windows: 32 << 20, Loop: 512 << 20})
	var all []history.Parts
	for seq := uint64(1); seq <= 64; seq++ {
		body := append([]byte{0x1a, 100}, strings.Repeat("x", 100)...)
		all = append(all, history.Parts{Topic: "room/1", Epoch: upstreamtest.BaseEpoch, Seq: seq, Body: body})
	}
	w.mesh.Append("room/1")
	var conns []*client
	for i := range 600 {
		c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ClientId: fmt.Sprint(i)})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
		conns = append(conns, c)
	}
	w.settle()
	w.h.Event(exchange.Live{Messages: history.Encode(nil, all, false)})
	w.settle()
	for _, c := range conns {
		c.take()
	}
	s := w.h.Stats()
	if t.Logf("%d un-ACKed, %d bytes are charged", s.Unacked, s.KeptBytes); s.Unacked != 600*64 || s.Released != 0 || s.KeptBytes > 32<<20 {
		t.Fatalf("%d un-ACKed, %d are released, %d bytes are charged", s.Unacked, s.Released, s.KeptBytes)
	}
	w.manyTopics(300)
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ClientId: "honest"})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "many/+", Start: wirev1.Start_START_EARLIEST})
	c.take()
	if n := w.h.Stats().Refused[wirev1.Code_CODE_OVERLOADED]; n != 0 {
		t.Fatalf("%d are refused", n)
	}
}
