package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// atOnce is how soon a refusal must come once the state is known. The machine may be busy: the best
// of several counts.
const atOnce = 10 * time.Millisecond

// under is a store's database and log in trouble: behind a proxy that counts connection attempts,
// with appends and small statements under way all the time.
type under struct {
	server *pgserver.Server
	proxy  *pgtest.Proxy
	db     *DB
	log    *backendtest.Log
	p      *producers
	asked  atomic.Int64 // small statements that were answered
}

func trouble(t *testing.T, cfg Config, changes ...func(*shardlog.Config)) *under {
	t.Helper()
	u := &under{server: pgtest.New(t)}
	var err error
	u.proxy, err = pgtest.NewProxy(u.server.URL())
	need(t, err)
	t.Cleanup(func() { need(t, u.proxy.Close()) })
	before := open(t, u.server.URL())
	need(t, before.MakeSlices(t.Context(), now())) // as the housekeeper does, of keys too
	need(t, before.Close())
	cfg.URL = u.proxy.URL(u.server.URL())
	u.db = openWith(t, cfg)
	u.log = backendtest.OpenLog(t, u.db, owner("a"), 2, time.Now, changes...)
	u.log.WaitReady(t)
	u.p = produce(t, u.log, 4)
	stop, asking := make(chan struct{}), sync.WaitGroup{}
	for range 40 {
		asking.Go(func() {
			for pause := time.NewTicker(10 * time.Millisecond); ; {
				if _, err := u.db.GetSession(context.Background(), "u", "s", now()); errors.Is(err, backend.ErrNotFound) {
					u.asked.Add(1)
				}
				select {
				case <-stop:
					pause.Stop()
					return
				case <-pause.C:
				}
			}
		})
	}
	t.Cleanup(func() {
		close(stop)
		asking.Wait()
	})
	u.p.until(t, "100 appended", some(u.p, 100))
	return u
}

// repeats appends what the database has to be asked about: dedupe keys that memory can't decide,
// and the first result of a number used again.
func (u *under) repeats(t *testing.T) {
	t.Helper()
	for i := range uint64(4) {
		it := backendtest.Item(fmt.Sprint("room/repeated-", i), "x")
		it.DedupeKey, it.ProducerId, it.ProducerSeq = fmt.Sprint("key ", i), make([]byte, 16), 1
		if r := u.log.Append(t, it)[0]; r.GetCode() != wirev1.Code_CODE_OK || r.GetDuplicate() || r.GetSeq() != 1 {
			t.Errorf("a key: %v", r)
		}
		it = backendtest.Item(it.GetTopic(), "x")
		it.ProducerId, it.ProducerSeq = make([]byte, 16), 1
		if r := u.log.Append(t, it)[0]; r.GetCode() != wirev1.Code_CODE_OK || !r.GetDuplicate() || r.GetSeq() != 1 {
			t.Errorf("a number used again: %v", r)
		}
	}
}

// refused waits until small statements are refused at once, always with a code and a time to come
// back.
func (u *under) refused(t *testing.T, want wirev1.Code) {
	t.Helper()
	for deadline := time.Now().Add(backendtest.Patience); ; {
		begun := time.Now()
		_, err := u.db.GetSession(context.Background(), "u", "s", now())
		took := time.Since(begun)
		if !errors.Is(err, backend.ErrNotFound) {
			e := code.From(err)
			if e == nil || e.RetryAfter == 0 || e.Code != wirev1.Code_CODE_UNAVAILABLE && e.Code != wirev1.Code_CODE_OVERLOADED {
				t.Fatalf("refused with %v", err)
			}
			if e.Code == want && took < atOnce {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("not refused at once: %v after %s", err, took)
		}
	}
}

// level waits until small statements and appends go on after the database is back, checks that it
// was not stormed, and says how long it took.
func (u *under) level(t *testing.T, since time.Time) time.Duration {
	t.Helper()
	before := u.asked.Load()
	u.p.goesOn(t, since)
	for u.asked.Load() < before+100 || u.db.Check() != nil {
		if time.Since(since) > backendtest.Patience {
			t.Fatalf("%d small statements within %s; %v", u.asked.Load()-before, backendtest.Patience, u.db.Check())
		}
		<-time.After(5 * time.Millisecond)
	}
	took := time.Since(since)
	t.Logf("100 small statements were answered %s after the database was back", took.Round(time.Millisecond))
	if most := u.proxy.MostAttempts(); most > server.MaxAttempts {
		t.Errorf("%d connections were being made at a time", most)
	}
	return took
}

func TestTroubleEveryConnectionSleeps(t *testing.T) {
	u := trouble(t, Config{Pool: Pool{Acquire: time.Second}, Patience: backendtest.Patience})
	ctx, wake := context.WithCancel(t.Context())
	defer wake()
	var sleepers sync.WaitGroup
	asleep := make(chan struct{}, 100)
	for range u.db.Config.Pool.Max {
		sleepers.Go(func() {
			conn, err := u.db.Pool.Acquire(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Release()
			asleep <- struct{}{}
			_, _ = conn.Exec(ctx, `SELECT pg_sleep(600)`) // ends with ctx
		})
	}
	for range u.db.Config.Pool.Max {
		<-asleep
	}
	u.refused(t, wirev1.Code_CODE_OVERLOADED)
	u.p.until(t, "appends go on: they have connections of their own", some(u.p, 100))
	u.repeats(t)
	if err := u.db.Away(); err != nil {
		t.Errorf("a full pool is taken for a fault: %v", err)
	}
	tried(t, func() error {
		// as soon as one has waited in vain for a connection, which takes a second
		if u.db.Check() == nil {
			return errors.New("/readyz?verbose would say nothing")
		}
		return nil
	})
	back := time.Now()
	wake()
	sleepers.Wait()
	u.level(t, back)
	need(t, u.p.onlyOK())
	u.p.end(t)
}

// Statements that fail because others hold a lock stop no append: commits get through.
func TestTroubleStatementsWaitForALock(t *testing.T) {
	u := trouble(t, Config{}, backendtest.Stalling)
	conn := connected(t, u.server.URL())
	defer func() { _ = conn.Close(context.Background()) }()
	controlled(t, u.server.URL()).runs(t, func() error {
		u.p.forget()
		_, err := conn.Exec(t.Context(), `BEGIN; LOCK TABLE pushmesh.session IN ACCESS EXCLUSIVE MODE`)
		need(t, err)
		u.refused(t, wirev1.Code_CODE_UNAVAILABLE)
		u.p.until(t, "appends go on", some(u.p, 100))
		_, err = conn.Exec(t.Context(), `ROLLBACK`)
		need(t, err)
		u.level(t, time.Now())
		return u.p.onlyOK()
	})
	u.p.end(t)
}

func TestTroublePostgresHangs(t *testing.T) {
	u := trouble(t, Config{}, backendtest.Stalling)
	soon(t, func() time.Duration {
		need(t, u.server.Pause())
		u.refused(t, wirev1.Code_CODE_UNAVAILABLE)
		u.appendsRefused(t)
		need(t, u.server.Resume())
		return u.level(t, time.Now())
	})
	u.p.until(t, "100 more appended", some(u.p, 100))
	u.p.end(t)
}

func TestTroublePostgresDies(t *testing.T) {
	u := trouble(t, Config{}, backendtest.Stalling)
	soon(t, func() time.Duration {
		need(t, u.server.Kill())
		u.refused(t, wirev1.Code_CODE_UNAVAILABLE)
		u.appendsRefused(t)
		need(t, u.server.Restart())
		return u.level(t, time.Now())
	})
	u.p.until(t, "100 more appended", some(u.p, 100))
	u.p.end(t)
}

// appendsRefused waits until appends, too, are refused at once.
func (u *under) appendsRefused(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(backendtest.Patience); ; {
		begun := time.Now()
		r := u.log.Append(t, backendtest.Item("room/other", "x"))[0]
		took := time.Since(begun)
		if r.GetCode() == wirev1.Code_CODE_UNAVAILABLE && r.GetRetryAfterMs() > 0 && took < atOnce {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not refused at once: %v after %s", r, took)
		}
	}
}

// Callers that give up at any moment (waiting, connecting, in the middle of a statement or a
// stream) leak no connection.
func TestGivingUpLeaksNoConnection(t *testing.T) {
	url := pgtest.URL(t)
	d, err := Open(t.Context(), Config{URL: url, Pool: Pool{Max: 6}, Patience: backendtest.Patience})
	need(t, err)
	defer func() { need(t, d.Close()) }()
	w, h, err := writerOf(t.Context(), d, "a", 3)
	need(t, err)
	for n := uint64(1); n <= 200; n++ {
		need(t, w.Commit(t.Context(), batch(3, h.epoch[3], n)))
	}
	var callers sync.WaitGroup
	gaveUp, done := atomic.Int64{}, atomic.Int64{}
	for i := range 24 {
		callers.Go(func() {
			for j := range 25 {
				// up to 40 ms, in no order
				patience := time.Duration((i*25+j)*7919%40_000) * time.Microsecond
				if (i+j)%8 == 0 { // and some for as long as it takes
					patience = backendtest.Patience
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				var err error
				switch j % 4 {
				case 0:
					err = d.Ping(ctx)
				case 1:
					err = d.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
						_, err := conn.Exec(ctx, `SELECT pg_sleep(0.02)`)
						return err
					})
				case 2:
					seen := 0
					err = d.ReadRuns(ctx, "x", h.epoch[3], 1, 200, func(backend.Run) bool {
						if seen++; seen == j {
							cancel() // in the middle of a stream
						}
						return true
					})
				case 3:
					_, err = d.GetSession(ctx, "u", "s", now())
				}
				cancel()
				if err == nil || errors.Is(err, backend.ErrNotFound) {
					done.Add(1)
				} else {
					gaveUp.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if gaveUp.Load() < 50 || done.Load() == 0 {
		t.Errorf("%d gave up, %d did not: the test is no test", gaveUp.Load(), done.Load())
	}
	for deadline := time.Now().Add(backendtest.Patience); ; <-time.After(10 * time.Millisecond) {
		stat, status := d.Pool.Stat(), d.Gate.Status()
		idle := stat.TotalConns() == stat.IdleConns() && stat.ConstructingConns() == 0
		if idle && status.Busy == [3]int{} && status.Waiting == [3]int{} && d.Away() == nil && served(t, url) == int(stat.TotalConns()) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("total %d, idle %d, being made %d, the server serves %d; gate %+v",
				stat.TotalConns(), stat.IdleConns(), stat.ConstructingConns(), served(t, url), status)
		}
	}
	t.Logf("%d gave up, %d were answered", gaveUp.Load(), done.Load())
}

// served is how many connections of the pool the server knows of.
func served(t *testing.T, url string) (n int) {
	t.Helper()
	conn := connected(t, url)
	defer func() { _ = conn.Close(context.Background()) }()
	need(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
		WHERE application_name = 'pushmesh-store' AND datname = current_database()`).Scan(&n))
	return n
}

func connected(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	return conn
}
