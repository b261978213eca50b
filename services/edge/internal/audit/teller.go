// Package audit takes what happened on the event loops out of their rings, makes events of it, and
// has them published.
package audit

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/events/forwarder"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/eventring"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/routerlink"
)

// Config of a Teller.
type Config struct {
	Edge        string
	Incarnation uint64
	// Namespace that a topic belongs to.
	Namespace func(topic string) string
	// Request asks over NATS.
	Request func(ctx context.Context, subject string, data []byte) ([]byte, error)
	// Routers that are alive.
	Routers func() []string
	// Items and Bytes that may wait to be published; 0: the queue's defaults.
	Items, Bytes int
	Log          *slog.Logger
}

// Teller is a lifecycle.Part. Its goroutine takes from the rings.
type Teller struct {
	cfg   Config
	rings []*eventring.Ring
	queue *forwarder.Forwarder
	group *lifecycle.Group
	wake  chan struct{}
	told  [][events.Kinds]uint64 // losses of each ring that the queue knows
}

// New makes a teller with a ring for each loop.
func New(cfg Config, loops int) *Teller {
	t := &Teller{cfg: cfg, wake: make(chan struct{}, 1), told: make([][events.Kinds]uint64, loops)}
	for range loops {
		t.rings = append(t.rings, eventring.New(t.woken))
	}
	t.queue = forwarder.New(forwarder.Config{
		Source: cfg.Edge, Incarnation: cfg.Incarnation, Request: cfg.Request, Subject: t.router, Items: cfg.Items, Bytes: cfg.Bytes, Log: cfg.Log,
	})
	return t
}

// Rings of the loops, in order.
func (t *Teller) Rings() []*eventring.Ring { return t.rings }

func (t *Teller) woken() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// router is the same one for as long as it lives, so that the edge's events keep their order.
func (t *Teller) router() string {
	id := routerlink.Pick(t.cfg.Routers(), t.cfg.Incarnation)
	if id == "" {
		return ""
	}
	return bus.RouterEvents(id)
}

// Open gives the rings their memory. It is called before loops are told that any event is wanted.
func (t *Teller) Open() {
	for _, r := range t.rings {
		r.Open()
	}
}

// Start begins.
func (t *Teller) Start(ctx context.Context) error {
	if err := t.queue.Start(ctx); err != nil {
		return err
	}
	t.group = lifecycle.NewGroup(context.Background())
	t.group.Go("edge-events", t.run)
	return nil
}

// Stop tells of what has happened until now, as far as that can be done within two seconds. No loop
// runs any more.
func (t *Teller) Stop(ctx context.Context) error {
	if t.group == nil {
		return nil
	}
	err := t.group.Stop(ctx)
	t.takeAll()
	if err2 := t.queue.Stop(ctx); err == nil {
		err = err2
	}
	return err
}

// Waiting is how many events wait to be published.
func (t *Teller) Waiting() int { return t.queue.Waiting() }

// Counts of events by what became of them; OK: published, or wanted by nobody any more.
func (t *Teller) Counts() map[wirev1.Code]uint64 { return t.queue.Counts() }

func (t *Teller) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
			t.takeAll()
		}
	}
}

func (t *Teller) takeAll() {
	for i, ring := range t.rings {
		for {
			r, ok := ring.Take()
			if !ok {
				break
			}
			t.put(&r)
		}
		for _, k := range events.All() {
			if lost := ring.Lost(k); lost > t.told[i][k] {
				t.queue.Lost(k, lost-t.told[i][k])
				t.told[i][k] = lost
			}
		}
	}
}

func (t *Teller) put(r *eventring.Record) {
	e := &pushmeshv1.Event{At: timestamppb.New(time.UnixMicro(int64(r.At)))}
	c := &pushmeshv1.EventConnection{ConnectionId: r.Conn, ClientId: r.ClientID, User: r.User, Session: r.Session, Backend: r.Backend}
	topic := r.Kind.Topic()
	switch r.Kind {
	case events.Connect:
		e.Event = &pushmeshv1.Event_Connect{Connect: &pushmeshv1.EventConnect{Connection: c, Resumed: r.Flag}}
	case events.Disconnect:
		e.Event = &pushmeshv1.Event_Disconnect{Disconnect: &pushmeshv1.EventDisconnect{Connection: c, Code: wirev1.Code(r.Code), Reason: r.Reason}}
	case events.Subscribe:
		topic = r.Kind.In(t.cfg.Namespace(literal(r.Name)))
		e.Event = &pushmeshv1.Event_Subscribe{Subscribe: &pushmeshv1.EventSubscribe{Connection: c, Filter: r.Name, Group: r.Group, Ack: r.Flag}}
	case events.Unsubscribe:
		topic = r.Kind.In(t.cfg.Namespace(literal(r.Name)))
		e.Event = &pushmeshv1.Event_Unsubscribe{Unsubscribe: &pushmeshv1.EventUnsubscribe{
			Connection: c, Filter: r.Name, Group: r.Group, Code: wirev1.Code(r.Code), Reason: r.Reason,
		}}
	case events.Delivered:
		topic = r.Kind.In(t.cfg.Namespace(r.Name))
		e.Event = &pushmeshv1.Event_Delivered{Delivered: &pushmeshv1.EventDelivered{Connection: c, Topic: r.Name, Epoch: r.Epoch, Seq: r.Seq, Group: r.Group}}
	case events.SlowConsumer:
		e.Event = &pushmeshv1.Event_SlowConsumer{SlowConsumer: &pushmeshv1.EventSlowConsumer{
			Connection: c, Percent: uint32(r.Code), QueuedMessages: r.Epoch, QueuedBytes: r.Seq,
		}}
	}
	t.queue.Put(r.Kind, topic, "", e)
}

// literal are the levels of a filter before its first wildcard, by which its namespace is found.
func literal(filter string) string {
	i := strings.IndexAny(filter, "+#")
	if i < 0 {
		return filter
	}
	return strings.TrimSuffix(filter[:i], "/")
}
