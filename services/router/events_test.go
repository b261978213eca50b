package router

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// tell hands events to a router as an edge does, and answers with their codes.
func (e *fakeEdge) tell(tb testing.TB, subject string, items ...*meshv1.EventPublish_Item) []wirev1.Code {
	tb.Helper()
	data, err := proto.Marshal(&meshv1.EventPublish{Source: "e9", Incarnation: 3, Items: items})
	if err != nil {
		tb.Fatal(err)
	}
	reply := &meshv1.ClientPublishReply{}
	eventually(tb, "an answer", func() error {
		// a router joins those that take a subject of all a little later
		ctx, cancel := context.WithTimeout(tb.Context(), patience)
		defer cancel()
		answer, err := e.bus.Request(ctx, subject, data)
		if err != nil {
			return err
		}
		return proto.Unmarshal(answer, reply)
	})
	var codes []wirev1.Code
	for _, r := range reply.GetResults() {
		codes = append(codes, r.GetCode())
	}
	return codes
}

func (m *mesh) put(tb testing.TB, ns *pushmeshv1.Namespace) {
	tb.Helper()
	if _, err := pushmeshv1.NewNamespaceServiceClient(m.conn).Put(tb.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: ns}); err != nil {
		tb.Fatal(err)
	}
}

func happened(number uint64, topic string) *meshv1.EventPublish_Item {
	return &meshv1.EventPublish_Item{Number: number, Topic: topic, Event: fmt.Append(nil, "event ", number)}
}

// A router publishes what edges and stores tell, to whoever subscribes: the mesh's own topics
// alone.
func TestEventsArePublished(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	e := startEdge(t, m.nats.ClientURL(), "e1", "r1")
	e.want("$events/connect", "$events/subscribe/#")
	for _, subject := range []string{bus.RouterEvents("r1"), bus.EventPublish} {
		got := e.tell(t, subject, happened(1, "$events/connect"), happened(2, "room/1"), happened(3, "$events/disconnect"), happened(4, "$events/subscribe/room"), happened(5, "$dead/room"))
		if want := "[CODE_OK CODE_FORBIDDEN CODE_OK CODE_OK CODE_FORBIDDEN]"; fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", subject, got, want)
		}
	}
	d := e.got("$events/connect", 2)
	if msg := decode(t, d[0]); string(msg.GetPayload()) != "event 1" || d[0].GetSeq() != 0 || len(msg.GetId()) != 16 || msg.GetPublishedAt() == 0 || msg.GetPriority() != 0 {
		t.Errorf("%v: %v", d[0], msg)
	}
	e.got("$events/subscribe/room", 2)
}

// Once an operator makes them durable, an event that is told again is stored once.
func TestDurableEventsAreStoredOnce(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	e := startEdge(t, m.nats.ClientURL(), "e1", "r1")
	m.put(t, &pushmeshv1.Namespace{Prefix: "$events/disconnect", Policy: &pushmeshv1.Policy{Durable: true}})
	eventually(t, "the policy", func() error {
		e.tell(t, bus.RouterEvents("r1"), happened(1, "$events/disconnect"))
		if len(m.log.topic("$events/disconnect")) == 0 {
			return errors.New("ephemeral")
		}
		return nil
	})
	for range 3 {
		if got := e.tell(t, bus.RouterEvents("r1"), happened(1, "$events/disconnect"), happened(2, "$events/disconnect")); fmt.Sprint(got) != "[CODE_OK CODE_OK]" {
			t.Error(got)
		}
	}
	if got := len(m.log.topic("$events/disconnect")); got != 2 {
		t.Errorf("%d are stored", got)
	}
}

// An edge that comes back as another process, without a goodbye, is told of by one router: the one
// with the lowest id, where no log would tell one event from its repetitions.
func TestALostEdgeIsToldOfByOneRouter(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	e := startEdge(t, m.nats.ClientURL(), "e1", "r1")
	e.want("$events/disconnect")
	live := func(incarnation uint64) {
		e.publish(bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "e2", EdgeIncarnation: incarnation, Connections: 7})
	}
	live(1)
	live(2)
	d := e.got("$events/disconnect", 1)
	got := &pushmeshv1.Event{}
	if err := proto.Unmarshal(decode(t, d[0]).GetPayload(), got); err != nil {
		t.Fatal(err)
	}
	if l := got.GetEdgeLost(); l.GetEdge() != "e2" || l.GetEdgeIncarnation() != 1 || l.GetConnections() != 7 || got.GetSource() != "r1" || got.GetNumber() != 1 || got.GetAt() == nil {
		t.Errorf("%v", got)
	}
	m.another(t, "r0")
	// incarnations of e2 that r1 has met: those before are told of by then
	greeted := make(chan uint64, 1000)
	leave, err := e.bus.Subscribe(bus.EdgeFrames("e2"), 1000, func(data []byte, _ func([]byte) error) {
		f := &meshv1.RouterFrame{}
		if proto.Unmarshal(data, f) == nil {
			greeted <- f.GetEdgeIncarnation()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	live(3) // r0's to tell
	for met := uint64(0); met != 3; {
		select {
		case met = <-greeted:
		case <-time.After(patience):
			t.Fatal("r1 does not meet the edge")
		}
	}
	leave()
	m.put(t, &pushmeshv1.Namespace{Prefix: events.Root, Policy: &pushmeshv1.Policy{Durable: true}})
	incarnation := uint64(4)
	eventually(t, "the log has it, whoever is first", func() error {
		live(incarnation)
		incarnation++
		if len(m.log.topic("$events/disconnect")) == 0 {
			return errors.New("not there")
		}
		return nil
	})
	for _, d := range e.got("$events/disconnect", 2) {
		got := &pushmeshv1.Event{}
		if err := proto.Unmarshal(decode(t, d).GetPayload(), got); err != nil {
			t.Fatal(err)
		}
		if got.GetEdgeLost().GetEdgeIncarnation() == 2 {
			t.Errorf("r1 told what was r0's: %v", got)
		}
	}
}

// Frames say which kinds anybody wants, until nobody does.
func TestEdgesHearWhichEventsAreWanted(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	a, b := startEdge(t, m.nats.ClientURL(), "e1", "r1"), startEdge(t, m.nats.ClientURL(), "e2", "r1")
	said := func(want events.Mask) {
		t.Helper()
		eventually(t, "what is wanted", func() (err error) {
			b.read(func(b *fakeEdge) {
				if got := events.Mask(b.events); got != want|events.MaskSet {
					err = fmt.Errorf("%b, want %b", got, want)
				}
			})
			return err
		})
	}
	said(0)
	a.want("$events/+", "room/1")
	said(events.Of(events.All()...))
	a.publish(bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "e1", EdgeIncarnation: a.incarnation, Leaving: true})
	said(0)
}
