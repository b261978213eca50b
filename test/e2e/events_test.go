package e2e

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// storedEvents reads what the log of a topic of events holds.
func storedEvents(t *testing.T, api pushmeshv1.HistoryServiceClient, topic string) (all []*pushmeshv1.Event) {
	t.Helper()
	stream, err := api.Read(t.Context(), &pushmeshv1.ReadRequest{Topic: topic, FromSeq: 1})
	if err != nil {
		t.Fatal(err)
	}
	for {
		page, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			return nil // not durable yet, or the store is not there for a moment: it is asked again
		}
		for _, m := range page.GetMessages() {
			e := &pushmeshv1.Event{}
			if err := proto.Unmarshal(m.GetPayload(), e); err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
	}
}

// text of an event, short enough for stories.
func text(e *pushmeshv1.Event) string {
	code := func(c wirev1.Code) string { return strings.TrimPrefix(c.String(), "CODE_") }
	switch e := e.GetEvent().(type) {
	case *pushmeshv1.Event_Connect:
		return "connect " + e.Connect.GetConnection().GetClientId()
	case *pushmeshv1.Event_Disconnect:
		return "disconnect " + e.Disconnect.GetConnection().GetClientId() + " " + code(e.Disconnect.GetCode())
	case *pushmeshv1.Event_Subscribe:
		return "subscribe " + e.Subscribe.GetConnection().GetClientId() + " " + e.Subscribe.GetFilter()
	case *pushmeshv1.Event_Unsubscribe:
		return "unsubscribe " + e.Unsubscribe.GetConnection().GetClientId() + " " + e.Unsubscribe.GetFilter()
	case *pushmeshv1.Event_Delivered:
		return fmt.Sprint("delivered ", e.Delivered.GetConnection().GetClientId(), " ", e.Delivered.GetTopic(), " ", e.Delivered.GetSeq())
	case *pushmeshv1.Event_SessionExpired:
		return "session_expired " + e.SessionExpired.GetUser() + " " + e.SessionExpired.GetSession()
	case *pushmeshv1.Event_DeadLetter:
		return fmt.Sprint("dead_letter ", e.DeadLetter.GetTopic(), " ", e.DeadLetter.GetSeq(), " ", code(e.DeadLetter.GetReason()), " ", e.DeadLetter.GetSession())
	}
	return fmt.Sprint(e)
}

// awaitStored polls until the log of a topic of events has some.
func awaitStored(t *testing.T, api pushmeshv1.HistoryServiceClient, topic string, want ...string) []*pushmeshv1.Event {
	t.Helper()
	deadline, tick := time.After(wireclient.Patience), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		all := storedEvents(t, api, topic)
		var got []string
		for _, e := range all {
			got = append(got, text(e))
		}
		if !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(got, w) }) {
			return all
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s has %q, want %q", topic, got, want)
		}
	}
}

// Where an operator makes events durable, they are in the log whether anybody listens or not, in
// the order in which an edge saw them, each once and with what is needed to find what they are
// about.
func TestDurableEventsWaitForTheirConsumer(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2, Routers: 2})
	conn := m.Router(t)
	namespaces, history := pushmeshv1.NewNamespaceServiceClient(conn), pushmeshv1.NewHistoryServiceClient(conn)
	for _, ns := range []*pushmeshv1.Namespace{ // who knows the last one knows all
		{Prefix: "chores", Policy: &pushmeshv1.Policy{Durable: true, AckTimeout: durationpb.New(20 * time.Millisecond), MaxRedeliveries: new(uint32(1)), MaxAttempts: 2}},
		{Prefix: "$events", Policy: &pushmeshv1.Policy{Durable: true}},
		{Prefix: "jobs", Policy: &pushmeshv1.Policy{Durable: true, AckTimeout: durationpb.New(wireclient.Patience), DeliveredEvents: true}},
	} {
		if _, err := namespaces.Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: ns}); err != nil {
			t.Fatal(err)
		}
	}
	for _, router := range m.Routers(t) {
		procmesh.Await(t, "a router knows the policies", func() bool {
			resp, err := pushmeshv1.NewPublishServiceClient(router).Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "jobs/probe/1"})
			return err == nil && resp.GetSeq() > 0
		})
	}
	for _, addr := range m.EdgeAddrs {
		procmesh.Await(t, "an edge knows the policies", func() bool {
			c, _ := wireclient.Connect(t, addr, &wirev1.Hello{})
			defer c.Close()
			return c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "jobs/probe/1"}).GetEpoch() > 0
		})
	}
	gone, _ := wireclient.Connect(t, m.EdgeAddrs[1], &wirev1.Hello{ClientId: "gone", Session: "short", SessionTtlS: 1})
	gone.Close()
	c, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{ClientId: "worker", Session: "s"})
	c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "jobs/+", Ack: true, Start: wirev1.Start_START_SESSION})
	m.Publish(t, "jobs/1", "a")
	c.Ack(c.Message(), 0)
	lazy, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{ClientId: "lazy", Session: "bed"})
	lazy.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "chores/+", Ack: true, Start: wirev1.Start_START_SESSION})
	m.Publish(t, "chores/1", "b") // never ACKed
	letter := awaitStored(t, history, "$events/dead_letter/chores", "dead_letter chores/1 1 ATTEMPTS_EXHAUSTED bed")[0].GetDeadLetter()
	if found := letters(t, pushmeshv1.NewDeadLetterServiceClient(conn), "chores/#"); len(found) != 1 || found[0].GetId() != letter.GetId() {
		t.Errorf("letter %v, the event says %v", found, letter)
	}
	c.Send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	wireclient.Expect(c, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{})
	c.Raw([]byte{0, 0, 0, 0x7e})
	c.Closed()

	awaitStored(t, history, "$events/subscribe/jobs", "subscribe worker jobs/+")
	awaitStored(t, history, "$events/unsubscribe/jobs", "unsubscribe worker jobs/+")
	awaitStored(t, history, "$events/delivered/jobs", "delivered worker jobs/1 1")
	awaitStored(t, history, "$events/connect", "connect worker")
	all := awaitStored(t, history, "$events/disconnect", "disconnect worker UNKNOWN_FRAME")
	seen, last := map[string]bool{}, uint64(0)
	for _, e := range all {
		id := fmt.Sprint(e.GetSource(), e.GetIncarnation(), e.GetNumber())
		if seen[id] || e.GetSource() == "edge-1" && e.GetNumber() < last || e.GetLost() != 0 || e.GetAt() == nil {
			t.Errorf("%v after number %d", e, last)
		}
		if seen[id] = true; e.GetSource() == "edge-1" {
			last = e.GetNumber()
		}
	}
	awaitStored(t, history, "$events/session_expired", "session_expired client:gone short")
}
