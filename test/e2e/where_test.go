package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// come reads what comes of one topic, as "seq" for a Message and "from..to code" for a Progress,
// until the last of want came.
func come(t *testing.T, c *wireclient.Client, want ...string) {
	t.Helper()
	for _, one := range want {
		ft, body, err := c.Next(wireclient.Patience)
		if err != nil {
			t.Fatalf("%v, want %s", err, one)
		}
		got := ft.String()
		switch ft {
		case wirev1.FrameType_FRAME_TYPE_MESSAGE:
			var m wirev1.Message
			if err := proto.Unmarshal(body, &m); err != nil || m.GetMesh() != nil || len(m.GetSubs()) != 1 {
				t.Fatalf("%v %v", &m, err)
			}
			if got = fmt.Sprint(m.GetSeq()); m.GetSeq() == 0 {
				got = string(m.GetPayload())
			}
		case wirev1.FrameType_FRAME_TYPE_PROGRESS:
			var p wirev1.Progress
			if err := proto.Unmarshal(body, &p); err != nil {
				t.Fatal(err)
			}
			got = fmt.Sprintf("%d..%d %v", p.GetFrom(), p.GetTo(), p.GetCode())
		}
		if got != one {
			t.Fatalf("got %s, want %s", got, one)
		}
	}
}

// Features and payloads are filtered by at the edge, live, from the log and from what is kept of
// it, and nobody is shown the features.
func TestContentFilters(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{})
	putNamespace(t, m, "shop", &pushmeshv1.Policy{Durable: true})
	producer := pushmeshv1.NewPublishServiceClient(m.Router(t))
	publish := func(topic, payload string, price float64) {
		t.Helper()
		if _, err := producer.Publish(t.Context(), &pushmeshv1.PublishRequest{
			Topic: topic, Payload: []byte(payload), Features: map[string]float64{"price": price}, Vector: []float32{1, 2},
		}); err != nil {
			t.Fatal(err)
		}
	}
	const cheap = "features.price < 5.0 && payload.n >= 2"
	live, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	live.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "shop/+", Where: cheap})
	publish("shop/1", `{"n": 1}`, 1)
	publish("shop/1", `{"n": 2}`, 9)
	publish("shop/1", `{"n": 3}`, 4)
	come(t, live, "1..2 CODE_FILTERED", "3")

	late, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	late.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "shop/1", Start: wirev1.Start_START_EARLIEST, Where: "payload.n == 2"})
	publish("shop/1", `{"n": 2}`, 3)
	come(t, late, "1..1 CODE_FILTERED", "2", "3..3 CODE_FILTERED", "4")
	come(t, live, "4")

	late.Subscribe(&wirev1.Subscribe{Id: 2, Filter: "talk/1", Where: "features.price > 5.0"})
	for price, n := range []string{"a", "b", "c"} {
		publish("talk/1", n, float64(3*price))
	}
	come(t, late, "c")

	late.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 3, Filter: "talk/1", Where: "payload >"})
	if e := late.Error(); e.GetCode() != wirev1.Code_CODE_INVALID_ARGUMENT || e.GetRef() != 3 {
		t.Errorf("%v", e)
	}
	history := pushmeshv1.NewHistoryServiceClient(m.Router(t))
	stream, err := history.Read(t.Context(), &pushmeshv1.ReadRequest{Topic: "shop/1"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := stream.Recv(); err != nil || len(r.GetMessages()) != 4 || string(r.GetMessages()[3].GetPayload()) != `{"n": 2}` {
		t.Errorf("%v, %v", r, err)
	}
}

// A session that comes back, at another edge and with the same filter, has everything that passes
// once, and the rest counts as ACKed.
func TestASessionWithAFilterMoves(t *testing.T) {
	t.Parallel()
	s := newSessions(t, &pushmeshv1.Policy{})
	resume := &wirev1.Subscribe{Id: 1, Filter: "jobs/1", Ack: true, Start: wirev1.Start_START_SESSION, Where: "payload.n > 1"}
	first, _ := s.attach(0, "s", 0)
	first.Subscribe(resume)
	for _, n := range []int{1, 2, 1} {
		s.Publish(t, "jobs/1", fmt.Sprintf(`{"n": %d}`, n))
	}
	come(t, first, "1..1 CODE_FILTERED", "2")
	ack(first, &wirev1.Ack_Entry{Topic: "jobs/1", Seq: 2})
	s.is("s", floor(3))
	first.Close()
	for _, n := range []int{0, 5, 1, 7} {
		s.Publish(t, "jobs/1", fmt.Sprintf(`{"n": %d}`, n))
	}
	second, w := s.attach(1, "s", 0)
	if !w.GetResumed() {
		t.Error("the session is not resumed")
	}
	second.Subscribe(resume)
	come(t, second, "4..4 CODE_FILTERED", "5", "6..6 CODE_FILTERED", "7")
	ack(second, &wirev1.Ack_Entry{Topic: "jobs/1", Seq: 7, Through: true})
	s.is("s", floor(7))
}

// The SDK hands a filtered subscription what passes, beside one without a filter on the same
// connection, and goes on where it was when the connection breaks.
func TestTheSDKFilters(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{})
	putNamespace(t, m, "shop", &pushmeshv1.Policy{Durable: true})
	p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: []string{m.RouterAddr()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Close(p) })
	s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{m.EdgeAddr()}, ClientID: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Close(s) })
	all, some := make(chan uint64, 100), make(chan uint64, 100)
	subscribe := func(to chan uint64, opts ...pushmesh.Option) {
		t.Helper()
		sub, err := s.Subscribe(t.Context(), "shop/1", func(_ context.Context, d *pushmesh.Delivery) error {
			to <- d.Seq
			return nil
		}, opts...)
		if err == nil {
			err = sub.Ready(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	subscribe(all)
	subscribe(some, pushmesh.WithWhere("features.price > 1.0"), pushmesh.WithAck())
	publish := func() {
		t.Helper()
		for price := range 4 {
			if _, err := p.Publish(t.Context(), pushmesh.Message{Topic: "shop/1", Payload: []byte("x"), Features: map[string]float64{"price": float64(price)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	take := func(from chan uint64, want ...uint64) {
		t.Helper()
		for _, seq := range want {
			select {
			case got := <-from:
				if got != seq {
					t.Fatalf("got %d, want %d", got, seq)
				}
			case <-time.After(wireclient.Patience):
				t.Fatalf("%d does not come", seq)
			}
		}
	}
	publish()
	take(all, 1, 2, 3, 4)
	take(some, 3, 4)
	if _, err := pushmeshv1.NewSessionServiceClient(m.Router(t)).Disconnect(t.Context(), &pushmeshv1.DisconnectRequest{ClientId: "ann", Code: wirev1.Code_CODE_UNHEALTHY}); err != nil {
		t.Fatal(err)
	}
	publish()
	take(all, 5, 6, 7, 8)
	take(some, 7, 8)
}
