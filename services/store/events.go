package store

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/events/forwarder"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// eventsWaiting bounds the events that wait for a router.
const eventsWaiting = 16 << 10

// eventPublisher publishes the store's events. They are few, so it sends them whether there are
// subscribers or not: routers know that.
type eventPublisher struct {
	queue    *forwarder.Forwarder // nil: no NATS, so no events
	policies *policy.Watch
}

func newEventPublisher(b *bus.Bus, owner backend.Owner, policies *policy.Watch, tel *telemetry.Telemetry) *eventPublisher {
	t := &eventPublisher{policies: policies}
	if b == nil {
		return t
	}
	t.queue = forwarder.New(forwarder.Config{
		Source: owner.StoreID, Incarnation: owner.Incarnation, Request: b.Request, Subject: func() string { return bus.EventPublish },
		Items: eventsWaiting, Log: tel.Log,
	})
	tel.Registry.MustRegister(eventsCollector{t.queue})
	return t
}

// expired publishes the end of a session, after the commit.
func (t *eventPublisher) expired(s backend.SessionKey) {
	if t.queue == nil {
		return
	}
	t.queue.Put(events.SessionExpired, events.SessionExpired.Topic(), "", &pushmeshv1.Event{
		At: timestamppb.Now(), Event: &pushmeshv1.Event_SessionExpired{SessionExpired: &pushmeshv1.EventSessionExpired{User: s.User, Session: s.Name}},
	})
}

// deadLetter publishes that a dead letter was stored, except those of events, which would cause
// events without end.
func (t *eventPublisher) deadLetter(l *meshv1.DeadLetter) {
	if t.queue == nil || events.IsEvent(l.GetTopic()) {
		return
	}
	t.queue.Put(events.DeadLetter, events.DeadLetter.In(t.policies.Table().For(l.GetTopic()).Prefix), deadLetterKey(l), &pushmeshv1.Event{
		At: timestamppb.New(time.UnixMicro(int64(l.GetAt()))),
		Event: &pushmeshv1.Event_DeadLetter{DeadLetter: &pushmeshv1.EventDeadLetter{
			Id: l.GetId(), Topic: l.GetTopic(), Epoch: l.GetEpoch(), Seq: l.GetSeq(), Reason: l.GetReason(), Attempts: l.GetAttempts(),
			User: l.GetUser(), Session: l.GetSession(),
		}},
	})
}

// deadLetterKey is the same whichever store publishes the event.
func deadLetterKey(l *meshv1.DeadLetter) string {
	return fmt.Sprint("\x00dead-letter-event/", strconv.FormatUint(l.GetId(), 10), "/", l.GetAt())
}

// eventsCollector reads the queue's counters at scrape.
type eventsCollector struct{ queue *forwarder.Forwarder }

var (
	eventsTotal = prometheus.NewDesc("pushmesh_store_events_total", "Events ($events/…) by code: OK, a router accepted them; any other code, they are lost.", []string{"code"}, nil)
	eventsWait  = prometheus.NewDesc("pushmesh_store_events_waiting", "Events that wait to be sent to a router.", nil, nil)
)

// Describe sends the two.
func (eventsCollector) Describe(ch chan<- *prometheus.Desc) { ch <- eventsTotal; ch <- eventsWait }

// Collect sends what there is.
func (c eventsCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(eventsWait, prometheus.GaugeValue, float64(c.queue.Waiting()))
	for why, n := range c.queue.Counts() {
		ch <- prometheus.MustNewConstMetric(eventsTotal, prometheus.CounterValue, float64(n), code.Name(why))
	}
}
