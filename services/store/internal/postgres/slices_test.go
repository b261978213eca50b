package postgres

import (
	"context"
	"errors"
	"strings"
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
