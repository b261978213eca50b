package promise

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/closing"
)

// offers is what publishers write down. Its order is that of each topic's publisher.
type offers struct {
	mu   sync.Mutex
	last uint64
	all  []*Published
}

// next offer to a topic.
func (o *offers) next(topic string) *Published {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	p := &Published{ID: o.last, Topic: topic}
	o.all = append(o.all, p)
	return p
}

// answered notes an OK.
func (o *offers) answered(p *Published, epoch, seq uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p.Answered, p.Epoch, p.Seq = true, epoch, seq
}

func (o *offers) count() (offered, answered int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.all {
		if p.Answered {
			answered++
		}
	}
	return len(o.all), answered
}

func (o *offers) list() (all []Published) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.all {
		all = append(all, *p)
	}
	return all
}

// publishStream offers rate messages a second to its topics over the SDK's exactly-once producer,
// until ctx ends; then it waits for what is unanswered.
func publishStream(ctx context.Context, o *offers, routers, topics []string, rate int, r *rand.Rand) error {
	producer, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: routers, MaxBackoff: 500 * time.Millisecond})
	if err != nil {
		return err
	}
	const tick = 5 * time.Millisecond
	every := time.NewTicker(tick)
	defer every.Stop()
	for ctx.Err() == nil {
		for range max(1, rate*int(tick)/int(time.Second)) {
			p := o.next(topics[r.IntN(len(topics))])
			// Not ctx: a message is either offered until it is answered or not written down as
			// offered.
			err := producer.PublishAsync(context.WithoutCancel(ctx), pushmesh.Message{Topic: p.Topic, Payload: payload(p.ID)}, func(res pushmesh.Result, err error) {
				if err == nil {
					o.answered(p, res.Epoch, res.Seq)
				}
			})
			if err != nil {
				return fmt.Errorf("publish to %s: %w", p.Topic, err)
			}
		}
		select {
		case <-every.C:
		case <-ctx.Done():
		}
	}
	return closing.Within(producer, settleWithin)
}

// publishUnary offers one message after the other by plain calls, each repeated with its dedupe
// key, to whichever router, until it is answered.
func publishUnary(ctx context.Context, o *offers, routers, topics []string, key string, r *rand.Rand) error {
	var apis []router
	for _, addr := range routers {
		api, err := dial(addr)
		if err != nil {
			return err
		}
		defer func() { _ = api.conn.Close() }()
		apis = append(apis, api)
	}
	for ctx.Err() == nil {
		p := o.next(topics[r.IntN(len(topics))])
		req := &pushmeshv1.PublishRequest{Topic: p.Topic, Payload: payload(p.ID), DedupeKey: fmt.Sprintf("%s-%d", key, p.ID)}
		until, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
		err := insist(until, func(ctx context.Context) error {
			res, err := apis[r.IntN(len(apis))].publish.Publish(ctx, req)
			if err == nil {
				o.answered(p, res.GetEpoch(), res.GetSeq())
			}
			return err
		})
		cancel()
		if err != nil {
			return fmt.Errorf("publish to %s: %w", p.Topic, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(r.IntN(int(5 * time.Millisecond)))):
		}
	}
	return nil
}

// insist repeats a call, each try 5 s at most, until it succeeds or ctx ends.
func insist(ctx context.Context, call func(context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := call(try)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
