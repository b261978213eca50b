package router

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// subject is a topic as NATS writes it.
func subject(topic string) string { return strings.ReplaceAll(topic, "/", ".") }

// counting takes orders between turns; turn may wait for a few milliseconds.
func counting(orders <-chan string, say func(any) error, turn func() error, now func() tally, restart func()) (err error) {
	defer try.Catch(&err)
	try.Do(say(tally{}))
	for {
		select {
		case order, ok := <-orders:
			if !ok {
				return nil
			}
			if order == "clear" {
				restart()
			}
			try.Do(say(now()))
		default:
			try.Do(turn())
		}
	}
}

// subscribers are connections to an edge, one for each topic.
func subscribers(ctx context.Context, j *job, orders <-chan string, say func(any) error) (err error) {
	defer try.Catch(&err)
	var t tally
	timed := j.Rate > 0
	t.Took = make([]float64, 0, expected(j))
	s := try.Get(swarm.Dial(ctx, swarm.Config{
		Addr: j.Addr, Addrs: j.Addrs, Alone: true, Conns: len(j.Topics), Dialect: &swarm.Push{Topics: func(n int) []string { return j.Topics[n : n+1] }, HeartbeatMs: swarm.Never},
		Message: func(_ int, frame []byte) {
			if timed {
				if at, ok := publisher.Stamped(frame); ok {
					t.Took = append(t.Took, float64(time.Since(at))/1e3)
				}
			}
		},
	}))
	defer func() { err = errors.Join(err, s.Close()) }()
	turn := func() error {
		before := s.Received()
		err := s.Turn(10 * time.Millisecond)
		if s.Received() > before {
			t.Last = time.Now()
		}
		return err
	}
	now := func() tally {
		t.N = int64(s.Received())
		return t
	}
	return counting(orders, say, turn, now, func() {
		s.Restart()
		t = tally{Took: t.Took[:0]}
	})
}

// expected is how many messages are timed, about.
func expected(j *job) int { return int(j.Rate * (j.Span + time.Second).Seconds()) }

// natsSubscribers are the same of nats-server.
func natsSubscribers(_ context.Context, j *job, orders <-chan string, say func(any) error) (err error) {
	defer try.Catch(&err)
	var mu sync.Mutex
	var t tally
	timed := j.Rate > 0
	for _, topic := range j.Topics {
		c := try.Get(nats.Connect("nats://" + j.Addr))
		defer c.Close()
		sub, err := c.Subscribe(subject(topic), func(m *nats.Msg) {
			mu.Lock()
			defer mu.Unlock()
			t.N++
			t.Last = time.Now()
			if timed {
				if at, ok := publisher.Stamped(m.Data); ok {
					t.Took = append(t.Took, float64(time.Since(at))/1e3)
				}
			}
		})
		if err == nil {
			err = sub.SetPendingLimits(-1, -1)
		}
		try.Do(errors.Join(err, c.FlushTimeout(10*time.Second)))
	}
	turn := func() error { time.Sleep(time.Millisecond); return nil }
	now := func() tally {
		mu.Lock()
		defer mu.Unlock()
		return t
	}
	return counting(orders, say, turn, now, func() {
		mu.Lock()
		defer mu.Unlock()
		t = tally{}
	})
}
