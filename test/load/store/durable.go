package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/test/load/firehose"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	payload = 256 // bytes
	topics  = 64
)

// mesh of processes on a database of its own.
func (b *bench) mesh(ctx context.Context, edges int, edgeArgs ...string) (m *local.Mesh, url string, end func() error, err error) {
	return b.meshOf(ctx, b.Programs, edges, edgeArgs...)
}

func (b *bench) meshOf(ctx context.Context, prog local.Programs, edges int, edgeArgs ...string) (m *local.Mesh, url string, end func() error, err error) {
	if url, err = b.DB.Fresh(); err != nil {
		return nil, "", nil, err
	}
	prog.DB = url
	if m, err = b.Dir.StartMesh(ctx, prog, edges, edgeArgs...); err != nil {
		return nil, "", nil, errors.Join(err, b.DB.Drop(ctx, url))
	}
	return m, url, func() error {
		m.Stop()
		return b.DB.Drop(context.WithoutCancel(ctx), url)
	}, nil
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

func dialFlood(ctx context.Context, n int, cfg firehose.Config) (*flood, error) {
	f := &flood{}
	for range n {
		h, err := firehose.Dial(ctx, cfg)
		if err != nil {
			return nil, err
		}
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

// run holds the load and returns how long the frames took, sorted.
func (f *flood) run(ctx context.Context, span time.Duration) ([]time.Duration, error) {
	type outcome struct {
		took []time.Duration
		err  error
	}
	done := make(chan outcome, len(f.hoses))
	for _, h := range f.hoses {
		go func() {
			took, err := h.Run(ctx, span)
			done <- outcome{took, err}
		}()
	}
	var all []time.Duration
	var err error
	for range f.hoses {
		o := <-done
		all = append(all, o.took...)
		err = errors.Join(err, o.err)
	}
	slices.Sort(all)
	return all, err
}

// durable publishes as fast as answers come, with a checkpoint in the middle.
func (b *bench) durable(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m, url, end, err := b.mesh(ctx, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	f := try.Get(dialFlood(ctx, b.streams, firehose.Config{Addr: m.Router.Addr, Topics: names("room", b.frame), Size: payload, Window: b.window}))
	usage := try.Get(b.UsingMesh(m))
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
	stored := try.Get(messages(ctx, url))
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

// messages in a database's log.
func messages(ctx context.Context, url string) (n int64, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, "SELECT coalesce(sum(last_seq - first_seq + 1), 0) FROM pushmesh.log").Scan(&n)
	return n, err
}

// ms is a quantile for people.
func ms(took []time.Duration, q float64) string {
	return fmt.Sprintf("%.2f ms", table.Quantile(took, q))
}
