package delivery

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/kept"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// Members of groups that ACK nothing have much kept for them. Others, at other addresses, are
// served as before.
func TestMembersRefuseNobodyElse(t *testing.T) {
	const size = 100 << 10
	for _, hostile := range []bool{false, true} {
		w := newWorld(t, Limits{})
		cfg := w.h.cfg
		cfg.Kept = kept.Config{Connection: 1 << 20, Windows: 512 << 10, Loop: 4 << 20, Addresses: kept.NewHolders(1 << 20)}
		cfg.Origin = func(slot uint32) string { return fmt.Sprint("192.0.2.", slot) }
		w.h = newHub(t, cfg)
		w.pass(0)
		w.manyTopics(300)
		hog, m := w.member(&wirev1.Hello{HeartbeatMs: 600_000, ClientId: "hog", ReceiveWindow: 256}, &wirev1.Subscribe{Ack: true})
		if hostile {
			for seq := range uint64(60) {
				w.mesh.Assign(m, 0, upstreamtest.Encode("room/1", upstreamtest.BaseEpoch, seq+1, strings.Repeat("x", size)))
			}
			w.settle()
			hog.take()
		}
		c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ClientId: "ann"})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "many/+", Start: wirev1.Start_START_EARLIEST})
		c.take()
		if f := c.got[0].text(); f[:10] != "Subscribed" {
			t.Errorf("hostile %v: another client gets %s", hostile, f)
		}
	}
}

// A client subscribes to # as very many topics appear. Others, at other addresses, are served.
func TestTopicsThatAppearRefuseNobodyElse(t *testing.T) {
	for _, hostile := range []bool{false, true} {
		w := newWorld(t, Limits{})
		cfg := w.h.cfg
		cfg.Kept = kept.Config{Connection: 1 << 20, Windows: 512 << 10, Loop: 4 << 20, Addresses: kept.NewHolders(1 << 20)}
		cfg.Origin = func(slot uint32) string { return fmt.Sprint("192.0.2.", slot) }
		w.h = newHub(t, cfg)
		w.pass(0)
		w.manyTopics(300)
		hog := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ClientId: "hog"})
		if hostile {
			hog.subscribe(&wirev1.Subscribe{Id: 1, Filter: "seen/+"})
			for i := range 14_000 {
				w.mesh.Send(fmt.Sprint("seen/", i), "x")
			}
			w.settle()
			hog.take()
		}
		c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ClientId: "ann"})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "many/+", Start: wirev1.Start_START_EARLIEST})
		c.take()
		if f := c.got[0].text(); f[:10] != "Subscribed" {
			t.Errorf("hostile %v: another client gets %s", hostile, f)
		}
	}
}

// One address attaches sessions with many positions. Others, at other addresses, are served.
func TestSessionsRefuseNobodyElse(t *testing.T) {
	for _, hostile := range []bool{false, true} {
		w := newWorld(t, Limits{})
		cfg := w.h.cfg
		cfg.Kept = kept.Config{Connection: 1 << 20, Windows: 512 << 10, Loop: 4 << 20, Addresses: kept.NewHolders(1 << 20)}
		cfg.Origin = func(slot uint32) string { return []string{"192.0.2.1", "192.0.2.2"}[slot/10] }
		w.h = newHub(t, cfg)
		w.pass(0)
		w.manyTopics(900)
		for i := range 10 {
			c := w.dial()
			hello := &wirev1.Hello{Version: 1, ClientId: fmt.Sprint("id-", i), HeartbeatMs: 600_000}
			if hostile {
				hello.Session = "inbox"
			}
			c.send(wirev1.FrameType_FRAME_TYPE_HELLO, hello)
			if hostile {
				// makes the positions; two of them fit into the address
				c.subscribeSession("many/+")
				w.settle()
				user := "client:" + hello.GetClientId()
				write := &meshv1.SessionWrite{User: user, Name: "inbox", AddFilters: []string{"many/+"}}
				for n := range 900 {
					write.Cursors = append(write.Cursors, &meshv1.SessionCursor{Topic: fmt.Sprint("many/", n), Epoch: upstreamtest.BaseEpoch, Floor: 1})
				}
				w.h.Gone(c.slot)
				w.settle()
				w.mesh.Save(exchange.Conn{}, 0, write, true) // as it would have over time
				c = w.dial()
				c.send(wirev1.FrameType_FRAME_TYPE_HELLO, hello)
				c.take()
			}
		}
		c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ClientId: "ann"})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "many/+", Start: wirev1.Start_START_EARLIEST})
		c.take()
		if f := c.got[0].text(); f[:10] != "Subscribed" {
			t.Errorf("hostile %v: another client gets %s", hostile, f)
		}
	}
}
