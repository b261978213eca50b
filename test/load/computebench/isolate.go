package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
)

// isolation measures an edge beside a compute node that is idle and one that is saturated, in
// turns.
func (b *bench) isolation(what string, workers int, goal float64, by ...string) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		m, err := b.dir.StartMesh(ctx, b.programs, 1)
		if err != nil {
			return err
		}
		defer m.Stop()
		p, err := b.dir.StartCompute(ctx, b.programs, "compute-1", by, "--workers", fmt.Sprint(workers))
		if err != nil {
			return err
		}
		defer p.Stop()
		f, took, err := b.startFeeder(p.Addr, 2*workers)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.End()) }()
		done := ""
		i := &isolated{bench: b, beside: []besides{{start: orders(f, "on", nil), stop: orders(f, "off", &done)}}}
		spinOn, spinOff, spinEnd, err := b.startSpinner(workers, by)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, spinEnd()) }()
		i.beside = append(i.beside, besides{start: spinOn, stop: spinOff})
		i.lag = func(ctx context.Context) (lag, error) { return edgeLag(ctx, m.Edges[0]) }
		if i.fan, err = dialFan(ctx, m.Router.Addr, m.Edges[0].Addr); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, i.fan.swarm.Close()) }()
		if err := i.run(ctx); err != nil {
			return err
		}
		if done == "0" {
			return errors.New("no job was done meanwhile")
		}
		i.rows("edge beside a saturated compute node, "+what, goal, fmt.Sprintf("; %s jobs of %s, %d workers", done, took, workers))
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

// onLoop has an edge do the job on its own loops, one a second.
func (b *bench) onLoop(ctx context.Context) (err error) {
	m, err := b.dir.StartMesh(ctx, b.programs, 0)
	if err != nil {
		return err
	}
	defer m.Stop()
	e, err := m.StartStallEdge(filepath.Join(b.tools, "edgestall"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.End()) }()
	i := &isolated{bench: b, beside: []besides{{start: orders(e, "on", nil), stop: orders(e, "off", nil)}}, lag: func(ctx context.Context) (l lag, err error) {
		answer, err := e.Order(ctx, "lag")
		if err == nil {
			_, err = fmt.Sscanf(answer, "%f %f", &l.p99, &l.most)
		}
		return l, err
	}}
	if i.fan, err = dialFan(ctx, m.Router.Addr, e.Addr); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.fan.swarm.Close()) }()
	if err := i.run(ctx); err != nil {
		return err
	}
	i.rows("for contrast: edge that does one job of 200 ms a second on its own loops", 0, "")
	return nil
}

// orders has a process carry out a line, and keeps the answer where that is wanted.
func orders(p *local.Ordered, line string, answer *string) func(context.Context) error {
	return func(ctx context.Context) error {
		said, err := p.Order(ctx, line)
		if answer != nil {
			*answer = said
		}
		return err
	}
}

// besides is what is under way beside an edge.
type besides struct{ start, stop func(context.Context) error }

// isolated is an edge with and without something else under way.
type isolated struct {
	*bench
	fan         *fan
	beside      []besides // what is measured, and, for comparison, loops that spin
	lag         func(context.Context) (lag, error)
	p99         [3][]float64 // without, and with each
	lag99, most [3][]float64
}

func (i *isolated) run(ctx context.Context) error {
	for range i.isolateRounds {
		for with := range 1 + len(i.beside) {
			if err := i.round(ctx, with); err != nil {
				return err
			}
		}
	}
	return nil
}

func (i *isolated) round(ctx context.Context, with int) (err error) {
	if with > 0 {
		if err := i.beside[with-1].start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, i.beside[with-1].stop(ctx)) }()
	}
	p99, err := i.fan.p99(ctx, i.isolateSpan)
	if err != nil {
		return err
	}
	l, err := i.lag(ctx)
	i.p99[with], i.lag99[with], i.most[with] = append(i.p99[with], p99), append(i.lag99[with], l.p99), append(i.most[with], l.most)
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
		i.add(table.Figure(what+": by that beside as many loops that spin", table.Median(table.Ratios(i.p99[1], i.p99[2])), "×",
			fmt.Sprintf("rounds %s; beside those %.3g × (%s), %.3g ms", table.Spread(table.Ratios(i.p99[1], i.p99[2])), table.Median(spun), table.Spread(spun), table.Median(i.p99[2]))))
	}
	if goal > 0 {
		i.add(table.AtMost(name, table.Median(ratios), "×", goal, refs))
	} else {
		i.add(table.Figure(name, table.Median(ratios), "×", refs))
	}
	i.add(table.Figure(what+": loop lag p99", table.Median(i.lag99[1]), "ms", fmt.Sprintf("rounds %s, max %s; without %.3g (%s), max %s", table.Spread(i.lag99[1]),
		table.Spread(i.most[1]), table.Median(i.lag99[0]), table.Spread(i.lag99[0]), table.Spread(i.most[0]))))
}
