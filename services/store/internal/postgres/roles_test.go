package postgres

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/log"
)

// user of a URL.
func user(t *testing.T, of string) string {
	t.Helper()
	u, err := url.Parse(of)
	need(t, err)
	return u.User.Username()
}

// opened is a writer for as long as the test.
func opened(t *testing.T, d *DB, owner backend.Owner) *log.Writer {
	t.Helper()
	w, err := d.OpenWriter(t.Context(), owner)
	need(t, err)
	t.Cleanup(func() { _ = w.Close() })
	return w.(*log.Writer)
}

// hasOf3 asks a writer for shard 3 and wants it to have got these.
func hasOf3(t *testing.T, w *log.Writer, want ...int) {
	t.Helper()
	got, err := w.TakeShards(t.Context(), []int{3})
	need(t, err)
	if len(got) != len(want) {
		t.Fatalf("the writer has %v, want %v", got, want)
	}
}

// A role that owns nothing needs no more than docs/operations.md grants it: the schema, and what
// lies in it, becomes its own.
func TestAGrantedRoleIsEnough(t *testing.T) {
	t.Parallel()
	owned := pgtest.URL(t)
	granted := pgtest.Another(t, owned)
	execute(t, owned, `GRANT CONNECT, CREATE ON DATABASE `+user(t, owned)+` TO `+user(t, granted), `GRANT CREATE, USAGE ON SCHEMA public TO `+user(t, granted))
	d := open(t, granted)
	now := uint64(time.Now().UnixMicro())
	need(t, d.MakeSlices(t.Context(), now))
	topics := backendtest.OpenLog(t, d, owner("a"), 1, time.Now)
	topics.WaitReady(t)
	topics.Append(t, backendtest.Item("room/1", "x"))
	need(t, openOutbox(t, d, "a").Close())
	topics.Close(t)
	if n, err := d.DropSlices(t.Context(), now+uint64((365*24*time.Hour).Microseconds())); err != nil || n == 0 {
		t.Errorf("%d slices dropped: %v", n, err)
	}
}

// Two stores with different roles: one that may not see the other's connections forgets nothing of
// it, and says what to grant, in place of being found out where the other one hangs. With the grant
// it fences.
func TestStoresOfTwoRoles(t *testing.T) {
	t.Parallel()
	first := pgtest.URL(t)
	second := pgtest.Another(t, first)
	execute(t, pgtest.Superuser(t, first), `GRANT `+user(t, first)+` TO `+user(t, second))
	d := open(t, first)
	e := open(t, second)
	a, b := backend.Owner{StoreID: "a", Incarnation: 1, Address: "a:1"}, backend.Owner{StoreID: "b", Incarnation: 1, Address: "b:1"}
	w := opened(t, e, b)
	hasOf3(t, w, 3)
	mine, err := d.OpenWatch(t.Context(), a)
	need(t, err)
	defer func() { need(t, mine.Close()) }()
	theirs, err := e.OpenWatch(t.Context(), b)
	need(t, err)
	defer func() { _ = theirs.Close() }()
	v := opened(t, d, a) // a store's writer forgets those that are gone

	hasOf3(t, v)
	if p := pulseOf(t, theirs, a.Run()); p == nil || p.Unfenceable != "" {
		t.Errorf("of a role that it is a member of: %+v", p)
	}
	p := pulseOf(t, mine, b.Run())
	if p == nil {
		t.Fatal("a store is taken for gone while its connections live")
	}
	if want := `GRANT pg_read_all_stats, pg_signal_backend TO "` + user(t, first) + `"`; !strings.Contains(p.Unfenceable, want) || !p.Busy {
		t.Errorf("of another role: %+v, want %s", p, want)
	}
	if err := mine.Fence(t.Context(), b.Run(), p.Mark); !errors.Is(err, backend.ErrAlive) {
		t.Errorf("fenced what can't be seen: %v", err)
	}
	need(t, d.Ping(t.Context()))

	execute(t, pgtest.Superuser(t, first), `GRANT pg_read_all_stats, pg_signal_backend TO `+user(t, first))
	seen := still(t, mine, b.Run())
	if seen.Unfenceable != "" {
		t.Errorf("with a grant: %+v", seen)
	}
	need(t, mine.Fence(t.Context(), b.Run(), seen.Mark))
	hasOf3(t, v, 3)
}

// Nobody but a superuser ends a superuser's connections, whatever was granted.
func TestASuperusersStore(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	d, e := open(t, url), open(t, pgtest.Superuser(t, url))
	a, b := backend.Owner{StoreID: "a", Incarnation: 1, Address: "a:1"}, backend.Owner{StoreID: "b", Incarnation: 1, Address: "b:1"}
	execute(t, pgtest.Superuser(t, url), `GRANT pg_read_all_stats, pg_signal_backend TO `+user(t, url))
	opened(t, e, b)
	mine, err := d.OpenWatch(t.Context(), a)
	need(t, err)
	defer func() { need(t, mine.Close()) }()
	theirs, err := e.OpenWatch(t.Context(), b)
	need(t, err)
	defer func() { need(t, theirs.Close()) }()
	if p := pulseOf(t, theirs, a.Run()); p == nil || p.Unfenceable != "" {
		t.Errorf("as a superuser sees it: %+v", p)
	}
	if p := pulseOf(t, mine, b.Run()); p == nil || !strings.Contains(p.Unfenceable, "superuser") {
		t.Errorf("a superuser's store: %+v", p)
	}
}

// Roles that log in and act as one other own everything together, and may not see their own
// connections without a grant: such a store is refused at its start, with the grant that it needs,
// and works with it.
func TestRolesThatActAsOne(t *testing.T) {
	t.Parallel()
	group := pgtest.URL(t)
	first, second := pgtest.Another(t, group), pgtest.Another(t, group)
	super := pgtest.Superuser(t, group)
	for _, login := range []string{first, second} {
		execute(t, super, `GRANT `+user(t, group)+` TO `+user(t, login), `ALTER ROLE `+user(t, login)+` SET role = `+user(t, group))
	}
	grant := `GRANT pg_read_all_stats, pg_signal_backend TO `
	if d, err := Open(t.Context(), Config{URL: first, Patience: backendtest.Patience}); err == nil || !strings.Contains(err.Error(), grant+`"`+user(t, group)+`"`) {
		if err == nil {
			need(t, d.Close())
		}
		t.Fatalf("without a grant: %v", err)
	}
	execute(t, super, grant+user(t, group))
	d, e := open(t, first), open(t, second)
	a, b := backend.Owner{StoreID: "a", Incarnation: 1, Address: "a:1"}, backend.Owner{StoreID: "b", Incarnation: 1, Address: "b:1"}
	now := uint64(time.Now().UnixMicro())
	need(t, d.MakeSlices(t.Context(), now))
	if _, err := e.DropSlices(t.Context(), now+uint64((365*24*time.Hour).Microseconds())); err != nil {
		t.Errorf("what the other one made is dropped: %v", err)
	}
	w, v := opened(t, d, a), opened(t, e, b)
	hasOf3(t, w, 3)
	watch, err := e.OpenWatch(t.Context(), b)
	need(t, err)
	defer func() { need(t, watch.Close()) }()
	p := still(t, watch, a.Run())
	if p.Unfenceable != "" {
		t.Errorf("with a grant: %+v", p)
	}
	need(t, watch.Fence(t.Context(), a.Run(), p.Mark))
	hasOf3(t, v, 3)
}
