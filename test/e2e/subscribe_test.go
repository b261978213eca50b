package e2e

import (
	"strconv"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/backend"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// A backend that consumes through a router gets what a TCP client gets: what is ephemeral as it
// comes, what is durable until it was ACKed.
func TestABackendConsumes(t *testing.T) {
	m := harness.Start(t, harness.Options{Edges: 2})
	putNamespace(t, m, "jobs", &pushmeshv1.Policy{Durable: true, AckTimeout: durationpb.New(patient)})
	s, welcome := backend.Open(t, m.Router(t), &wirev1.Hello{ClientId: "worker", Session: "main"}, false)
	if welcome.GetResumed() || welcome.GetClientId() != "worker" {
		t.Fatalf("welcome: %v", welcome)
	}
	if sub, no := s.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "jobs/a", Ack: true, Start: wirev1.Start_START_SESSION}); sub.GetEpoch() == 0 {
		t.Fatalf("subscribed: %v, refused: %v", sub, no)
	}
	if sub, no := s.Subscribe(&wirev1.Subscribe{Id: 2, Filter: "live/+"}); sub == nil {
		t.Fatalf("refused: %v", no)
	}
	if _, no := s.Subscribe(&wirev1.Subscribe{Id: 3, Filter: "a//b"}); no.GetCode() != wirev1.Code_CODE_BAD_TOPIC {
		t.Fatalf("a bad filter: %v", no)
	}
	m.Publish(t, "live/1", "now")
	if msg := s.Message(); string(msg.GetPayload()) != "now" || msg.GetSeq() != 0 {
		t.Fatalf("ephemeral: %v", msg)
	}
	m.PublishBatch(t, "jobs/a", 10)
	for i := range 10 {
		msg := s.Message()
		if msg.GetSeq() != uint64(i+1) || string(msg.GetPayload()) != strconv.Itoa(i+1) {
			t.Fatalf("message %d: %v", i+1, msg)
		}
		if i < 6 {
			s.Ack(msg)
		}
	}
	if err := s.HalfClose(); err != nil {
		t.Fatalf("half-closed: %v", err)
	}
	s, welcome = backend.Open(t, m.Router(t), &wirev1.Hello{ClientId: "worker", Session: "main"}, false)
	if !welcome.GetResumed() {
		t.Fatalf("not resumed: %v", welcome)
	}
	s.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "jobs/a", Ack: true, Start: wirev1.Start_START_SESSION})
	for seq := uint64(7); seq <= 10; seq++ {
		if msg := s.Message(); msg.GetSeq() != seq {
			t.Fatalf("got %d, want %d", msg.GetSeq(), seq)
		}
	}
}

// The mesh's own topics are for backends: nobody who has proven nothing has any of them, dead
// letters of others least of all.
func TestTheMeshsOwnTopics(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	client, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	s, _ := backend.Open(t, m.Router(t), &wirev1.Hello{}, false)
	for i, filter := range []string{"$events/x", "$events/#", "$events", "$audit/#", "$audit/NamespaceService/Put", "$deadly/x", "$dea", "$dead/#", "$dead"} {
		id := uint32(i + 1)
		if sub, no := s.Subscribe(&wirev1.Subscribe{Id: id, Filter: filter}); sub == nil {
			t.Errorf("%s: a backend is refused: %v", filter, no)
		}
		client.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: id, Filter: filter})
		if no := wireclient.Expect(client, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{}); no.GetCode() != wirev1.Code_CODE_FORBIDDEN || no.GetRef() != id {
			t.Errorf("%s: a client is told %v", filter, no)
		}
	}
	// Who made a ticket up is no backend.
	liar := wireclient.Dial(t, m.EdgeAddr())
	liar.Send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, Ticket: []byte("0123456789abcdefrouter-1")})
	if no := wireclient.Expect(liar, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{}); no.GetCode() != wirev1.Code_CODE_UNAUTHENTICATED {
		t.Errorf("a ticket that nobody gave: %v", no)
	}
}
