package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// ignoring has PgBouncer take what a session is set to at its start, and forget it: what operators
// do where it refuses connections for such.
const ignoring = "ignore_startup_parameters=enable_seqscan,jit,plan_cache_mode,statement_timeout,lock_timeout,idle_session_timeout," +
	"idle_in_transaction_session_timeout,client_connection_check_interval," +
	"tcp_keepalives_idle,tcp_keepalives_interval,tcp_keepalives_count,tcp_user_timeout"

// Behind a pooler in transaction mode a lock is whose statement comes next: two stores could append
// to one shard. A store refuses to serve, whatever way the pooler gives backends away, at once and
// before it has written or set anything.
func TestAPoolerInTransactionModeIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode     string
		settings []string
	}{
		"the last backend first":  {"transaction", nil},
		"backends in turn":        {"transaction", []string{"server_round_robin=1", "min_pool_size=2"}},
		"two backends in turn":    {"transaction", []string{"server_round_robin=1", "default_pool_size=2"}},
		"more of them in turn":    {"transaction", []string{"server_round_robin=1", "min_pool_size=5"}},
		"one backend":             {"transaction", []string{"default_pool_size=1"}},
		"for a statement":         {"statement", nil},
		"parameters are accepted": {"transaction", []string{ignoring}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := pgtest.URL(t)
			ctx, cancel := context.WithTimeout(t.Context(), backendtest.Patience)
			defer cancel()
			pooler := pgtest.Pooler(t, direct, c.mode, c.settings...)
			if name == "two backends in turn" {
				haveTwo(t, pooler)
			}
			d, err := Open(ctx, Config{URL: pooler})
			if err == nil {
				need(t, d.Close())
			}
			if !errors.Is(err, server.ErrPooled) {
				t.Fatalf("a store opens: %v", err)
			}
			var schemas int
			need(t, connected(t, direct).QueryRow(ctx, `SELECT count(*) FROM pg_namespace WHERE nspname = 'pushmesh'`).Scan(&schemas))
			if schemas > 0 {
				t.Error("it has migrated")
			}
		})
	}
}

// haveTwo has a pooler connect two backends, which it keeps.
func haveTwo(t *testing.T, pooler string) {
	t.Helper()
	var conns [2]*pgconn.PgConn
	for i := range conns {
		conn, err := pgconn.Connect(t.Context(), pooler)
		need(t, err)
		need(t, conn.Exec(t.Context(), "BEGIN; SELECT 1").Close())
		conns[i] = conn
	}
	for _, conn := range conns {
		need(t, conn.Exec(t.Context(), "ROLLBACK").Close())
		need(t, conn.Close(t.Context()))
	}
}

// A pooler that comes between, or changes its mode, while a store runs costs it the right to
// append, not others their safety.
func TestAPoolerThatComesLaterIsRefused(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	var pooler atomic.Pointer[string]
	d := openWith(t, Config{URL: direct, Patience: backendtest.Patience, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if in := pooler.Load(); in != nil {
			network, addr = "tcp", *in
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	u, err := url.Parse(pgtest.Pooler(t, direct, "transaction", ignoring))
	need(t, err)
	pooler.Store(&u.Host)
	for what, opens := range map[string]func() error{
		"a writer":            func() error { _, err := d.OpenWriter(t.Context(), owner("a")); return err },
		"a run of claims":     func() error { _, err := d.OpenClaims(t.Context(), owner("a")); return err },
		"the outbox's reader": func() error { _, err := d.OpenOutbox(t.Context(), owner("a")); return err },
	} {
		if err := opens(); !errors.Is(err, server.ErrPooled) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Through a pooler in session mode a store has what it has directly: settings of its sessions,
// locks, marks by which it is seen, and it can be fenced. Backends that a store which died leaves
// to the pooler are nobody's.
func TestAPoolerInSessionMode(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{"parameters are refused": nil, "parameters are accepted": {ignoring}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := pgtest.URL(t)
			through := pgtest.Pooler(t, direct, "session", settings...)
			d, e := open(t, through), open(t, direct)
			if got := d.Inspect(t.Context())[0]; got.GetPooler() != meshv1.InspectedDatabase_POOLER_SESSION || got.GetSettings()["synchronous_commit"] != "on" {
				t.Errorf("inspected: %v", got)
			}
			a, b := backend.Owner{StoreID: "a", Incarnation: 1, Address: "a:1"}, backend.Owner{StoreID: "b", Incarnation: 1, Address: "b:1"}
			w := opened(t, d, a)
			for setting, want := range map[string]string{"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan", "lock_timeout": "1s", "application_name": "pushmesh-writer", "TimeZone": "UTC"} {
				var got string
				need(t, w.Conn.QueryRow(t.Context(), `SELECT current_setting($1)`, setting).Scan(&got))
				if got != want {
					t.Errorf("%s of a writer is %q, want %q", setting, got, want)
				}
			}
			v := opened(t, e, b)
			hasOf3(t, w, 3)
			hasOf3(t, v)

			theirs, err := d.OpenWatch(t.Context(), a)
			need(t, err)
			defer func() { need(t, theirs.Close()) }()
			mine, err := e.OpenWatch(t.Context(), b)
			need(t, err)
			defer func() { need(t, mine.Close()) }()
			before := still(t, mine, a.Run())
			_, err = theirs.Look(t.Context())
			need(t, err)
			if err := mine.Fence(t.Context(), a.Run(), before.Mark); !errors.Is(err, backend.ErrAlive) {
				t.Errorf("fenced by a mark from before a look: %v", err)
			}
			need(t, mine.Fence(t.Context(), a.Run(), still(t, mine, a.Run()).Mark))
			hasOf3(t, v, 3)
			if _, err := w.TakeShards(t.Context(), []int{3}); !errors.Is(err, backend.ErrLost) {
				t.Errorf("a fenced writer claims: %v", err)
			}
			need(t, v.ReleaseShards(t.Context(), []int{3}))

			// The next run dies without a word, and the one after it is given its backends.
			a.Incarnation = 2
			dying := opened(t, d, a)
			hasOf3(t, dying, 3)
			need(t, dying.Conn.PgConn().Conn().Close())
			for {
				a.Incarnation++
				next := opened(t, d, a)
				if fmt.Sprint(next.Conn.Backend()) != fmt.Sprint(dying.Conn.Backend()) {
					// the pooler has not seen that it died
					continue
				}
				hasOf3(t, next, 3)
				if p := pulseOf(t, mine, a.Run()); p == nil {
					t.Error("the run that has the backend is not seen")
				}
				break
			}
		})
	}
}

// What a pooler has given to somebody else is not ended for a session of it that a store lost.
func TestABackendGivenAwayIsNotEnded(t *testing.T) {
	t.Parallel()
	through := pgtest.Pooler(t, pgtest.URL(t), "session")
	d := open(t, through)
	w := opened(t, d, owner("a"))
	pid, _ := w.Conn.Backend()
	w.Conn.Lose()
	// The pooler gives away first what it was given back last, once it knows.
	var others []*pgx.Conn
	for has := int32(0); has != pid; {
		other := connected(t, through)
		others = append(others, other)
		defer func() { _ = other.Close(context.Background()) }()
		need(t, other.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&has))
	}
	hasOf3(t, opened(t, d, owner("a")), 3)
	for _, other := range others {
		need(t, other.Ping(t.Context()))
	}
}

// A store that died does not look alive by the work of whom its pooler gave its backends to, be it
// as the log's writer or as that of claims.
func TestAStoreThatDiedBehindAPooler(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	through := pgtest.Pooler(t, direct, "session")
	e, d := open(t, direct), open(t, through)
	mine, err := e.OpenWatch(t.Context(), owner("b"))
	need(t, err)
	defer func() { need(t, mine.Close()) }()
	dead := owner("a")
	w := opened(t, d, dead)
	if pulseOf(t, mine, dead.Run()) == nil {
		t.Fatal("a store that lives is not seen")
	}
	pid, start := w.Conn.Backend()
	execute(t, direct, `INSERT INTO pushmesh.claim_run (store_id, incarnation, pid, backend_start) SELECT store_id, incarnation, pid, backend_start FROM pushmesh.writer WHERE store_id = 'a'`)
	need(t, w.Conn.PgConn().Conn().Close())
	// Until the pooler knows, others get other backends.
	for inPool := false; !inPool; {
		open(t, through)
		need(t, connected(t, direct).QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2 AND application_name = 'pushmesh-store')`, pid, start).Scan(&inPool))
	}
	if p := pulseOf(t, mine, dead.Run()); p != nil {
		t.Errorf("it is seen as %+v", p)
	}
	var runs int
	need(t, connected(t, direct).QueryRow(t.Context(), `SELECT count(*) FROM pushmesh.claim_run`).Scan(&runs))
	if runs > 0 {
		t.Errorf("it has %d runs of claims", runs)
	}
}

// A session that a store lost, and whose pooler does not know, ends with the store's next one.
func TestASessionLostBehindAPoolerIsEnded(t *testing.T) {
	t.Parallel()
	var made sync.Map // by the address on this side
	d := openWith(t, Config{
		URL: pgtest.Pooler(t, pgtest.URL(t), "session"), Patience: backendtest.Patience,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			c := &cutOff{Conn: conn}
			made.Store(conn.LocalAddr().String(), c)
			return c, nil
		},
	})
	w := opened(t, d, owner("a"))
	hasOf3(t, w, 3)
	found, _ := made.Load(w.Conn.PgConn().Conn().LocalAddr().String())
	lost := found.(*cutOff)
	lost.is.Store(true)
	defer func() { need(t, lost.Conn.Close()) }()
	w.Conn.Lose()
	hasOf3(t, opened(t, d, owner("a")), 3)
}

// cutOff is a connection of which the other side hears no more, not even its end, once it is.
type cutOff struct {
	net.Conn
	is atomic.Bool
}

func (c *cutOff) Write(b []byte) (int, error) {
	if c.is.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *cutOff) Close() error {
	if c.is.Load() {
		return nil
	}
	return c.Conn.Close()
}
