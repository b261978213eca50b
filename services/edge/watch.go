package edge

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/services/edge/internal/loop"
)

// watch logs where loops are that have not turned for so long that the edge is not ready, once for
// each time that happens, and what held up those that are late, once in watchEvery at most, and
// which of them shed, and when connections are turned away. It is a lifecycle.Part.
type watch struct {
	loops []*loop.Loop
	log   *slog.Logger
	group *lifecycle.Group
}

// watchEvery is how often the loops are looked at.
const watchEvery = time.Second

// mostStacks bounds the memory for the stacks of all goroutines, of which there are few:
// connections have none, but with --poller net, where those of loops, which began before, come
// first.
const mostStacks = 1 << 20

// Start implements lifecycle.Part.
func (w *watch) Start(context.Context) error {
	w.group = lifecycle.NewGroup(context.Background())
	w.group.Go("edge-watch", w.run)
	return nil
}

// Stop implements lifecycle.Part.
func (w *watch) Stop(ctx context.Context) error { return w.group.Stop(ctx) }

// noticed is what the log has been told of a loop.
type noticed struct {
	stalled, shedding, full bool
	warnings, refusals      uint64
	quiet                   int // looks until refusals are told again
}

func (w *watch) run(ctx context.Context) {
	clock := time.NewTicker(watchEvery)
	defer clock.Stop()
	told := make([]noticed, len(w.loops))
	for {
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
		}
		for i, l := range w.loops {
			w.look(i, l, &told[i])
			w.lookAtDoor(i, l.Stats(), &told[i])
		}
	}
}

func (w *watch) look(i int, l *loop.Loop, told *noticed) {
	err := l.Check()
	switch {
	case err != nil && !told.stalled:
		w.log.Error("a loop is stalled", "loop", i, "error", err, "stacks", loopStacks())
	case err == nil && told.stalled:
		w.log.Warn("a loop that was stalled runs again", "loop", i)
	}
	told.stalled = err != nil
	s := l.Stats()
	switch {
	case s.Shedding && !told.shedding:
		w.log.Warn("a loop is late all the time: it refuses new connections and subscriptions", "loop", i, "lag_p50", s.Lag.Recent().P50)
	case !s.Shedding && told.shedding:
		w.log.Info("a loop takes new connections and subscriptions again", "loop", i)
	}
	told.shedding = s.Shedding
	if s.Lag.Warnings > told.warnings {
		w.log.Warn("a loop was blocked", "loop", i, "lag", s.Held.Lag, "times", s.Lag.Warnings-told.warnings, "part", s.Held.Part, "took", s.Held.Took)
		told.warnings = s.Lag.Warnings
	}
}

// refusalsEvery is how many looks lie between two lines about refused addresses.
const refusalsEvery = 60

// lookAtDoor logs that descriptors ran out and are there again, and once a minute which address was
// refused last.
func (w *watch) lookAtDoor(i int, s loop.Stats, told *noticed) {
	switch {
	case s.NoDescriptors && !told.full:
		w.log.Warn("no file descriptor is left for new connections: they wait in the kernel", "loop", i)
	case !s.NoDescriptors && told.full:
		w.log.Info("there are file descriptors again", "loop", i)
	}
	told.full = s.NoDescriptors
	if told.quiet = max(told.quiet-1, 0); told.quiet == 0 && s.AddressRefusals > told.refusals {
		w.log.Warn("connections are refused because of their address", "loop", i, "times", s.AddressRefusals-told.refusals, "last", s.LastRefused, "code", code.Name(s.RefusedFor))
		told.refusals, told.quiet = s.AddressRefusals, refusalsEvery
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
