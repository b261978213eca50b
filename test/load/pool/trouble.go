package pool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	// ephemeralEvery is the pace of the ephemeral publisher whose latency counts.
	ephemeralEvery = 2 * time.Millisecond
	// durable publishers work beside it, one message at a time each.
	durables = 8
	// knownAfter is when the state counts as known: what hangs is noticed within it.
	knownAfter = 3 * time.Second
)

// trouble publishes through router and store while Postgres is held up, hangs, and dies.
func (b *bench) trouble(ctx context.Context) (err error) {
	defer try.Catch(&err)
	programs := b.Programs
	programs.DB = b.pg.URL()
	m := try.Get(b.Dir.StartMesh(ctx, programs, 1))
	defer m.Stop()
	conn := try.Get(suite.Dial(m.Router.Addr))
	defer func() { _ = conn.Close() }()
	d := &traffic{api: pushmeshv1.NewPublishServiceClient(conn)}
	stop := d.start(ctx)
	defer stop()
	for _, f := range []struct {
		name      string
		hit, heal func(context.Context) error
	}{
		{"Postgres hangs", func(context.Context) error { return b.pg.Pause() }, func(context.Context) error { return b.pg.Resume() }},
		{"Postgres is killed", func(context.Context) error { return b.pg.Kill() }, func(context.Context) error { return b.pg.Restart() }},
	} {
		if err := b.fault(ctx, d, f.name, f.hit, f.heal); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return b.asleep(ctx, m, d)
}

// sleepers are calls that use the pool while it is held up, more than it has connections.
const sleepers = 64

// asleep has every connection of the pool wait for a lock: pg_sleep as it happens to applications.
func (b *bench) asleep(ctx context.Context, m *local.Mesh, d *traffic) (err error) {
	defer try.Catch(&err)
	lock := try.Get(pgx.Connect(ctx, b.pg.URL()))
	defer func() { _ = lock.Close(ctx) }()
	conn := try.Get(suite.Dial(m.Store.Addr))
	defer func() { _ = conn.Close() }()
	store := &node{conn: conn, api: meshv1.NewStoreServiceClient(conn)}
	hit := func(ctx context.Context) error {
		if _, err := lock.Exec(ctx, `BEGIN; LOCK TABLE pushmesh.session IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		go load(ctx, sleepers, knownAfter+2*b.Span, func(ctx context.Context, caller int) error {
			err := store.list(ctx, caller)
			if err != nil {
				again := code.From(err).RetryAfter // as it is told to, and not all at the same time
				time.Sleep(again + rand.N(again+1))
			}
			return err
		})
		return nil
	}
	heal := func(ctx context.Context) error {
		_, err := lock.Exec(ctx, `ROLLBACK`)
		return err
	}
	return b.fault(ctx, d, "every connection of the pool waits", hit, heal)
}

func (b *bench) fault(ctx context.Context, d *traffic, name string, hit, heal func(context.Context) error) (err error) {
	defer try.Catch(&err)
	before := d.measure(2 * b.Span)
	if before.durable.ok == 0 {
		return errors.New("no durable publish succeeds before")
	}
	try.Do(hit(ctx))
	d.measure(knownAfter)
	during := d.measure(2 * b.Span)
	healed := time.Now()
	try.Do(heal(ctx))
	back := try.Get(d.back(ctx, healed))
	during2 := fmt.Sprintf("before: %s; during: %s; durable meanwhile: %d answered, %d refused", before.ephemeral, during.ephemeral, during.durable.ok, during.durable.refused)
	ratio := during.ephemeral.tail() / before.ephemeral.tail()
	b.Add(table.AtMost(name+": ephemeral publish p99, of that before", ratio, "x", 1.2, during2))
	if during.durable.refused > 0 {
		b.Add(table.AtMost(name+": durable refusal p99, once known", during.durable.tail(), "ms", 10,
			fmt.Sprintf("p50 %.2f ms, %d without a time to come back", table.Quantile(during.durable.took, 0.5), during.durable.final)))
	}
	b.Add(table.AtMost(name+": durable publishing as before after the database's return", back.Seconds(), "s", 5, ""))
	return nil
}

// traffic publishes all the time.
type traffic struct {
	api pushmeshv1.PublishServiceClient

	mu  sync.Mutex
	now *sample
}

// sample is what was seen in a span, of what began in it: what a fault met half way has an outcome
// that nobody knows at first.
type sample struct {
	since     time.Time
	ephemeral *result
	durable   struct {
		result      // of refusals
		ok, refused int
		final       int // refusals that name no time to come back
	}
}

func newSample() *sample { return &sample{since: time.Now(), ephemeral: &result{}} }

func (d *traffic) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	d.now = newSample()
	var wg sync.WaitGroup
	wg.Go(func() {
		for pace := time.NewTicker(ephemeralEvery); ctx.Err() == nil; <-pace.C {
			begun := time.Now()
			_, err := d.api.Publish(ctx, &pushmeshv1.PublishRequest{Topic: "load/ephemeral", Payload: body})
			d.note(begun, func(s *sample) {
				if err != nil {
					s.ephemeral.failed++
					s.ephemeral.why = err
					return
				}
				s.ephemeral.took = append(s.ephemeral.took, time.Since(begun))
			})
		}
	})
	for i := range durables {
		wg.Go(func() {
			for ctx.Err() == nil {
				d.durable(ctx, i)
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

func (d *traffic) durable(ctx context.Context, i int) {
	begun := time.Now()
	_, err := d.api.Publish(ctx, &pushmeshv1.PublishRequest{Topic: fmt.Sprint("room/", i), Payload: body})
	took := time.Since(begun)
	d.note(begun, func(s *sample) {
		if err == nil {
			s.durable.ok++
			return
		}
		s.durable.refused++
		s.durable.took = append(s.durable.took, took)
		if code.From(err).RetryAfter == 0 {
			s.durable.final++
			s.durable.why = err
		}
	})
	time.Sleep(20 * time.Millisecond) // as many attempts during the outage as before it
}

func (d *traffic) note(begun time.Time, f func(*sample)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if begun.After(d.now.since) {
		f(d.now)
	}
}

// measure what is seen from now on for a span.
func (d *traffic) measure(span time.Duration) *sample {
	d.mu.Lock()
	d.now = newSample()
	d.mu.Unlock()
	time.Sleep(span)
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.now
	d.now = newSample()
	s.ephemeral.rate = float64(len(s.ephemeral.took)) / span.Seconds()
	return s
}

// back waits until durable publishes are answered as before: 50 of them without a refusal.
func (d *traffic) back(ctx context.Context, since time.Time) (time.Duration, error) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline) && ctx.Err() == nil; {
		at := time.Since(since)
		if s := d.measure(200 * time.Millisecond); s.durable.refused == 0 && s.durable.ok >= 40 {
			return at, nil
		}
	}
	return 0, errors.New("durable publishing does not come back within 30 s")
}
