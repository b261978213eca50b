package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// countSlices of a table, by the state they are in.
func countSlices(t *testing.T, url string) (attachedN, other int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, conn.Close(context.Background())) }()
	need(t, conn.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE NOT i.inhdetachpending), count(*) FILTER (WHERE i.inhdetachpending IS NOT FALSE)
		FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
		WHERE c.relnamespace = 'pushmesh'::regnamespace AND c.relkind = 'r' AND c.relname ~ '_[0-9]{4,}$'`).Scan(&attachedN, &other))
	return attachedN, other
}

// Somebody reads the log for hours: appends go on, new slices come, and old ones go as soon as the
// reader has ended. That no append is delayed is judged by cause, not by a clock: the server logs
// each wait for a lock of more than a millisecond, and no append has any.
func TestALongReaderDelaysNoAppend(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t, "log_lock_waits=on", "deadlock_timeout=1ms", "log_line_prefix=<%a> ")
	url := server.URL()
	d := open(t, url)
	w, h, err := writerOf(t.Context(), d, "a", 3)
	need(t, err)
	old := batch(3, h.epoch[3], 1)
	old.Runs[0].At = now() - uint64((3 * 24 * time.Hour).Microseconds())
	need(t, w.Commit(t.Context(), old))
	need(t, d.MakeSlices(t.Context(), now()))

	reader, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, reader.Close(context.Background())) }()
	tx, err := reader.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	need(t, err)
	var n int
	need(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM pushmesh.log`).Scan(&n))

	stop, appended := make(chan struct{}), make(chan uint64)
	go func() { appended <- appendUntil(t, stop, w, h.epoch[3]) }()
	for i := range 3 {
		if _, err := d.DropSlices(t.Context(), now()); err != nil {
			t.Errorf("drop: %v", err)
		}
		if err := d.MakeSlices(t.Context(), now()+uint64(i)*uint64((40*24*time.Hour).Microseconds())); err != nil {
			t.Errorf("make: %v", err)
		}
	}
	if _, leaving := countSlices(t, url); leaving != 1 {
		t.Errorf("%d slices on their way out, want the old one that the reader has seen", leaving)
	}
	close(stop)
	last := <-appended
	if waits := lockWaits(t, server, "pushmesh-writer"); waits != "" {
		t.Errorf("appends waited for locks:\n%s", waits)
	}
	if lockWaits(t, server, "pushmesh-store") == "" {
		t.Error("dropping slices did not wait for the reader: the test would not notice an append that waits")
	}
	// What would be noticed.
	blocker, err := reader.Begin(t.Context())
	need(t, err)
	_, err = blocker.Exec(t.Context(), `LOCK TABLE ONLY pushmesh.log_day IN SHARE MODE`)
	need(t, err)
	done := make(chan error, 1)
	go func() { done <- w.Commit(context.Background(), batch(3, h.epoch[3], last+1)) }()
	for lockWaits(t, server, "pushmesh-writer") == "" {
		select {
		case err := <-done:
			if done <- err; lockWaits(t, server, "pushmesh-writer") == "" {
				t.Fatalf("an append did not wait for a lock that it needs: %v", err)
			}
		default:
		}
	}
	need(t, tx.Rollback(t.Context()))
	if err := <-done; err != nil && !errors.Is(err, backend.ErrNotCommitted) {
		// it may have given up
		t.Errorf("append behind a lock: %v", err)
	}
	dropped, leaving := 0, 1
	for deadline := time.Now().Add(backendtest.Patience); leaving > 0 && time.Now().Before(deadline); {
		// it gives up soon: the next round goes on
		n, err := d.DropSlices(t.Context(), now())
		need(t, err)
		dropped += n
		_, leaving = countSlices(t, url)
	}
	if leaving != 0 || dropped == 0 {
		t.Errorf("after the reader has ended %d slices are left, %d were dropped", leaving, dropped)
	}
}

// lockWaits are the lines of the server's log about waits of an application for tables and
// transactions.
func lockWaits(t *testing.T, server *pgserver.Server, application string) (lines string) {
	t.Helper()
	text, err := server.Log()
	need(t, err)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "<"+application+">") && strings.Contains(line, "still waiting for") {
			lines += line
		}
	}
	return lines
}

// appendUntil appends from message 2 on until stop is closed, and says which was the last.
func appendUntil(t *testing.T, stop <-chan struct{}, w backend.Writer, epoch uint64) uint64 {
	for seq := uint64(2); ; seq++ {
		select {
		case <-stop:
			return seq - 1
		default:
		}
		if err := w.Commit(context.Background(), batch(3, epoch, seq)); err != nil {
			t.Errorf("append %d: %v", seq, err)
		}
	}
}

func TestSlicesAreMadeOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	d := open(t, url)
	at := uint64(time.Date(2026, 3, 1, 12, 5, 0, 0, time.UTC).UnixMicro())
	need(t, d.MakeSlices(t.Context(), at))
	first, _ := countSlices(t, url)
	need(t, d.MakeSlices(t.Context(), at+uint64(time.Minute.Microseconds())))
	if again, _ := countSlices(t, url); again != first {
		t.Errorf("%d slices, then %d", first, again)
	}
	need(t, d.MakeSlices(t.Context(), at+uint64((10*time.Minute).Microseconds())))
	if more, _ := countSlices(t, url); more != first+2 { // one of the hour's log, one of short keys
		t.Errorf("%d slices ten minutes later, want %d", more, first+2)
	}
}

// Postgres lets a session that looks a table's slices up for the first time miss one that is
// attached at that moment, for as long as it lives. It learns of it when a store tells.
func TestASessionLearnsOfASliceThatItMissed(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	d := open(t, url)
	owner := connected(t, url)
	const count = `SELECT count(*) FROM pushmesh.scheduled WHERE due >= $1`
	week := backend.ScheduledSlice(now()).End - backend.ScheduledSlice(now()).Start
	for i := range uint64(8) {
		s := backend.ScheduledSlice(now() + (i+10)*week)
		need(t, d.MakeFor(t.Context(), &backend.Batch{At: now(), Scheduled: []backend.Scheduled{{ScheduledID: backend.ScheduledID{Due: s.Start}}}}))
	}
	// One in some hundreds misses it, where it looks when the slice is just there.
	var took time.Duration
	for round := range uint64(3000) {
		s := backend.ScheduledSlice(now() + (round+20)*week)
		session := connected(t, url)
		sees := func() (n int) {
			need(t, session.QueryRow(t.Context(), count, int64(s.Start)).Scan(&n))
			return n
		}
		first := make(chan error, 1)
		go func(wait float64) {
			_, err := session.Exec(t.Context(), `SELECT pg_sleep($1)`, wait)
			var n int
			first <- errors.Join(err, session.QueryRow(t.Context(), count, int64(s.Start)).Scan(&n))
		}(rand.Float64() * took.Seconds())
		began := time.Now()
		_, err := owner.Exec(t.Context(), `SELECT pushmesh.make_slice('scheduled', $1, $2)`, int64(s.Start), int64(s.End))
		took = time.Since(began)
		need(t, errors.Join(err, <-first))
		_, err = owner.Exec(t.Context(), `INSERT INTO pushmesh.scheduled (due, published_at, ttl, message_id, shard, topic, traceparent, body)
			VALUES ($1, 0, 0, gen_random_uuid(), 1, 'x', '', '')`, int64(s.Start))
		need(t, err)
		if sees() == 0 {
			if n := sees(); n != 0 {
				t.Fatalf("a moment later it sees %d", n)
			}
			need(t, d.MakeFor(t.Context(), &backend.Batch{At: now(), Scheduled: []backend.Scheduled{{ScheduledID: backend.ScheduledID{Due: s.Start}}}}))
			t.Logf("in round %d", round)
			if n := sees(); n != 1 {
				t.Errorf("it sees %d after it was told", n)
			}
			return
		}
		_, err = owner.Exec(t.Context(), `DROP TABLE pushmesh.scheduled_`+strconv.FormatUint(s.Start, 10))
		need(t, errors.Join(err, session.Close(t.Context())))
	}
	t.Log("NOT RUN: no session missed any")
}

// After slices were made sessions are told, once for each table.
func TestSlicesAreTold(t *testing.T) {
	t.Parallel()
	var wire pgtest.Wire
	var mu sync.Mutex
	said := map[string]int{}
	d := openWith(t, Config{URL: pgtest.URL(t), Patience: backendtest.Patience, Dial: wire.Dial})
	wire.Judge(func(s pgtest.Statement) pgtest.Fate {
		mu.Lock()
		defer mu.Unlock()
		for _, f := range []string{"make_slice", "tell_slices"} {
			if strings.HasPrefix(s.SQL, "SELECT pushmesh."+f) {
				said[f]++
			}
		}
		return pgtest.Pass
	})
	defer wire.Judge(nil)
	for _, made := range []bool{true, false} {
		clear(said)
		need(t, d.MakeSlices(t.Context(), now()))
		mu.Lock()
		if got := said["make_slice"] > 0; got != made || (said["tell_slices"] > 0) != made || said["tell_slices"] > said["make_slice"] {
			t.Errorf("made: %t; it said %v", made, said)
		}
		mu.Unlock()
	}
}
