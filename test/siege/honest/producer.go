package honest

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// stampSize is the bytes of a payload's time, payloadSize those of a payload.
const (
	stampSize   = 8
	payloadSize = 128
)

// producer publishes to the topics of a kind in turns, each message when it is due. What is durable
// is sent again, with its dedupe key, until it is answered OK.
type producer struct {
	crowd   *Crowd
	durable bool
	rate    float64
	calls   sync.WaitGroup

	mu     sync.Mutex
	stored map[string]uint64 // highest seq answered, by topic
}

func newProducer(c *Crowd, durable bool, rate float64) *producer {
	return &producer{crowd: c, durable: durable, rate: rate, stored: map[string]uint64{}}
}

func (p *producer) run(ctx context.Context) {
	defer p.calls.Wait()
	began := time.Now()
	for n := 0; ; n++ {
		due := began.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
		} else if ctx.Err() != nil {
			return
		}
		p.calls.Go(func() { p.publish(n, due) })
	}
}

// giveUp is how long a durable message is tried.
const giveUp = 2 * time.Minute

// publish sends one message, whoever ends meanwhile.
func (p *producer) publish(n int, due time.Time) {
	topic := LiveTopic(n % p.crowd.cfg.Topics)
	req := &pushmeshv1.PublishRequest{Payload: make([]byte, payloadSize)}
	binary.BigEndian.PutUint64(req.GetPayload(), uint64(due.UnixNano()))
	if p.durable {
		topic = DurableTopic(n % p.crowd.cfg.Topics)
		req.DedupeKey = fmt.Sprintf("%d-%d", n, due.UnixNano())
	}
	req.Topic = topic
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "authorization", fmt.Sprintf("Bearer honest-%t", p.durable)), giveUp)
	defer cancel()
	end := func(bool) {}
	if p.durable {
		end = p.crowd.begin(Publish, due)
	}
	for {
		res, err := pushmeshv1.NewPublishServiceClient(p.crowd.conn).Publish(ctx, req)
		if err == nil {
			if end(true); p.durable {
				p.note(topic, res.GetSeq())
			}
			return
		}
		p.crowd.refused.Add(1)
		if !p.durable || ctx.Err() != nil || !code.Retryable(code.Of(err)) {
			end(false)
			return
		}
		<-time.After(max(again, code.From(err).RetryAfter))
	}
}

func (p *producer) note(topic string, seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stored[topic] = max(p.stored[topic], seq)
}

// heads are the highest seqs that were answered.
func (p *producer) heads() map[string]uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.stored)
}
