package router

import (
	"context"
	"fmt"
	"log/slog"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/events/forwarder"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
	"github.com/pushmesh/pushmesh/services/router/internal/peers"
)

// lostEdges publishes that an edge is gone which can't tell of its connections' ends itself. Every
// router notices: where a log tells one event from its repetitions, all of them publish it; else
// the one with the lowest id does.
type lostEdges struct {
	cfg   lostConfig
	queue *forwarder.Forwarder
}

type lostConfig struct {
	router      string
	incarnation uint64
	// take publishes an EventPublish (publish.Events).
	take    func(data []byte, respond func([]byte) error)
	routers func() []peers.Router
	durable func(topic string) bool
	log     *slog.Logger
}

func newLostEdges(cfg lostConfig) *lostEdges {
	return &lostEdges{cfg: cfg, queue: forwarder.New(forwarder.Config{
		Source: cfg.router, Incarnation: cfg.incarnation, Subject: func() string { return cfg.router }, Log: cfg.log,
		Request: func(ctx context.Context, _ string, data []byte) ([]byte, error) {
			answer := make(chan []byte, 1)
			cfg.take(data, func(data []byte) error {
				answer <- data
				return nil
			})
			select {
			case data := <-answer:
				return data, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	})}
}

func (l *lostEdges) publish(e interest.Edge, connections uint32) {
	topic := events.Disconnect.Topic()
	if first := l.cfg.routers()[0].ID; first != l.cfg.router && !l.cfg.durable(topic) {
		return
	}
	l.queue.Put(events.Disconnect, topic, fmt.Sprintf("\x00edge-lost/%s/%d", e.ID, e.Incarnation), &pushmeshv1.Event{
		At:    timestamppb.Now(),
		Event: &pushmeshv1.Event_EdgeLost{EdgeLost: &pushmeshv1.EventEdgeLost{Edge: e.ID, EdgeIncarnation: e.Incarnation, Connections: connections}},
	})
}
