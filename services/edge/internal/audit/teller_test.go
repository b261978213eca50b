package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/eventring"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// router takes events, unless it is away.
type router struct {
	mu     sync.Mutex
	away   bool
	topics []string
	events []*pushmeshv1.Event
}

func (r *router) request(_ context.Context, _ string, data []byte) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in, reply := &meshv1.EventPublish{}, &meshv1.ClientPublishReply{}
	if err := proto.Unmarshal(data, in); err != nil || r.away {
		return nil, errors.New("no answer")
	}
	for _, it := range in.GetItems() {
		e := &pushmeshv1.Event{}
		if err := proto.Unmarshal(it.GetEvent(), e); err != nil {
			return nil, err
		}
		r.topics, r.events = append(r.topics, it.GetTopic()), append(r.events, e)
		reply.Results = append(reply.Results, &meshv1.ClientPublishReply_Result{})
	}
	return proto.Marshal(reply)
}

func (r *router) set(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
}

func start(t *testing.T, r *router, items int) *Teller {
	table := policy.NewTable(nil)
	x := New(Config{
		Edge: "e1", Incarnation: 5, Request: r.request, Routers: func() []string { return []string{"r1"} }, Items: items,
		Namespace: func(name string) string { return table.For(name).Prefix }, Log: slog.New(slog.DiscardHandler),
	}, 2)
	x.Open()
	if err := x.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return x
}

func TestEachKindHasItsTopicAndItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &router{}
		x := start(t, r, 0)
		base := eventring.Record{At: 1_700_000_000_000_000, Conn: 7, ClientID: "c", User: "u", Session: "s", Backend: true}
		for _, e := range []eventring.Record{
			{Kind: events.Connect, Flag: true},
			{Kind: events.Subscribe, Name: "room/+/chat", Group: "g", Flag: true},
			{Kind: events.Unsubscribe, Name: "+/x", Code: 16, Reason: "gone"},
			{Kind: events.Delivered, Name: "user/ann", Epoch: 3, Seq: 4, Group: "g"},
			{Kind: events.Disconnect, Code: 15, Reason: "stop"},
		} {
			e.At, e.Conn, e.ClientID, e.User, e.Session, e.Backend = base.At, base.Conn, base.ClientID, base.User, base.Session, base.Backend
			x.Rings()[1].Put(&e)
		}
		synctest.Wait()
		if want := "[$events/connect $events/subscribe/room $events/unsubscribe/default $events/delivered/user $events/disconnect]"; fmt.Sprint(r.topics) != want {
			t.Fatalf("%v, want %s", r.topics, want)
		}
		conn := &pushmeshv1.EventConnection{ConnectionId: 7, ClientId: "c", User: "u", Session: "s", Backend: true}
		for i, want := range []proto.Message{
			&pushmeshv1.EventConnect{Connection: conn, Resumed: true},
			&pushmeshv1.EventSubscribe{Connection: conn, Filter: "room/+/chat", Group: "g", Ack: true},
			&pushmeshv1.EventUnsubscribe{Connection: conn, Filter: "+/x", Code: wirev1.Code_CODE_UNAVAILABLE, Reason: "gone"},
			&pushmeshv1.EventDelivered{Connection: conn, Topic: "user/ann", Epoch: 3, Seq: 4, Group: "g"},
			&pushmeshv1.EventDisconnect{Connection: conn, Code: wirev1.Code_CODE_DRAINING, Reason: "stop"},
		} {
			e := r.events[i]
			got := e.ProtoReflect().Get(e.ProtoReflect().WhichOneof(e.ProtoReflect().Descriptor().Oneofs().ByName("event"))).Message().Interface()
			if !proto.Equal(got, want) || e.GetNumber() != uint64(i+1) || e.GetSource() != "e1" || e.GetIncarnation() != 5 || e.GetAt().AsTime().UnixMicro() != int64(base.At) {
				t.Errorf("%v, want %v", e, want)
			}
		}
		if err := x.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// 15,000 connections end at once while no router answers: what has no room is told of, by number.
func TestAStormBeyondTheQueueIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, room = 15_000, 1000
		r := &router{away: true}
		x := start(t, r, room)
		for i := range n {
			x.Rings()[i%2].Put(&eventring.Record{Kind: events.Disconnect, Conn: uint64(i + 1), ClientID: fmt.Sprint("client-", i), Reason: "the edge is stopping"})
		}
		<-time.After(time.Minute)
		r.set(false)
		<-time.After(time.Minute)
		synctest.Wait()
		told, lost := 0, uint64(0)
		for i, e := range r.events {
			switch {
			case r.topics[i] != "$events/disconnect":
				t.Errorf("%s: %v", r.topics[i], e)
			case e.GetLostEvents() != nil:
				lost += e.GetLostEvents().GetCount()
			default:
				told++
			}
		}
		if lost == 0 || uint64(told)+lost != n || told < room || x.Counts()[wirev1.Code_CODE_QUEUE_FULL] != lost {
			t.Errorf("%d told and %d lost of %d; counts %v", told, lost, n, x.Counts())
		}
		if err := x.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
