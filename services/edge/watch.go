package edge

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/services/edge/internal/loop"
)

// watch logs where loops are that have not turned for so long that the edge is not ready, once for each time that happens, and what held up those that
// are late, once in watchEvery at most, and which of them shed. It is a lifecycle.Part.
type watch struct {
	loops []*loop.Loop
	log   *slog.Logger
	group *lifecycle.Group
}

// watchEvery is how often the loops are looked at.
const watchEvery = time.Second

// mostStacks bounds the memory for the stacks of all goroutines, of which there are few: connections have none, but with --poller net, where those of loops,
// which began before, come first.
const mostStacks = 1 << 20

// Start implements lifecycle.Part.
func (w *watch) Start(context.Context) error {
	w.group = lifecycle.NewGroup(context.Background())
	w.group.Go("edge-watch", w.run)
	return nil
}

// Stop implements lifecycle.Part.
func (w *watch) Stop(ctx context.Context) error { return w.group.Stop(ctx) }

func (w *watch) run(ctx context.Context) {
	clock := time.NewTicker(watchEvery)
	defer clock.Stop()
	stalled, shedding, warned := make([]bool, len(w.loops)), make([]bool, len(w.loops)), make([]uint64, len(w.loops))
	for {
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
		}
		for i, l := range w.loops {
			err := l.Check()
			switch {
			case err != nil && !stalled[i]:
				w.log.Error("a loop is stalled", "loop", i, "error", err, "stacks", loopStacks())
			case err == nil && stalled[i]:
				w.log.Warn("a loop that was stalled turns again", "loop", i)
			}
			stalled[i] = err != nil
			s := l.Stats()
			switch {
			case s.Shedding && !shedding[i]:
				w.log.Warn("a loop is late all the time: it refuses new connections and subscriptions", "loop", i, "lag_p50", s.Lag.Recent().P50)
			case !s.Shedding && shedding[i]:
				w.log.Info("a loop takes new connections and subscriptions again", "loop", i)
			}
			shedding[i] = s.Shedding
			if s.Lag.Warnings > warned[i] {
				w.log.Warn("a loop was held up", "loop", i, "lag", s.Held.Lag, "times", s.Lag.Warnings-warned[i], "part", s.Held.Part, "took", s.Held.Took)
				warned[i] = s.Lag.Warnings
			}
		}
	}
}

// loopStacks are the stacks of all loops: which is whose the runtime does not say.
func loopStacks() string {
	all := make([]byte, mostStacks)
	all = all[:runtime.Stack(all, true)]
	var loops []byte
	for one := range bytes.SplitSeq(all, []byte("\n\n")) {
		if bytes.Contains(one, []byte("loop.(*Loop).run(")) {
			loops = append(append(loops, one...), "\n\n"...)
		}
	}
	return string(loops)
}
