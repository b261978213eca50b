package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A disk that is full, or a server that turns read-only, fails the appends that it has no room for,
// to be tried again, and nothing else: what was answered is there and can be read, and once there
// is room all goes on. The disk is a small one where the test may mount it; and everywhere Postgres
// says what it would say.
func TestPostgresHasNoRoom(t *testing.T) {
	t.Run("said", func(t *testing.T) {
		url := pgtest.URL(t)
		_, c := alone(t, url)
		noRoom(t, c, func() { sayNoRoom(t, url) }, func() { pgtest.Exec(t, url, `DROP TRIGGER no_room ON pushmesh.batch`) })
	})
	t.Run("said by another database than home", func(t *testing.T) {
		home, other := pgtest.URL(t), pgtest.URL(t)
		others := map[string]string{"b": other}
		moveShard(t, home, others, fullTopic, "b")
		st := serving(t, Settings{ID: "s1", DB: home, ShardDBs: others, Standalone: true, LogLevel: "error"})
		noRoom(t, dial(t, st.Addr()), func() { sayNoRoom(t, other) }, func() { pgtest.Exec(t, other, `DROP TRIGGER no_room ON pushmesh.batch`) })
	})
	t.Run("read-only", func(t *testing.T) {
		// as a managed service makes it whose storage is nearly used up
		s := pgtest.New(t)
		st, c := alone(t, s.URL())
		say := func(sql string) func() {
			return func() {
				pgtest.Exec(t, s.Superuser(), sql)
				pgtest.Exec(t, s.Superuser(), `SELECT pg_reload_conf()`)
			}
		}
		turn := say(`ALTER SYSTEM SET default_transaction_read_only = on`)
		noRoom(t, c, func() {
			turn()
			eventually(t, "the store says that it is not ready", func() bool {
				appendAll(t, c, item(1, "room/other", "x"))
				return strings.Contains(readyz(t, st), "can't be written to")
			})
		}, say(`ALTER SYSTEM RESET default_transaction_read_only`))
	})
	disk := pgtest.NewSmallDisk(t, pgtest.New(t), 64<<20)
	if disk == nil {
		t.Log("no disk may be mounted here: what Postgres says stands for it")
		return
	}
	t.Run("a small disk", func(t *testing.T) {
		_, c := alone(t, disk.URL)
		noRoom(t, c, func() { need(t, disk.Fill()) }, func() { need(t, disk.Clear()) })
	})
}

// sayNoRoom makes every commit fail as one that the disk has no room for.
func sayNoRoom(t *testing.T, url string) {
	t.Helper()
	pgtest.Exec(t, url, `CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$`)
	pgtest.Exec(t, url, `CREATE TRIGGER no_room BEFORE INSERT ON pushmesh.batch EXECUTE FUNCTION no_room()`)
}

const fullTopic = "room/full"

// noRoom appends while a disk is filled and cleared.
func noRoom(t *testing.T, c meshv1.StoreServiceClient, fill, clearUp func()) {
	t.Helper()
	var acked []string
	n := uint64(0)
	large := strings.Repeat("x", 32<<10)
	publish := func() (r *meshv1.AppendResult, took time.Duration) {
		n++
		body := fmt.Sprint(n, " ", large)
		begun := time.Now()
		r = appendAll(t, c, item(n, fullTopic, body))[n]
		took = time.Since(begun)
		switch r.GetCode() {
		case wirev1.Code_CODE_OK:
			acked = append(acked, body)
		case wirev1.Code_CODE_UNAVAILABLE:
			if r.GetRetryAfterMs() == 0 {
				t.Errorf("refused without a time to come back: %v", r)
			}
		default:
			t.Fatalf("message %d: %v", n, r)
		}
		return r, took
	}
	readable := func() {
		t.Helper()
		all, _, _ := readAll(t, c, &meshv1.ReadLogRequest{Topic: fullTopic})
		if len(all) != len(acked) {
			t.Fatalf("%d records, %d were acknowledged", len(all), len(acked))
		}
		for i, rec := range all {
			if rec.GetSeq() != uint64(i+1) || string(rec.GetBody()) != acked[i] {
				t.Fatalf("record %d: seq %d, %.20s", i+1, rec.GetSeq(), rec.GetBody())
			}
		}
	}
	eventually(t, "with room appends are taken", func() bool {
		publish()
		return len(acked) == 20
	})
	fill()
	for range 3 { // as often as the health check finds room for its own small row
		eventually(t, "appends are refused", func() bool {
			r, _ := publish()
			return r.GetCode() == wirev1.Code_CODE_UNAVAILABLE
		})
		readable()
	}
	eventually(t, "a refusal comes at once", func() bool {
		// the machine may be busy: the best of several counts
		r, took := publish()
		return r.GetCode() == wirev1.Code_CODE_UNAVAILABLE && took < 10*time.Millisecond
	})
	clearUp()
	before := len(acked)
	eventually(t, "appends go on", func() bool {
		publish()
		return len(acked) >= before+20
	})
	readable()
}
