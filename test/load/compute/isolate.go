package compute

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/pushmesh/pushmesh/test/load/flow"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// isolation measures an edge beside a compute node that is idle and one that is saturated, in
// turns.
func (b *bench) isolation(what string, workers int, goal float64, by ...string) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		defer try.Catch(&err)
		m := try.Get(b.Dir.StartMesh(ctx, b.Programs, 1))
		defer m.Stop()
		p := try.Get(b.Dir.StartCompute(ctx, b.Programs, "compute-1", by, "--workers", fmt.Sprint(workers)))
		defer local.Stop(p)
		f, took := try.Get2(b.startFeeder(p.Addr, 2*workers))
		defer func() { err = errors.Join(err, f.Dismiss()) }()
		spin := try.Get(b.Hire("spinner", "spin", workers, nil, by...))
		defer func() { err = errors.Join(err, spin.Dismiss()) }()
		done := int64(0)
		i := &isolated{bench: b, edge: m.Edges[0], beside: []besides{
			{start: func() error { return f.Ask("on", nil) }, stop: func() error { return f.Ask("off", &done) }},
			{start: func() error { return spin.Ask("on", nil) }, stop: func() error { return spin.Ask("off", nil) }},
		}}
		try.Do(i.run(ctx, m))
		if done == 0 {
			return errors.New("no job was done meanwhile")
		}
		i.rows("edge beside a saturated compute node, "+what, goal, fmt.Sprintf("; %d jobs of %.0f ms, %d workers", done, took.Seconds()*1000, workers))
		return nil
	}
}

// spare leaves cores to the edge, as far as there are any.
func (b *bench) spare(ctx context.Context) error {
	workers := max(1, runtime.NumCPU()/2)
	return b.isolation(fmt.Sprintf("%d of %d cores to spare", runtime.NumCPU()-workers, runtime.NumCPU()), workers, 1.1)(ctx)
}

// shared has a node with a worker for each core beside everything else, with a priority.
func (b *bench) shared(priority string, goal float64, by ...string) func(context.Context) error {
	return b.isolation(fmt.Sprintf("all on %d cores, %s", runtime.NumCPU(), priority), runtime.NumCPU(), goal, by...)
}

// onLoop has an edge stand still for 200 ms of every second, as it does where its own loops do one
// job a second.
func (b *bench) onLoop(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, 1))
	defer m.Stop()
	stopped := make(chan error, 1)
	var end context.CancelFunc
	i := &isolated{bench: b, edge: m.Edges[0], beside: []besides{{
		start: func() error {
			var stalling context.Context
			stalling, end = context.WithCancel(ctx)
			go func() { stopped <- stall(stalling, m.Edges[0]) }()
			return nil
		},
		stop: func() error { end(); return <-stopped },
	}}}
	try.Do(i.run(ctx, m))
	i.rows("for contrast: edge that does one job of 200 ms a second on its own loops", 0, "; its process is stopped for as long")
	return nil
}

// stall stops a process for isolatedWork every second.
func stall(ctx context.Context, p *local.Process) (err error) {
	defer try.Catch(&err)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		p.Signal(syscall.SIGSTOP)
		time.Sleep(isolatedWork)
		p.Signal(syscall.SIGCONT)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// besides is what is under way beside an edge.
type besides struct{ start, stop func() error }

// isolated is an edge with and without something else under way.
type isolated struct {
	*bench
	edge        *local.Process
	beside      []besides    // what is measured, and, for comparison, loops that spin
	p99         [3][]float64 // without, and with each
	lag99, most [3][]float64
}

func (i *isolated) run(ctx context.Context, m *local.Mesh) (err error) {
	defer try.Catch(&err)
	f := try.Get(flow.Broadcast(ctx, m.Router.Addr, i.edge.Addr, fanTopic, fanSubs, fanRate))
	defer func() { err = errors.Join(err, f.Swarm.Close()) }()
	for range i.isolateRounds {
		for with := range 1 + len(i.beside) {
			try.Do(i.round(ctx, f, with))
		}
	}
	return nil
}

func (i *isolated) round(ctx context.Context, f *flow.Flow, with int) (err error) {
	defer try.Catch(&err)
	if with > 0 {
		try.Do(i.beside[with-1].start())
		defer func() { err = errors.Join(err, i.beside[with-1].stop()) }()
	}
	tail := try.Get(p99(ctx, f, i.isolateSpan))
	l, err := edgeLag(ctx, i.edge)
	i.p99[with], i.lag99[with], i.most[with] = append(i.p99[with], tail), append(i.lag99[with], l.p99), append(i.most[with], l.most)
	return err
}

// rows of the ratios within rounds; goal 0: there is none.
func (i *isolated) rows(what string, goal float64, more string) {
	ratios := table.Ratios(i.p99[1], i.p99[0])
	name := what + ": fan-out p99, as a ratio to without"
	refs := fmt.Sprintf("rounds %s; %.3g ms (%s) and %.3g ms (%s), %d messages/s to %d%s", table.Spread(ratios), table.Median(i.p99[1]), table.Spread(i.p99[1]),
		table.Median(i.p99[0]), table.Spread(i.p99[0]), fanRate, fanSubs, more)
	if len(i.beside) > 1 {
		spun := table.Ratios(i.p99[2], i.p99[0])
		i.Add(table.Figure(what+": by that beside as many loops that spin", table.Median(table.Ratios(i.p99[1], i.p99[2])), "×",
			fmt.Sprintf("rounds %s; beside those %.3g × (%s), %.3g ms", table.Spread(table.Ratios(i.p99[1], i.p99[2])), table.Median(spun), table.Spread(spun), table.Median(i.p99[2]))))
	}
	if goal > 0 {
		i.Add(table.AtMost(name, table.Median(ratios), "×", goal, refs))
	} else {
		i.Add(table.Figure(name, table.Median(ratios), "×", refs))
	}
	i.Add(table.Figure(what+": loop lag p99", table.Median(i.lag99[1]), "ms", fmt.Sprintf("rounds %s, max %s; without %.3g (%s), max %s", table.Spread(i.lag99[1]),
		table.Spread(i.most[1]), table.Median(i.lag99[0]), table.Spread(i.lag99[0]), table.Spread(i.most[0]))))
}
