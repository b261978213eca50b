package publish

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
)

// station is a desk at a NATS server, and somebody who asks it.
type station struct {
	*desk
	bus, asker *bus.Bus
}

func natsServer(t *testing.T) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("nats does not start")
	}
	return s
}

func settle(t *testing.T, limits admission.Limits) *station {
	t.Helper()
	nats := natsServer(t)
	join := func(name string) *bus.Bus {
		b := bus.New(bus.Config{URL: nats.ClientURL(), Name: name, Mesh: meshidtest.Identity(), Log: slog.New(slog.DiscardHandler)})
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Stop(context.Background()) }) //nolint:usetesting // the test's context is over by then
		return b
	}
	return &station{open(t, limits), join("router"), join("asker")}
}

// part is what takes requests.
type part interface {
	Start(context.Context) error
	Stop(context.Context) error
}

func (s *station) start(t *testing.T, p part) {
	t.Helper()
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.bus.Flush(bounded(t)); err != nil {
		t.Fatal(err)
	}
}

// ask sends a request until somebody takes it.
func (s *station) ask(t *testing.T, subject string, req proto.Message) []*meshv1.ClientPublishReply_Result {
	t.Helper()
	data, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	for {
		answer, err := s.asker.Request(bounded(t), subject, data)
		if errors.Is(err, bus.ErrNobody) && t.Context().Err() == nil { // it joins within moments
			continue
		}
		out := &meshv1.ClientPublishReply{}
		if err == nil {
			err = proto.Unmarshal(answer, out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out.GetResults()
	}
}

// nobody asserts that nobody takes requests there.
func (s *station) nobody(t *testing.T, subject string) {
	t.Helper()
	if err := s.bus.Flush(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.asker.Request(bounded(t), subject, []byte("x")); !errors.Is(err, bus.ErrNobody) {
		t.Errorf("%s: %v, want nobody there", subject, err)
	}
}

// What a transaction wrote is published as it was written, under the id that the transaction was
// told and by the store's number; its ttl runs from when it was written, and what came too late is
// not published.
func TestATransactionsMessagesArePublishedAsWritten(t *testing.T) {
	id, producer := bytes.Repeat([]byte{6}, 16), bytes.Repeat([]byte{8}, 16)
	const now = 1_000_000_000
	for name, c := range map[string]struct {
		it   *meshv1.OutboxPublish_Item
		want *Message
	}{
		"plain": {&meshv1.OutboxPublish_Item{}, &Message{Request: &pushmeshv1.PublishRequest{}}},
		"all of it": {
			&meshv1.OutboxPublish_Item{
				Topic: "orders/1", Payload: []byte("p"), Headers: map[string]string{"h": "v"}, DedupeKey: "k", Priority: 4, Traceparent: parent, ProducerSeq: 3, Repeated: true,
			},
			&Message{ProducerID: producer, ProducerSeq: 3, Written: &Written{Repeated: true}, Request: &pushmeshv1.PublishRequest{
				Topic: "orders/1", Payload: []byte("p"), Headers: map[string]string{"h": "v"}, DedupeKey: "k", Priority: 4, Traceparent: parent,
			}},
		},
		"a ttl": {
			&meshv1.OutboxPublish_Item{At: now - 5_000_000, TtlUs: 20_000_000}, &Message{Request: &pushmeshv1.PublishRequest{Ttl: durationpb.New(15 * time.Second)}},
		},
		"a ttl, by a clock that is ahead": {
			&meshv1.OutboxPublish_Item{At: now + 5_000_000, TtlUs: 20_000_000}, &Message{Request: &pushmeshv1.PublishRequest{Ttl: durationpb.New(20 * time.Second)}},
		},
		"later": {
			&meshv1.OutboxPublish_Item{At: now - 5_000_000, DeliverAt: now + 9, TtlUs: 20_000_000},
			&Message{Request: &pushmeshv1.PublishRequest{DeliverAt: timestamppb.New(time.UnixMicro(now + 9)), Ttl: durationpb.New(20 * time.Second)}},
		},
	} {
		c.it.MessageId = id
		if c.want.Written == nil {
			c.want.Written = &Written{}
		}
		c.want.Context, c.want.Producer, c.want.Written.MessageID, c.want.Written.KeySince = context.Background(), "outbox", id, c.it.GetAt() //nolint:usetesting // as it is made
		if diff := cmp.Diff(c.want, written(c.it, producer, now), protocmp.Transform(), cmp.Comparer(func(a, b context.Context) bool { return a == b })); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Routers take turns at the outbox once they know edges: each item has its answer in its place. One
// that stops leaves the turns to others.
func TestTheOutbox(t *testing.T) {
	s := settle(t, admission.Limits{InFlight: 1})
	var ready atomic.Bool
	asked := make(chan struct{}, 1)
	o := NewOutbox(s.Publisher, s.bus, func() error {
		signal(asked)
		if !ready.Load() {
			return errors.New("no edge is known")
		}
		return nil
	})
	s.start(t, o)
	<-asked
	<-asked
	s.nobody(t, bus.OutboxPublish)
	ready.Store(true)
	id, now := bytes.Repeat([]byte{6}, 16), uint64(time.Now().UnixMicro())
	req := &meshv1.OutboxPublish{ProducerId: make([]byte, 16), Items: []*meshv1.OutboxPublish_Item{
		{Topic: "orders/1", MessageId: id, At: now, ProducerSeq: 1},
		{Topic: "orders/1", MessageId: id[:15], At: now},
		{Topic: "orders/1", MessageId: id, At: now - 2_000_000, TtlUs: 1_000_000},
		{Topic: "orders/1", MessageId: id, At: now - 2_000_000, TtlUs: 1_000_000, DeliverAt: now + 3_600_000_000},
		// and the limits of producers are not for what is committed
		{Topic: "live/1", MessageId: id, At: now, TtlUs: 3_600_000_000},
		{Topic: "live/2", MessageId: id, At: now, Repeated: true},
	}}
	results := s.ask(t, bus.OutboxPublish, req)
	for i, want := range []wirev1.Code{0, wirev1.Code_CODE_INVALID_ARGUMENT, wirev1.Code_CODE_EXPIRED, 0, 0, 0} {
		if want == 0 {
			want = wirev1.Code_CODE_OK
		}
		if i >= len(results) || results[i].GetCode() != want {
			t.Fatalf("item %d of %v: want %v", i, results, want)
		}
	}
	if r := results[0]; r.GetSeq() != 1 || r.GetEpoch() != 3 || !bytes.Equal(r.GetMessageId(), id) {
		t.Errorf("%v", r)
	}
	if !results[5].GetDuplicate() || results[4].GetDuplicate() {
		t.Errorf("%v", results)
	}
	o.publish([]byte("\xff"), nil) // nothing that comes panics
	o.publish(nil, nil)
	o.Drain()
	for _, r := range s.ask(t, bus.OutboxPublish, req) {
		if r.GetCode() != wirev1.Code_CODE_DRAINING || r.GetRetryAfterMs() == 0 {
			t.Errorf("while it stops: %v", r)
		}
	}
	if err := o.Stop(bounded(t)); err != nil {
		t.Fatal(err)
	}
	s.nobody(t, bus.OutboxPublish)
}

// A router that stops before it was ready does not begin to take turns.
func TestARouterThatStopsDoesNotJoin(t *testing.T) {
	s := settle(t, admission.Limits{})
	asked := make(chan struct{}, 1)
	o := NewOutbox(s.Publisher, s.bus, func() error { signal(asked); return errors.New("not yet") })
	s.start(t, o)
	<-asked
	o.Drain()
	o.ready = nil // it is not asked any more: it would panic
	if err := o.Stop(bounded(t)); err != nil {
		t.Fatal(err)
	}
	s.nobody(t, bus.OutboxPublish)
}

// Stop waits for the replies to what was taken, so that nobody has to ask again; and no longer than
// it may.
func TestWhatWasTakenIsAnsweredBeforeTheEnd(t *testing.T) {
	s := settle(t, admission.Limits{})
	c := NewClients(s.Publisher, s.bus, "r")
	s.start(t, c)
	s.store.answers(func(*meshv1.AppendItem) *meshv1.AppendResult { return nil })
	reply := make(chan []*meshv1.ClientPublishReply_Result, 1)
	go func() {
		reply <- s.ask(t, bus.RouterPublish("r"), &meshv1.ClientPublish{Items: []*meshv1.ClientPublish_Item{{Topic: "open/1", ClientId: "c", Payload: []byte("x")}}})
	}()
	s.store.waits(t, "open/1")
	stopped := make(chan error, 1)
	go func() { stopped <- c.Stop(bounded(t)) }()
	for !c.draining.Load() {
		<-time.After(time.Millisecond)
	}
	select {
	case err := <-stopped:
		t.Fatalf("it stops before its client has an answer: %v", err)
	case <-time.After(20 * time.Millisecond): // it looks every five
	}
	s.store.release(t, "open/1")
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if r := <-reply; len(r) != 1 || r[0].GetCode() != wirev1.Code_CODE_OK || r[0].GetSeq() != 1 {
		t.Errorf("%v", r)
	}
	s.nobody(t, bus.RouterPublish("r"))

	c = NewClients(s.Publisher, s.bus, "again")
	s.start(t, c)
	c.unanswered.Add(1) // one that never ends
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = c.Stop(ctx)
}

// Clients' messages have the name of their user, or of their connection, and what each is told is
// in its place.
func TestClientsPublish(t *testing.T) {
	s := settle(t, admission.Limits{})
	c := NewClients(s.Publisher, s.bus, "r")
	s.start(t, c)
	results := s.ask(t, bus.RouterPublish("r"), &meshv1.ClientPublish{Items: []*meshv1.ClientPublish_Item{
		{Topic: "open/1", User: "ann", ClientId: "c", Payload: []byte("x"), Headers: map[string]string{"h": "v"}, DedupeKey: "k", Traceparent: parent},
		{Topic: "live/1", User: "ann", ClientId: "c"},
		{Topic: "open/1", ClientId: "c"},
	}})
	if len(results) != 3 || results[0].GetSeq() != 1 || results[1].GetCode() != wirev1.Code_CODE_FORBIDDEN || results[2].GetSeq() != 2 {
		t.Fatalf("%v", results)
	}
	routed, _ := s.routes.taken()
	first, last := decoded(t, routed[0].Body), decoded(t, routed[1].Body)
	want := &wirev1.Message{
		// and no trace: a client does not decide what is sampled
		Payload: []byte("x"), PublishedAt: first.GetPublishedAt(), Id: results[0].GetMessageId(), Headers: map[string]string{"h": "v"}, From: "ann",
		// MessageFeatures.origin
		Mesh: binary.LittleEndian.AppendUint64([]byte{0x19}, identity.Origin("ann", "c")),
	}
	if diff := cmp.Diff(want, first, protocmp.Transform()); diff != "" || s.store.items[0].GetDedupeKey() != "k" {
		t.Errorf("%s, key %q", diff, s.store.items[0].GetDedupeKey())
	}
	if last.GetFrom() != "client:c" {
		t.Errorf("without a user it is from %q", last.GetFrom())
	}
	c.Drain()
	if r := s.ask(t, bus.RouterPublish("r"), &meshv1.ClientPublish{Items: []*meshv1.ClientPublish_Item{{Topic: "open/1"}}}); r[0].GetCode() != wirev1.Code_CODE_DRAINING {
		t.Errorf("while it stops: %v", r)
	}
	if err := c.Stop(bounded(t)); err != nil {
		t.Fatal(err)
	}
}

// A client that sends more at once than its producer may have unanswered has all of it published,
// one after the other.
func TestClientsThatSendMuchAtOnceWait(t *testing.T) {
	s := settle(t, admission.Limits{InFlight: 1})
	c := NewClients(s.Publisher, s.bus, "r")
	s.start(t, c)
	req := &meshv1.ClientPublish{}
	for range 5 {
		req.Items = append(req.Items, &meshv1.ClientPublish_Item{Topic: "open/1", ClientId: "c"})
	}
	seqs := map[uint64]bool{}
	for _, r := range s.ask(t, bus.RouterPublish("r"), req) {
		if r.GetCode() != wirev1.Code_CODE_OK && r.GetCode() != wirev1.Code_CODE_RATE_LIMITED {
			// a machine that stands still for a second
			t.Errorf("%v", r)
		}
		seqs[r.GetSeq()] = true
	}
	if len(seqs) < 2 {
		t.Errorf("nobody goes on where a client waits: %v", seqs)
	}
	if err := c.Stop(bounded(t)); err != nil {
		t.Fatal(err)
	}
}

// Events are published once under their own topics, whoever tells of them how often; nothing else
// can be published so.
func TestEventsArePublished(t *testing.T) {
	s := settle(t, admission.Limits{InFlight: 1})
	e := NewEvents(s.Publisher, s.bus, "r", func() error { return nil })
	s.start(t, e)
	req := &meshv1.EventPublish{Source: "edge-1", Incarnation: 7, Items: []*meshv1.EventPublish_Item{
		{Number: 1, Topic: "$events/connect", Event: []byte("e")},
		{Number: 2, Topic: "$events/connect", Event: []byte("e"), DedupeKey: "k"},
		{Number: 3, Topic: "orders/1", Event: []byte("e")},
		{Number: 4, Topic: "$events/+", Event: []byte("e")},
	}}
	for _, subject := range []string{bus.RouterEvents("r"), bus.EventPublish} {
		results := s.ask(t, subject, req)
		if len(results) != 4 {
			t.Fatalf("%v", results)
		}
		for i, want := range []wirev1.Code{wirev1.Code_CODE_OK, wirev1.Code_CODE_OK, wirev1.Code_CODE_FORBIDDEN, wirev1.Code_CODE_FORBIDDEN} {
			if results[i].GetCode() != want {
				t.Errorf("%s %d: %v", subject, i, results[i])
			}
		}
		routed, _ := s.routes.taken()
		if len(routed) != 2 {
			t.Fatalf("routed %d times", len(routed))
		}
		m := decoded(t, routed[0].Body)
		if routed[0].Topic != "$events/connect" || string(m.GetPayload()) != "e" || m.GetPublishedAt() == 0 || !bytes.Equal(m.GetId(), results[0].GetMessageId()) || len(m.GetId()) != 16 {
			t.Errorf("%+v %v", routed[0], m)
		}
	}
	if pol := s.cfg.Policies.Table().For("$events/connect"); pol.Durable {
		if k := s.store.items[0].GetDedupeKey(); k != "\x00event/edge-1/7/1" || s.store.items[1].GetDedupeKey() != "k" {
			t.Errorf("keys %q and %q", k, s.store.items[1].GetDedupeKey())
		}
	}
	s.cfg.Admission = admission.New(admission.Config{Lag: func() float64 { return 1 }})
	if r := s.ask(t, bus.EventPublish, req); r[0].GetCode() != wirev1.Code_CODE_OVERLOADED {
		t.Errorf("a router without time: %v", r)
	}
	e.Drain()
	if r := s.ask(t, bus.EventPublish, req); r[0].GetCode() != wirev1.Code_CODE_DRAINING {
		t.Errorf("while it stops: %v", r)
	}
	if err := e.Stop(bounded(t)); err != nil {
		t.Fatal(err)
	}
	s.nobody(t, bus.EventPublish)
	s.nobody(t, bus.RouterEvents("r"))
}

// Where nobody takes replies as fast as they come, one is dropped rather than anything held up; and
// it is not waited for at the end.
func TestRepliesThatNobodyTakesAreDropped(t *testing.T) {
	p := open(t, admission.Limits{})
	o := NewOutbox(p.Publisher, nil, nil)
	for range outboxRequests + 1 {
		g := o.beginReply(1, nil)
		g.Published(0, &Result{})
	}
	if n := o.unanswered.Load(); n != outboxRequests || len(o.replies) != outboxRequests {
		t.Errorf("%d are open, %d replies", n, len(o.replies))
	}
	g := o.beginReply(1, nil)
	g.Published(0, &Result{Error: "\xff"}) // can't be sent
	if n := o.unanswered.Load(); n != outboxRequests {
		t.Errorf("%d are open behind one that can't be sent", n)
	}
}
