package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/test/load/flow"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	lateSubscribers = 1000
	lateMessages    = 10_000
	lateSize        = 128 // bytes of payload
	lateGoal        = 10  // s
	// Beside them: as many subscribers of a topic with broadcasts.
	liveSubscribers = 1000
	liveRate        = 10
	// readBytes of the log are asked for at a time.
	readBytes = 128 << 10
)

// catchup lets subscribers read on that are behind, beside others that are not.
func (b *bench) catchup(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, 1))
	defer m.Stop()
	live := try.Get(flow.Broadcast(ctx, m.Router.Addr, m.Edges[0].Addr, "room/guard/live", liveSubscribers, liveRate))
	defer func() { err = errors.Join(err, live.Swarm.Close()) }()
	var alone, beside, spans, reads []float64
	for round := range b.Rounds {
		topic := fmt.Sprint("room/guard/late-", round)
		try.Do(fill(ctx, m.Router.Addr, topic, lateMessages, lateSize, 500))
		p99, _ := try.Get2(tail(ctx, live, b.Span))
		alone = append(alone, p99)
		try.Do(b.catchUp(ctx, m, live, topic, &beside, &spans, &reads))
	}
	b.Add(
		table.AtMost(fmt.Sprintf("%d subscribers behind by %d messages are level", lateSubscribers, lateMessages), table.Median(spans), "s", lateGoal, fmt.Sprintf("rounds: %.3g", spans)),
		table.AtMost("the log is read meanwhile", table.Median(reads), "times", 1.5, fmt.Sprintf("ranges of %d KiB that were read, of the bytes that one subscriber got; rounds: %.3g", readBytes>>10, reads)),
		table.AtMost(fmt.Sprintf("p99 of %d live subscribers meanwhile", liveSubscribers), table.Median(beside)/table.Median(alone), "× alone", 1.5,
			fmt.Sprintf("p99 ms alone %.3g, beside %.3g; %d messages/s", alone, beside, liveRate)),
	)
	return nil
}

// catchUp has a crowd subscribe from the beginning while the flow goes on.
func (b *bench) catchUp(ctx context.Context, m *local.Mesh, live *flow.Flow, topic string, beside, spans, reads *[]float64) (err error) {
	defer try.Catch(&err)
	const name = `pushmesh_edge_store_reads_total{for="resume"}`
	before := try.Get(m.Edges[0].Metrics(ctx))
	bytes := 0
	s := try.Get(swarm.New(swarm.Config{
		Addr: m.Edges[0].Addr, Conns: lateSubscribers, First: liveSubscribers, Dialect: &earliest{topic: topic},
		Message: func(conn int, frame []byte) {
			if conn == 0 {
				bytes += len(frame)
			}
		},
	}))
	began, level := time.Now(), make(chan error, 1)
	go func() {
		s.Await(lateMessages)
		for !s.Connected() {
			if err := s.Connect(10); err != nil {
				level <- err
				return
			}
		}
		err := s.Until(20 * time.Second)
		*spans = append(*spans, time.Since(began).Seconds())
		level <- err
	}()
	p99, _, err := tail(ctx, live, b.Span)
	err = errors.Join(err, <-level, s.Close())
	*beside = append(*beside, p99)
	after, figErr := m.Edges[0].Metrics(ctx)
	if bytes > 0 {
		*reads = append(*reads, (after[name]-before[name])*readBytes/float64(bytes))
	}
	return errors.Join(err, figErr)
}
