package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// healsWithin is how soon everything must work again by itself once Postgres does.
const healsWithin = 5 * time.Second

// soon runs an outage, which says how long after its end everything worked again. The machine may
// stand still meanwhile: the best of several counts.
func soon(t *testing.T, outage func() time.Duration) {
	t.Helper()
	best := time.Hour
	for tries := 0; tries < 5 && best > healsWithin; tries++ {
		best = min(best, outage())
	}
	if best > healsWithin {
		t.Errorf("everything worked again only %s after Postgres did", best)
	}
}

func need(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func owner(id string) backend.Owner {
	return backend.Owner{StoreID: id, Incarnation: 1, Address: id + ":1"}
}

func now() uint64 { return uint64(time.Now().UnixMicro()) }

func batchID() (id backend.BatchID) {
	_, _ = rand.Read(id[:])
	return id
}

// batch holds message number n of topic "x", alone.
func batch(shard int, epoch, n uint64) *backend.Batch {
	at := now()
	return &backend.Batch{
		ID: batchID(), At: at, Commits: []backend.Commit{{Shard: shard, Number: n}},
		Runs: []backend.Run{{Shard: shard, Commit: n, Topic: "x", Epoch: epoch, First: n, N: 1, At: at, Class: backend.Day, Packed: []byte{byte(n)}}},
	}
}

// heads is a Loader that keeps each shard's epoch and last commit.
type heads struct{ epoch, commit map[int]uint64 }

func (h *heads) LoadShard(s backend.Shard)     { h.epoch[s.Shard], h.commit[s.Shard] = s.Epoch, s.Commit }
func (h *heads) LoadTopic(backend.Topic)       {}
func (h *heads) LoadProducer(backend.Producer) {}
func (h *heads) LoadCovered(backend.Run)       {}
func (h *heads) LoadMark(backend.Mark)         {}
func (h *heads) LoadKept(backend.Kept)         {}
func (h *heads) LoadRun(r backend.Run)         { h.commit[r.Shard] = max(h.commit[r.Shard], r.Commit) }

// writerOf opens a writer that owns one shard, trying until ctx ends.
func writerOf(ctx context.Context, d *DB, id string, shard int) (backend.Writer, *heads, error) {
	h := &heads{map[int]uint64{}, map[int]uint64{}}
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		w, err := d.OpenWriter(ctx, owner(id))
		if err == nil {
			var got []int
			if got, err = w.TakeShards(ctx, []int{shard}); err == nil && len(got) == 1 {
				if err = w.Load(ctx, got, h); err == nil {
					return w, h, nil
				}
			}
			_ = w.Close()
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			return nil, nil, errors.Join(ctx.Err(), err)
		}
	}
}

// appender appends one message after the other to shard 3, over whatever happens, and notes what
// was acknowledged.
type appender struct {
	db *DB

	mu     sync.Mutex
	acked  uint64    // the last number
	at     time.Time // when
	faults []error
	more   chan struct{} // closed at the next change
}

func (a *appender) note(n uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.faults = append(a.faults, err)
	} else {
		a.acked, a.at = n, time.Now()
	}
	close(a.more)
	a.more = make(chan struct{})
}

// forget the faults so far.
func (a *appender) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = nil
}

// until waits for cond of what was noted.
func (a *appender) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(backendtest.Patience)
	for {
		a.mu.Lock()
		ok, more := cond(), a.more
		a.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-more:
		case <-deadline:
			a.mu.Lock()
			defer a.mu.Unlock()
			t.Fatalf("never: %s; acked %d, faults %v", what, a.acked, a.faults)
		}
	}
}

// run appends until ctx ends, as a store would: a writer that is lost is replaced, an unknown
// outcome is looked up.
func (a *appender) run(ctx context.Context) error {
	var w backend.Writer
	var h *heads
	var unknown *backend.Batch
	for ctx.Err() == nil {
		if w == nil {
			var err error
			if w, h, err = writerOf(ctx, a.db, "a", 3); err != nil {
				return nil
			}
			if unknown != nil {
				yes, err := w.Committed(ctx, unknown.ID)
				if err != nil {
					_ = w.Close()
					w = nil
					continue
				}
				n := unknown.Commits[0].Number
				if yes != (h.commit[3] >= n) {
					return errors.New("the batch's id and the log disagree")
				}
				if unknown = nil; yes {
					a.note(n, nil)
				}
			}
		}
		b := batch(3, h.epoch[3], h.commit[3]+1)
		err := w.Commit(ctx, b)
		a.note(b.Commits[0].Number, err)
		switch {
		case err == nil:
			h.commit[3]++
		case errors.Is(err, backend.ErrUnknown), errors.Is(err, backend.ErrLost):
			if errors.Is(err, backend.ErrUnknown) {
				unknown = b
			}
			_ = w.Close()
			w = nil
		}
	}
	if w != nil {
		return w.Close()
	}
	return nil
}

func startAppender(t *testing.T, d *DB) (a *appender, stop func()) {
	t.Helper()
	a = &appender{db: d, more: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return a, stop
}

// complete checks that the log holds 1, 2, 3, … up to at least what was acknowledged.
func complete(t *testing.T, d *DB, acked uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), backendtest.Patience)
	defer cancel()
	w, h, err := writerOf(ctx, d, "checker", 3)
	need(t, err)
	defer func() { need(t, w.Close()) }()
	next := uint64(1)
	need(t, d.ReadRuns(ctx, "x", h.epoch[3], 1, 1<<62, func(r backend.Run) bool {
		if r.First != next {
			t.Fatalf("run %d where %d was expected", r.First, next)
		}
		next++
		return true
	}))
	if next-1 < acked {
		t.Errorf("%d messages in the log, %d were acknowledged", next-1, acked)
	}
}

// refusedFast waits until reads are refused as UNAVAILABLE, with a time to come back, within a
// moment.
func refusedFast(t *testing.T, d *DB) {
	t.Helper()
	deadline := time.Now().Add(backendtest.Patience)
	for fast := 0; fast < 3; {
		begun := time.Now()
		err := d.Ping(t.Context())
		if took := time.Since(begun); err != nil && took < atOnce {
			fast++
		}
		if e := code.From(err); err == nil || e.Code != wirev1.Code_CODE_UNAVAILABLE || e.RetryAfter == 0 {
			t.Fatalf("while Postgres is away: %v", err)
		}
		if time.Now().After(deadline) {
			t.Fatal("refusals stay slow")
		}
	}
}

// healed waits until appends and reads go on, and says when they did.
func healed(t *testing.T, a *appender, since time.Time) time.Duration {
	t.Helper()
	a.mu.Lock()
	before := a.acked
	a.mu.Unlock()
	a.until(t, "appends go on", func() bool { return a.acked > before })
	a.mu.Lock()
	took := a.at.Sub(since)
	a.mu.Unlock()
	t.Logf("appends went on %s after Postgres was back", took.Round(time.Millisecond))
	for err := a.db.Ping(t.Context()); err != nil; err = a.db.Ping(t.Context()) {
		if time.Since(since) > backendtest.Patience {
			t.Fatalf("reads still fail: %v", err)
		}
	}
	return time.Since(since)
}

func TestPostgresKilledInTheMiddleOfAppends(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	d := openWith(t, Config{URL: server.URL()})
	a, stop := startAppender(t, d)
	a.until(t, "50 appended", func() bool { return a.acked >= 50 })
	for range 2 {
		soon(t, func() time.Duration {
			a.forget()
			need(t, server.Kill())
			a.until(t, "a fault", func() bool { return len(a.faults) > 0 })
			refusedFast(t, d)
			need(t, server.Restart())
			return healed(t, a, time.Now())
		})
	}
	stop()
	complete(t, d, a.acked)
}

func TestPostgresHangsInTheMiddleOfAppends(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	d := openWith(t, Config{URL: server.URL()})
	a, stop := startAppender(t, d)
	a.until(t, "50 appended", func() bool { return a.acked >= 50 })
	noticed := time.Hour
	soon(t, func() time.Duration {
		a.forget()
		paused := time.Now()
		need(t, server.Pause())
		a.until(t, "a fault", func() bool { return len(a.faults) > 0 })
		noticed = min(noticed, time.Since(paused))
		refusedFast(t, d)
		need(t, server.Resume())
		return healed(t, a, time.Now())
	})
	if noticed > d.Config.Patience+20*time.Second {
		t.Errorf("noticed only after %s", noticed)
	}
	stop()
	complete(t, d, a.acked)
}

// A shard is one writer's until its backend is gone, whatever either store believes.
func TestOwnershipIsTheBackends(t *testing.T) {
	url := pgtest.URL(t)
	d1, d2 := open(t, url), open(t, url)
	ctx := t.Context()
	w1, h, err := writerOf(ctx, d1, "a", 3)
	need(t, err)
	w2, err := d2.OpenWriter(ctx, owner("b"))
	need(t, err)
	if got, err := w2.TakeShards(ctx, []int{3}); err != nil || len(got) != 0 {
		t.Fatalf("a second writer claimed %v, %v", got, err)
	}
	need(t, w1.Commit(ctx, batch(3, h.epoch[3], 1)))

	conn, err := pgx.Connect(ctx, url)
	need(t, err)
	defer func() { need(t, conn.Close(context.Background())) }()
	var ended bool
	need(t, conn.QueryRow(ctx, `SELECT bool_and(pg_terminate_backend(w.pid, 120000)) FROM pushmesh.writer AS w WHERE store_id = 'a'`).Scan(&ended))
	if !ended {
		t.Fatal("the first writer's backend still runs")
	}
	got, err := w2.TakeShards(ctx, []int{3})
	if err != nil || len(got) != 1 {
		t.Fatalf("the second writer claimed %v, %v", got, err)
	}
	late := batch(3, h.epoch[3], 2)
	if err := w1.Commit(ctx, late); !errors.Is(err, backend.ErrLost) && !errors.Is(err, backend.ErrUnknown) {
		t.Errorf("the first writer's commit: %v", err)
	}
	if yes, err := w2.Committed(ctx, late.ID); err != nil || yes {
		t.Errorf("the first writer's commit is there: %v, %v", yes, err)
	}
	if err := w1.Commit(ctx, batch(3, h.epoch[3], 2)); !errors.Is(err, backend.ErrLost) {
		t.Errorf("its next commit: %v, want ErrLost", err)
	}
	need(t, w2.Commit(ctx, batch(3, h.epoch[3], 2)))
}
