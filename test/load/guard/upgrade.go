package guard

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	upgradeTopics = 100
	// upgradeCalm is how long deliveries are timed before anything is stopped.
	upgradeCalm = 8 * time.Second
	// backWithin is how soon after its GoAway every client must be subscribed again.
	backWithin = 5 * time.Second
	// mostSlower is how much longer deliveries may take while edges change than before.
	mostSlower = 3
)

// NewUpgrade is the suite of what clients notice of an upgrade of all edges.
func NewUpgrade(r *suite.Run) *suite.Suite {
	b := &bench{Run: r}
	from := ""
	return &suite.Suite{
		Timeout: 5 * time.Minute, Swarms: true,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&b.conns, "conns", 10_000, "clients")
			f.StringVar(&from, "from", "", "the pushmesh binary that edges run before the upgrade; \"\": the same as after it")
		},
		Check: func() error {
			if b.conns < 200 {
				return errors.New("-conns is 200 at least")
			}
			return nil
		},
		Parts: func() []suite.Part {
			return []suite.Part{{Name: "upgrade", Run: func(ctx context.Context) error { return b.upgrade(ctx, from) }}}
		},
	}
}

// upgrade replaces two edges, one after the other, by those of this version, and watches their
// clients go there and back.
func (b *bench) upgrade(ctx context.Context, from string) (err error) {
	defer try.Catch(&err)
	b.Programs.EdgesFrom = from
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, 2, "--drain", "40s", "--grace", "60s", "--drain-pace", "250"))
	defer m.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	topics := make([]string, upgradeTopics)
	for i := range topics {
		topics[i] = fmt.Sprint("room/upgrade/", i)
	}
	var all []*mover
	for i, e := range m.Edges {
		all = append(all, try.Get(movers(ctx, e.Addr, i*b.conns/2, (i+1)*b.conns/2, func(n int) string { return topics[n%upgradeTopics] }))...)
	}
	stop := publishing(ctx, m.Router.Addr, topics)
	var wg sync.WaitGroup
	failed := make(chan error, len(all)) // of clients that could not go on
	for _, c := range all {
		c.knows, c.timed = []string{m.Edges[0].Addr, m.Edges[1].Addr}, true
		c.moved.Store(true)
		wg.Go(func() {
			if err := c.follow(ctx); err != nil {
				failed <- err
			}
		})
	}
	select {
	case <-time.After(upgradeCalm):
	case <-ctx.Done():
		return ctx.Err()
	}
	began := time.Now()
	for _, e := range m.Edges {
		try.Do(replace(ctx, e, filepath.Join(b.Programs.Bin, "edge"), from != ""))
		try.Do(settled(ctx, all, failed))
	}
	took := time.Since(began)
	missing := missed(ctx, all, try.Get(stop()))
	cancel()
	wg.Wait()
	b.upgradeRows(all, began, took, missing)
	return first(failed)
}

// settled waits until every client is subscribed, as an operator does before the next edge.
func settled(ctx context.Context, all []*mover, failed <-chan error) error {
	err := suite.Poll(ctx, time.Minute, func() error {
		if here := count(all, func(c *mover) bool { return c.moved.Load() }); here < len(all) {
			return fmt.Errorf("%d of %d clients are subscribed", here, len(all))
		}
		return nil
	})
	return errors.Join(err, first(failed))
}

// first is what the first client said that failed, and how many did.
func first(failed <-chan error) error {
	if n := len(failed); n > 0 {
		return fmt.Errorf("%d clients could not go on; the first: %w", n, <-failed)
	}
	return nil
}

// replace stops an edge as planned and starts it from another binary. named: the one before was
// told, as its first argument, that it is an edge.
func replace(ctx context.Context, e *local.Process, path string, named bool) (err error) {
	defer try.Catch(&err)
	try.Do(e.Stop(time.Minute))
	if e.Path = path; named {
		e.Args = e.Args[1:]
	}
	try.Do(e.Start())
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return e.Ready(within)
}

func (b *bench) upgradeRows(all []*mover, began time.Time, took time.Duration, missing int) {
	again, holes := 0, 0
	var gaps, calm, moving []time.Duration
	for _, c := range all {
		again, holes, gaps = again+c.again, holes+c.holes, append(gaps, c.gaps...)
		for _, d := range c.took {
			if d.at.Before(began) {
				calm = append(calm, d.after)
			} else {
				moving = append(moving, d.after)
			}
		}
	}
	name := fmt.Sprintf("upgrade of 2 edges, %d clients: ", len(all))
	before := table.Quantile(calm, 0.99)
	b.Add(
		table.Figure(name+"until both are replaced", took.Seconds(), "s", fmt.Sprintf("%d times a client was sent on", len(gaps))),
		table.AtMost(name+"from GoAway to subscribed elsewhere, the longest", table.Quantile(gaps, 1)/1000, "s", backWithin.Seconds(),
			fmt.Sprintf("median %.0f ms, p99 %.0f ms", table.Quantile(gaps, 0.5), table.Quantile(gaps, 0.99))),
		table.AtMost(name+"with a durable message missing or out of order", float64(missing+holes), "", 0, ""),
		table.AtMost(name+"p99 of deliveries to who is connected", table.Quantile(moving, 0.99), "ms", mostSlower*before, fmt.Sprintf("%.3g ms in calm", before)),
		table.Figure(name+"tries that failed", float64(again), "", ""),
	)
}

// delivery is one that was timed: when it came, and how long after it was published.
type delivery struct {
	at    time.Time
	after time.Duration
}

// follow goes where each GoAway says, until ctx ends. The connection that is read is closed then.
func (m *mover) follow(ctx context.Context) error {
	var conn atomic.Pointer[func()]
	hold := func() {
		here := m.conn
		end := func() { _ = here.Close() }
		conn.Store(&end)
	}
	hold()
	stop := context.AfterFunc(ctx, func() { (*conn.Load())() })
	defer stop()
	for {
		g, err := m.read()
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			m.moved.Store(false)
			err = m.move(ctx, g)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		m.moved.Store(true)
		m.gaps = append(m.gaps, m.gap)
		if hold(); ctx.Err() != nil { // it ended before
			_ = m.conn.Close()
		}
	}
}
