package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	// outboxBulk rows are committed by one transaction, to see how fast they get out.
	outboxBulk = 100_000
	// outboxSoon is the promise: from the commit until a message is on its way.
	outboxSoon = 100 // ms
)

// outbox is what an application publishes in its own transactions.
type outbox struct {
	url string

	mu        sync.Mutex
	committed []time.Time // by number of the message
}

// publish commits a transaction with some messages. The stamp in a payload is the message's number.
func (o *outbox) publish(ctx context.Context, conn *pgx.Conn, rows int) error {
	o.mu.Lock()
	first := len(o.committed)
	o.committed = append(o.committed, make([]time.Time, rows)...)
	o.mu.Unlock()
	_, err := conn.Exec(ctx, fmt.Sprintf(`SELECT count(pushmesh.publish('room/' || i %% %d, convert_to('@@TS' || lpad(to_hex(i), 16, '0') || repeat('x', %d), 'UTF8')))
		FROM generate_series($1::bigint, $2::bigint) AS i`, topics, payload-20), first, first+rows-1)
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range rows {
		o.committed[first+i] = now
	}
	return err
}

// hold publishes a transaction of some messages every so often, once at least, on each of several
// connections.
func (o *outbox) hold(ctx context.Context, conns, rows int, every, span time.Duration) error {
	return suite.Each(conns, conns, func(_, _ int) error { return o.holdOne(ctx, rows, every, span) })
}

func (o *outbox) holdOne(ctx context.Context, rows int, every, span time.Duration) (err error) {
	defer try.Catch(&err)
	conn := try.Get(pgx.Connect(ctx, o.url))
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for end := time.Now().Add(span); ; <-tick.C {
		if err := o.publish(ctx, conn, rows); err != nil || time.Now().After(end) {
			return err
		}
	}
}

// outbox measures from the commit of an application's transaction until its messages are ACKed by
// their subscribers.
func (b *bench) outbox(ctx context.Context) error {
	span := b.Span / 6
	idle := func(ctx context.Context, m *local.Mesh, o *outbox) error { return b.outboxIdle(ctx, m, o, span/2) }
	if err := b.outboxRow(ctx, "", idle); err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		load func(ctx context.Context, m *local.Mesh, o *outbox) error
	}{
		{"a transaction every 20 ms", func(ctx context.Context, _ *local.Mesh, o *outbox) error {
			return o.hold(ctx, 1, 1, 20*time.Millisecond, span)
		}},
		{"2,000/s in transactions of 10", func(ctx context.Context, _ *local.Mesh, o *outbox) error {
			return o.hold(ctx, 4, 10, 20*time.Millisecond, span)
		}},
		{"2,000/s beside a transaction that commits at the end", func(ctx context.Context, _ *local.Mesh, o *outbox) error {
			return o.beside(ctx, func() error { return o.hold(ctx, 4, 10, 20*time.Millisecond, span) })
		}},
		{fmt.Sprintf("%d at once", outboxBulk), func(ctx context.Context, _ *local.Mesh, o *outbox) error {
			return o.hold(ctx, 1, outboxBulk, time.Nanosecond, time.Nanosecond)
		}},
	} {
		if err := b.outboxRow(ctx, c.name, c.load); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// beside runs a load while a transaction that has published is open, and commits it then.
func (o *outbox) beside(ctx context.Context, load func() error) (err error) {
	defer try.Catch(&err)
	conn := try.Get(pgx.Connect(ctx, o.url))
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	try.Get(conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ"))
	o.mu.Lock()
	late := len(o.committed)
	o.mu.Unlock()
	try.Do(o.publish(ctx, conn, 10))
	try.Do(load())
	_, err = conn.Exec(ctx, "COMMIT")
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range 10 {
		o.committed[late+i] = now
	}
	return err
}

// outboxIdle says what it costs to ask for what isn't there.
func (b *bench) outboxIdle(ctx context.Context, m *local.Mesh, o *outbox, span time.Duration) (err error) {
	defer try.Catch(&err)
	var pid int
	if err := b.DB.Query(ctx, o.url, "SELECT pid FROM pg_stat_activity WHERE application_name = 'pushmesh-outbox'", &pid); err != nil {
		return fmt.Errorf("who reads the outbox: %w", err)
	}
	time.Sleep(time.Second) // after the start
	w := try.Get(suite.Using(suite.Consumer{Name: "outbox", PIDs: []int{pid}}, suite.Of("store", m.Store)))
	began := time.Now()
	time.Sleep(span)
	spent := try.Get(w.Spent())
	share := func(i int) float64 { return 100 * spent[i].Seconds() / time.Since(began).Seconds() }
	b.Add(table.Figure("CPU of the connection that reads an empty outbox, of one core", share(0), "%", fmt.Sprintf("the whole store, idle: %.2f %%", share(1))))
	return nil
}

func (b *bench) outboxRow(ctx context.Context, name string, load func(context.Context, *local.Mesh, *outbox) error) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.mesh(ctx, 1))
	defer func() { err = errors.Join(err, m.end()) }()
	o := &outbox{url: m.url}
	if name == "" {
		return load(ctx, m.Mesh, o)
	}
	subs := try.Get(subscribeAll(ctx, m, names("room", topics)))
	// the first waits until routers trust their tables
	try.Do(o.holdOne(ctx, 1, time.Nanosecond, time.Nanosecond))
	try.Do(await(ctx, subs, 1))
	w := try.Get(b.UsingMesh(m.Mesh))
	began := time.Now()
	try.Do(load(ctx, m.Mesh, o))
	n := len(o.committed) - 1
	came := try.Get(arrivals(ctx, subs, int64(n+1)))
	took := make([]time.Duration, 0, n)
	var last time.Time
	for _, a := range came {
		if i := a.stamp.UnixNano(); i > 0 {
			took = append(took, max(0, a.at.Sub(o.committed[i])))
		}
		if a.at.After(last) {
			last = a.at
		}
	}
	slices.Sort(took)
	used := try.Get(w.Each(int64(n)))
	said := fmt.Sprintf("p50 %s, p99 %s, max %s; %s", ms(took, .5), ms(took, .99), ms(took, 1), used)
	if n == outboxBulk {
		out := last.Sub(o.committed[1]).Seconds()
		b.Add(table.Figure("outbox, "+name+": out after the commit", float64(n)/out, "messages/s",
			fmt.Sprintf("written in %.1f s, out %.1f s after the commit; %s", o.committed[1].Sub(began).Seconds(), out, said)))
		return nil
	}
	b.Add(table.AtMost("outbox, "+name+": commit to ACKed delivery, p99", table.Quantile(took, .99), "ms", outboxSoon, fmt.Sprintf("%d messages; %s", n, said)))
	return nil
}
