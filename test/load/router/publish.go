package router

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/load/firehose"
	"github.com/pushmesh/pushmesh/test/load/flow"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// publishing says ready, waits for the order to go, and says what was published.
func publishing(orders <-chan string, say func(any) error, publish func() (tally, error)) (err error) {
	defer try.Catch(&err)
	try.Do(say(tally{}))
	if _, ok := <-orders; !ok {
		return nil
	}
	t := try.Get(publish())
	try.Do(say(t))
	<-orders // the end
	return nil
}

// hose publishes over one stream with hardly any work of its own.
func hose(ctx context.Context, j *job, orders <-chan string, say func(any) error) (err error) {
	defer try.Catch(&err)
	h := try.Get(firehose.Dial(ctx, firehose.Config{Addr: j.Addr, Topics: j.Topics, Size: j.Size, Window: j.Frames}))
	return publishing(orders, say, func() (tally, error) {
		_, err := h.Run(ctx, j.Span)
		return tally{N: h.Answered(), Refused: h.Refused()}, err
	})
}

// sdk publishes with the Go SDK's producer.
func sdk(ctx context.Context, j *job, orders <-chan string, say func(any) error) (err error) {
	defer try.Catch(&err)
	p := try.Get(pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: []string{j.Addr}, Buffer: j.Frames * len(j.Topics)}))
	defer func() { _ = closing.Close(p) }()
	try.Get(p.Publish(ctx, pushmesh.Message{Topic: "sdk/connected", Ephemeral: true}))
	return publishing(orders, say, func() (tally, error) {
		var published, failed atomic.Int64
		payload := make([]byte, j.Size)
		done := func(_ pushmesh.Result, err error) {
			if err != nil {
				failed.Add(1)
				return
			}
			published.Add(1)
		}
		for end := time.Now().Add(j.Span); time.Now().Before(end); {
			for _, t := range j.Topics {
				if err := p.PublishAsync(ctx, pushmesh.Message{Topic: t, Payload: payload, Ephemeral: true}, done); err != nil {
					return tally{}, err
				}
			}
		}
		err := p.Flush(ctx)
		return tally{N: published.Load(), Refused: failed.Load()}, err
	})
}

// due publishes over one stream when messages are due, whatever became of those before.
func due(ctx context.Context, j *job, orders <-chan string, say func(any) error) (err error) {
	defer try.Catch(&err)
	d := try.Get(firehose.NewDrip(ctx, j.Addr, j.Topics, j.Size))
	defer func() { err = errors.Join(err, d.Close()) }()
	return publishing(orders, say, func() (tally, error) {
		var at time.Time
		stamp := func(payload []byte) { publisher.Stamp(payload, at) }
		n, err := j.pace(ctx, flow.Raw, func(topic int, due time.Time) error {
			at = due
			return errors.Join(d.Poll(), d.Publish(topic, stamp))
		})
		return tally{N: n}, errors.Join(err, d.Wait(ctx))
	})
}

// dueFrames publishes a frame with a message for every topic when it is due.
func dueFrames(ctx context.Context, j *job, orders <-chan string, say func(any) error) (err error) {
	defer try.Catch(&err)
	p := try.Get(publisher.New(ctx, j.Addr, "", j.Size))
	defer func() { _ = p.Close() }()
	each := *j
	each.Rate /= float64(len(j.Topics))
	return publishing(orders, say, func() (tally, error) {
		n, err := each.pace(ctx, flow.Yield, func(_ int, at time.Time) error { return p.PublishTo(j.Topics, at) })
		return tally{N: n * int64(len(j.Topics))}, errors.Join(err, p.Wait(ctx))
	})
}

// pace calls publish for one topic after the other when each message is due.
func (j *job) pace(ctx context.Context, sleep func(*unix.Timespec), publish func(topic int, at time.Time) error) (n int64, err error) {
	total := int(j.Rate * j.Span.Seconds())
	return int64(total), flow.Due(ctx, total, j.Rate, sleep, func(n int, at time.Time) error { return publish(n%len(j.Topics), at) })
}

// natsPublisher publishes to nats-server alone, when messages are due or as fast as the server's
// flow control lets it.
func natsPublisher(ctx context.Context, j *job, orders <-chan string, say func(any) error) (err error) {
	defer try.Catch(&err)
	c := try.Get(nats.Connect("nats://" + j.Addr))
	defer c.Close()
	payload := make([]byte, j.Size)
	subjects := make([]string, len(j.Topics))
	for i, t := range j.Topics {
		subjects[i] = subject(t)
	}
	return publishing(orders, say, func() (_ tally, err error) {
		defer try.Catch(&err)
		if j.Frames == 0 {
			n, err := j.pace(ctx, flow.Yield, func(topic int, at time.Time) error {
				publisher.Stamp(payload, at)
				return c.Publish(subjects[topic], payload)
			})
			return tally{N: n}, errors.Join(err, c.FlushTimeout(10*time.Second))
		}
		n := int64(0)
		for end := time.Now().Add(j.Span); time.Now().Before(end); {
			for range j.Frames {
				for _, s := range subjects {
					try.Do(c.Publish(s, payload))
					n++
				}
			}
			// what was published is out of the server's reader
			try.Do(c.FlushTimeout(10 * time.Second))
		}
		return tally{N: n}, nil
	})
}
