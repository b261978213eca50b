package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// producer publishes in order, each message once, whatever happens to routers meanwhile.
type producer interface {
	// publish hands a message over; done is told, once, when it is on disk or refused for good.
	publish(ctx context.Context, topic string, payload []byte, done func(error)) error
	close() error
}

// openProducers makes one producer a router; each knows the others for failover.
func (p *player) openProducers(ctx context.Context) error {
	for i := range p.opts.Routers {
		addrs := slices.Concat(p.opts.Routers[i:], p.opts.Routers[:i])
		made, err := p.opts.dial(ctx, addrs)
		if err != nil {
			return errors.Join(fmt.Errorf("producer: %w", err), p.closeProducers())
		}
		p.producer = append(p.producer, made)
	}
	return nil
}

func (p *player) closeProducers() error {
	var errs []error
	for _, pr := range p.producer {
		errs = append(errs, pr.close())
	}
	p.producer = nil
	return errors.Join(errs...)
}

// publish publishes the wave's says in file order, a room always by the same producer, at the pace
// asked for, and no further ahead of the deliveries than allowed.
func (p *player) publish(ctx context.Context, w *wave, base uint64, fail func(error)) error {
	began := time.Now()
	var due []time.Duration
	if p.opts.Speed > 0 {
		due = offsets(w.says)
	}
	done := func(err error) {
		if err != nil {
			fail(fmt.Errorf("publish: %w", err))
			return
		}
		p.meter.published.Add(1)
	}
	var owed uint64 // deliveries that the says published so far come to
	for i := range w.says {
		say := &w.says[i]
		if due != nil {
			if err := until(ctx, began.Add(time.Duration(float64(due[i])/p.opts.Speed))); err != nil {
				return err
			}
		}
		err := p.await(ctx, func() bool { return owed < p.meter.delivered.Load()-base+uint64(p.opts.Ahead) })
		if err != nil {
			return err
		}
		m := mark{run: p.run, room: uint32(say.Room), index: uint32(say.Index), sent: time.Now().UnixNano()}
		payload, err := m.payload(say.User, say.Text)
		if err != nil {
			return err
		}
		if err := p.producer[say.Room%len(p.producer)].publish(ctx, p.topics[say.Room], payload, done); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("publish: %w", err)
		}
		owed += uint64(p.script.Rooms[say.Room].Users)
	}
	return nil
}

func until(ctx context.Context, at time.Time) error {
	wait := time.Until(at)
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitExtra looks for messages that the log holds beyond what the script says: a say that was
// published twice would arrive after everything expected has, and must not be missed by leaving
// early.
func (p *player) awaitExtra(ctx context.Context, w *wave) error {
	heads, err := p.heads(ctx, w)
	if err != nil {
		return fmt.Errorf("heads: %w", err)
	}
	var extra uint64
	for i, room := range w.rooms {
		says := uint64(p.script.Rooms[room].Says)
		if h := heads[i].GetSeq(); p.ownTopics && h > says {
			extra += (h - says) * uint64(p.script.Rooms[room].Users)
			p.say("the log of %s holds %d messages, %d were published", p.topics[room], h, says)
		}
	}
	p.extra += extra
	return p.await(ctx, func() bool { return p.meter.duplicate.Load() >= p.extra })
}

// heads asks the routers in turn for the heads of the wave's topics, until one answers.
func (p *player) heads(ctx context.Context, w *wave) ([]*pushmeshv1.TopicHead, error) {
	topics := make([]string, len(w.rooms))
	for i, room := range w.rooms {
		topics[i] = p.topics[room]
	}
	for try := 0; ; try++ {
		heads, err := askHeads(ctx, p.opts.Routers[try%len(p.opts.Routers)], p.opts.RouterOptions, topics)
		if err == nil && len(heads) != len(topics) {
			err = fmt.Errorf("%d heads of %d topics", len(heads), len(topics))
		}
		if err == nil || ctx.Err() != nil || try > 20 {
			return heads, err
		}
		if err := until(ctx, time.Now().Add(500*time.Millisecond)); err != nil {
			return nil, err
		}
	}
}

func askHeads(ctx context.Context, router string, dial []grpc.DialOption, topics []string) ([]*pushmeshv1.TopicHead, error) {
	conn, err := grpc.NewClient(router, dial...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := pushmeshv1.NewHistoryServiceClient(conn).Head(ctx, &pushmeshv1.HeadRequest{Topics: topics})
	return answer.GetHeads(), errors.Join(err, conn.Close())
}
