package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/test/load/firehose"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	payload = 256 // bytes
	topics  = 64
)

// mesh of processes on a database of its own.
type mesh struct {
	*local.Mesh
	url string
	end func() error
}

// mesh starts one.
func (b *bench) mesh(ctx context.Context, edges int) (*mesh, error) {
	return b.meshOf(ctx, b.Programs, edges)
}

func (b *bench) meshOf(ctx context.Context, prog local.Programs, edges int) (m *mesh, err error) {
	defer try.Catch(&err)
	prog.DB = try.Get(b.DB.Fresh())
	drop := func() error { return b.DB.Drop(context.WithoutCancel(ctx), prog.DB) }
	started, err := b.Dir.StartMesh(ctx, prog, edges)
	if err != nil {
		return nil, errors.Join(err, drop())
	}
	return &mesh{started, prog.DB, func() error { started.Stop(); return drop() }}, nil
}

func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s/%d", prefix, i)
	}
	return all
}

// flood is a load of several hoses.
type flood struct {
	hoses []*firehose.Hose
}

func dialFlood(ctx context.Context, n int, cfg firehose.Config) (_ *flood, err error) {
	defer try.Catch(&err)
	f := &flood{}
	for range n {
		h := try.Get(firehose.Dial(ctx, cfg))
		f.hoses = append(f.hoses, h)
	}
	return f, nil
}

func (f *flood) answered() (n int64) {
	for _, h := range f.hoses {
		n += h.Answered()
	}
	return n
}

func (f *flood) refused() (n int64) {
	for _, h := range f.hoses {
		n += h.Refused()
	}
	return n
}

// run holds the load and returns how long the frames took.
func (f *flood) run(ctx context.Context, span time.Duration) ([]time.Duration, error) {
	took := make([][]time.Duration, len(f.hoses))
	err := suite.Each(len(f.hoses), len(f.hoses), func(_, i int) (err error) {
		took[i], err = f.hoses[i].Run(ctx, span)
		return err
	})
	return slices.Concat(took...), err
}

// durable publishes as fast as answers come, with a checkpoint in the middle.
func (b *bench) durable(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.mesh(ctx, 0))
	defer func() { err = errors.Join(err, m.end()) }()
	f := try.Get(dialFlood(ctx, b.streams, firehose.Config{Addr: m.Router.Addr, Topics: names("room", b.frame), Size: payload, Window: b.window}))
	usage := try.Get(b.UsingMesh(m.Mesh))
	c := b.checkpointIn(ctx, b.Span/2)
	profiled := b.Profiles(ctx, "durable", 5, m.Router, m.Store)
	began := time.Now()
	stop := slowest(f.answered)
	took, err := f.run(ctx, b.Span)
	lowest := stop()
	span := time.Since(began)
	n := f.answered()
	used, usedErr := usage.Each(n)
	checkpoint, faultErr := c.end()
	try.Do(errors.Join(err, usedErr, faultErr, profiled()))
	var stored int64
	try.Do(b.DB.Query(ctx, m.url, "SELECT coalesce(sum(last_seq - first_seq + 1), 0) FROM pushmesh.log", &stored))
	if stored != n+1 { // the mesh's own first one
		return fmt.Errorf("%d messages were answered, %d are in the database", n, stored)
	}
	b.Add(table.AtLeast(fmt.Sprintf("durable publish, 256 B, %d topics, %.0f s across a checkpoint", b.frame, b.Span.Seconds()), float64(n)/span.Seconds(), "messages/s", 100_000,
		fmt.Sprintf("first mark 50,000; %.0f s, %d refused; slowest second %d; answers p50 %s p99 %s; checkpoint took %s; %s",
			span.Seconds(), f.refused(), lowest, ms(took, .5), ms(took, .99), checkpoint, used)))
	return nil
}

// slowest watches a count; stop says by how much it grew in the second in which it grew least.
func slowest(count func() int64) (stop func() int64) {
	found, quit := make(chan int64, 1), make(chan struct{})
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		least, last := int64(-1), count()
		for {
			select {
			case <-quit:
				found <- least
				return
			case <-tick.C:
				now := count()
				if least < 0 || now-last < least {
					least = now - last
				}
				last = now
			}
		}
	}()
	return func() int64 {
		close(quit)
		return <-found
	}
}

// ms is a quantile for people.
func ms(took []time.Duration, q float64) string {
	return fmt.Sprintf("%.2f ms", table.Quantile(took, q))
}
