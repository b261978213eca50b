package router

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	consumeSpan = 3 * time.Second
	// messages on their way, from before they are published until they are handled
	consumeWindow = 2000
)

// consume has the SDK take what it publishes, over TCP from the edge and through the router: what
// the way through the router costs.
func (b *bench) consume(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, 1))
	defer m.Stop()
	for _, kind := range []struct {
		name, topic string
		options     []pushmesh.Option
	}{
		{"ephemeral", "live/consume", nil},
		{"durable, ACKed", "room/consume", []pushmesh.Option{pushmesh.WithAck(), pushmesh.WithWindow(consumeWindow)}},
	} {
		tcp, used, err := consumed(ctx, m, m.Edges[0].Addr, pushmesh.NewSubscriber, kind.topic, kind.options...)
		if err != nil {
			return fmt.Errorf("%s, TCP: %w", kind.name, err)
		}
		through, usedThrough, err := consumed(ctx, m, m.Router.Addr, func(cfg pushmesh.SubscriberConfig) (*pushmesh.Subscriber, error) { return pushmesh.NewBackend(cfg) }, kind.topic, kind.options...)
		if err != nil {
			return fmt.Errorf("%s, through a router: %w", kind.name, err)
		}
		b.Add(table.Figure("consumed through a router, "+kind.name, through, "messages/s",
			fmt.Sprintf("one SDK producer and subscriber, %d B, %d on their way; %s; over TCP from the edge %.0f, %s", payload, consumeWindow, usedThrough, tcp, used)))
	}
	return nil
}

// consumed is how many messages a second come, and the CPU of the tiers for each.
func consumed(ctx context.Context, m *local.Mesh, addr string, made func(pushmesh.SubscriberConfig) (*pushmesh.Subscriber, error), topic string, options ...pushmesh.Option) (rate float64, used string, err error) {
	defer try.Catch(&err)
	ctx, cancel := context.WithTimeout(ctx, consumeSpan+patience)
	defer cancel()
	room := make(chan struct{}, consumeWindow)
	var came atomic.Int64
	sub := try.Get(made(pushmesh.SubscriberConfig{Addrs: []string{addr}}))
	defer func() { err = errors.Join(err, closing.Close(sub)) }()
	take := func(context.Context, *pushmesh.Delivery) error {
		came.Add(1)
		<-room
		return nil
	}
	try.Get(sub.Subscribe(ctx, topic, take, options...))
	p := try.Get(pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: []string{m.Router.Addr}}))
	defer func() { err = errors.Join(err, closing.Close(p)) }()
	var failed atomic.Pointer[error]
	publish := func(span time.Duration) error {
		body := make([]byte, payload)
		for end := time.Now().Add(span); time.Now().Before(end); {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return fmt.Errorf("%d came: %w", came.Load(), ctx.Err())
			}
			if err := p.PublishAsync(ctx, pushmesh.Message{Topic: topic, Payload: body, Ephemeral: topic[:4] == "live"}, func(_ pushmesh.Result, err error) {
				if err != nil {
					failed.Store(&err)
				}
			}); err != nil {
				return err
			}
		}
		return nil
	}
	try.Do(publish(time.Second)) // does not count
	usage := try.Get(suite.Using(suite.Of("router", m.Router), suite.Of("edge", m.Edges...)))
	n, began := came.Load(), time.Now()
	try.Do(publish(consumeSpan))
	n, took := came.Load()-n, time.Since(began)
	used = try.Get(usage.Each(n))
	if e := failed.Load(); e != nil {
		return 0, "", *e
	}
	return float64(n) / took.Seconds(), used, nil
}
