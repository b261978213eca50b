package e2e

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/backend"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// A namespace that is changed to let no client subscribe ends what clients of all edges have there
// within a second, by name or by wildcards, and backends go on. Once the rule is taken back clients
// are let in again. A machine that stood still is no calm mesh: one round of several must be in
// time.
func TestANamespaceLetsNoClientSubscribe(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2})
	worker, _ := backend.Open(t, m.Router(t), &wirev1.Hello{ClientId: "worker"}, false)
	worker.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "shut/#"})
	var clients []*asker
	for _, addr := range m.EdgeAddrs {
		c, _ := wireclient.Connect(t, addr, &wirev1.Hello{ClientId: "phone"})
		a := &asker{t: t, c: c}
		a.want(true, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, "another namespace", func(id uint32) proto.Message { return &wirev1.Subscribe{Id: id, Filter: "else/1"} })
		clients = append(clients, a)
	}
	filters := []string{"shut/1", "shut/+", "#"}
	best := time.Hour
	for round := 0; best > time.Second; round++ {
		if round == 10 {
			t.Fatalf("ended at best after %v", best)
		}
		putNamespace(t, m, "shut", &pushmeshv1.Policy{Durable: true})
		for _, a := range clients {
			for _, f := range filters {
				a.want(true, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, f, func(id uint32) proto.Message { return &wirev1.Subscribe{Id: id, Filter: f} })
			}
		}
		began := time.Now()
		change(t, m, "shut", &pushmeshv1.Policy{Durable: true, ClientSubscribe: pushmeshv1.ClientSubscribe_CLIENT_SUBSCRIBE_NONE})
		for _, a := range clients {
			for range filters {
				end, is := a.next().(*wirev1.Unsubscribed)
				if !is || end.GetCode() != wirev1.Code_CODE_FORBIDDEN || !strings.Contains(end.GetReason(), "rule namespace:shut,") {
					t.Fatalf("%v", end)
				}
			}
		}
		best = min(best, time.Since(began))
		m.Publish(t, "shut/1", "secret")
		m.Publish(t, "else/1", "for all")
		if msg := worker.Message(); string(msg.GetPayload()) != "secret" {
			t.Fatalf("a backend got %v", msg)
		}
		for _, a := range clients {
			if msg, is := a.next().(*wirev1.Message); !is || string(msg.GetPayload()) != "for all" {
				t.Fatalf("a client got %v", msg)
			}
			for _, f := range append(filters, "shut", "shut/#", "+/1") {
				a.want(false, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, f, func(id uint32) proto.Message { return &wirev1.Subscribe{Id: id, Filter: f} })
			}
		}
	}
}

// Where clients may read no history they get what is published from now on, and nothing by any of
// the ways to what was before; a backend reads all.
func TestANamespaceLetsNoClientReadHistory(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{})
	putNamespace(t, m, "live", &pushmeshv1.Policy{Durable: true, ClientHistory: pushmeshv1.ClientHistory_CLIENT_HISTORY_NONE})
	m.Publish(t, "live/1", "before")
	c, _ := wireclient.Connect(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: "phone", Session: "s"})
	a := &asker{t: t, c: c}
	for what, s := range map[string]*wirev1.Subscribe{
		"EARLIEST": {Filter: "live/1", Start: wirev1.Start_START_EARLIEST}, "wildcards": {Filter: "#", Start: wirev1.Start_START_EARLIEST},
		"LAST_N": {Filter: "live/1", Start: wirev1.Start_START_LAST_N, Seq: 1}, "SESSION": {Filter: "live/1", Start: wirev1.Start_START_SESSION},
		"AFTER_SEQ": {Filter: "live/1", Start: wirev1.Start_START_AFTER_SEQ}, "positions": {Filter: "live/1", Positions: []*wirev1.Position{{Topic: "live/1"}}},
		"group": {Filter: "live/1", Group: "g"},
	} {
		a.want(false, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, what, func(id uint32) proto.Message {
			s.Id = id
			return s
		})
	}
	a.want(true, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, "LIVE", func(id uint32) proto.Message { return &wirev1.Subscribe{Id: id, Filter: "live/+", Ack: true} })
	worker, _ := backend.Open(t, m.Router(t), &wirev1.Hello{ClientId: "worker"}, false)
	worker.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "live/1", Start: wirev1.Start_START_EARLIEST})
	m.Publish(t, "live/1", "now")
	for _, want := range []string{"before", "now"} {
		if msg := worker.Message(); string(msg.GetPayload()) != want {
			t.Fatalf("a backend got %v, want %s", msg, want)
		}
	}
	if msg, is := a.next().(*wirev1.Message); !is || string(msg.GetPayload()) != "now" {
		t.Fatalf("a client got %v", msg)
	}
}
