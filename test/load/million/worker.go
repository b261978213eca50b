package million

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// job of a worker: connections of one edge.
type job struct {
	Addr  string
	First int // number of the first connection
	Conns int
	From  [3][4]byte // source addresses, in turns
	// Every is how many connections share one that also has a topic of its own.
	Every int
}

const (
	everyone = "global/million"
	ownTopic = "user/%d/million"
)

// topics that connection n subscribes to.
func (j *job) topics(n int) []string {
	if n%j.Every == 0 {
		return []string{everyone, fmt.Sprintf(ownTopic, n)}
	}
	return []string{everyone}
}

// A worker is told:
//
//	connect         answered with the number of connections
//	clear           deliveries so far are forgotten, and from now on are read as soon as they come
//	report          answered with a tally
//	rest            what comes is read when pings are due
//
// In between it keeps its connections alive.
type worker struct {
	*job
	swarm *swarm.Swarm
	tally tally
	last  time.Time
	alert bool // between clear and rest
}

// beatEvery is how often a worker wakes to send the pings that are due and to read what has come.
// Fifty workers that woke for every answer to a ping would keep the machine busier than all else
// together.
const beatEvery = 100 * time.Millisecond

// gather is how long an alert worker that has read something lets more come, for the same reason:
// deliveries may be timed as much too late.
const gather = 5 * time.Millisecond

// tally is what came since clear.
type tally struct {
	Deliveries  int
	Connections int       // that got at least one message
	Last        time.Time // when the last came
	Took        []float64 // ms from publishing to delivery: of unicasts all, of a broadcast some
	Pongs       uint64
}

// sampled is of how many deliveries of a broadcast one is timed.
const sampled = 16

func work(ctx context.Context, arg []byte, orders <-chan string, say func(any) error) (err error) {
	defer try.Catch(&err)
	w := &worker{job: &job{}}
	if err := json.Unmarshal(arg, w.job); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	w.swarm = try.Get(swarm.New(swarm.Config{
		Addr: w.Addr, Conns: w.Conns, First: w.First, Heartbeat: heartbeat, Message: w.message,
		Dialect: &swarm.Push{Topics: w.topics, HeartbeatMs: uint32(heartbeat.Milliseconds())},
		From:    func(n int) [4]byte { return w.From[n%len(w.From)] },
	}))
	return errors.Join(say("ready"), w.serve(ctx, orders, say), w.swarm.Close())
}

// serve obeys orders until there are no more.
func (w *worker) serve(ctx context.Context, orders <-chan string, say func(any) error) error {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	now := make(chan time.Time)
	close(now)
	var read <-chan time.Time // may be read from when the next turn is due, besides beat
	for {
		var err error
		select {
		case order, ok := <-orders:
			if !ok {
				return nil
			}
			err = w.obey(ctx, order, say)
			if read = nil; w.alert {
				read = now
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-beat.C:
			err = errors.Join(w.swarm.Beat(time.Now()), w.swarm.Drain())
		case <-read:
			before := w.swarm.Received()
			err = w.swarm.Turn(beatEvery / 5)
			if read = now; w.swarm.Received() > before {
				read = time.After(gather)
			}
		}
		if err != nil {
			return err
		}
	}
}

func (w *worker) message(_ int, frame []byte) {
	w.tally.Deliveries++
	if w.tally.Deliveries%sampled == 1 || strings.Contains(string(frame[:min(len(frame), 32)]), "user/") {
		if at, ok := publisher.Stamped(frame); ok {
			w.tally.Took = append(w.tally.Took, float64(time.Since(at))/float64(time.Millisecond))
		}
	}
	w.last = time.Now()
}

func (w *worker) obey(ctx context.Context, order string, say func(any) error) error {
	switch order {
	case "connect":
		for !w.swarm.Connected() && ctx.Err() == nil {
			if err := errors.Join(w.swarm.Connect(20), w.swarm.Beat(time.Now())); err != nil {
				return err
			}
		}
		return say(w.swarm.Subscribed())
	case "clear":
		w.tally, w.last = tally{}, time.Time{}
		w.alert = true
		w.swarm.Restart()
		w.swarm.Await(1)
		return say("ok")
	case "rest":
		w.alert = false
		return say("ok")
	case "report":
		w.tally.Connections, w.tally.Last, w.tally.Pongs = w.Conns-w.swarm.Missing(), w.last, w.swarm.Pongs()
		return say(w.tally)
	}
	return fmt.Errorf("no such order: %q", order)
}
