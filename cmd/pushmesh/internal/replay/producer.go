package replay

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
)

// Few messages wait in the producer: those that do make the latency measured longer, and deliveries
// bound what is outstanding anyway.
const producerBuffer = 256

type sdkProducer struct{ *pushmesh.Producer }

// newProducer makes a producer that goes on with another router when one fails.
func (o *Options) newProducer(_ context.Context, addrs []string) (producer, error) {
	p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{
		Addrs: addrs, DialOptions: o.RouterOptions, Buffer: producerBuffer, MaxBackoff: time.Second,
	})
	if err != nil {
		return nil, err
	}
	return sdkProducer{p}, nil
}

func (p sdkProducer) publish(ctx context.Context, topic string, payload []byte, done func(error)) error {
	return p.PublishAsync(ctx, pushmesh.Message{Topic: topic, Payload: payload}, func(_ pushmesh.Result, err error) { done(err) })
}

func (p sdkProducer) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	return p.Close(ctx)
}
