package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// countSlices of a table, by the state they are in.
func countSlices(t *testing.T, url string) (attachedN, other int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, conn.Close(context.Background())) }()
	all, err := partitions(t.Context(), conn)
	need(t, err)
	for _, st := range all {
		if st == attached {
			attachedN++
		} else {
			other++
		}
	}
	return attachedN, other
}

// Somebody reads the log for hours: appends go on, new slices come, and old ones go as soon as the reader has ended.
func TestALongReaderDelaysNoAppend(t *testing.T) {
	url := pgtest.URL(t)
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

	stop, slowest := make(chan struct{}), make(chan time.Duration)
	go func() { slowest <- appendUntil(t, stop, w, h.epoch[3]) }()
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
	worst := <-slowest
	t.Logf("slowest append beside a long reader: %s", worst.Round(time.Millisecond))
	if worst > time.Second { // it would be for ever; on a quiet machine it is a few milliseconds
		t.Errorf("an append took %s", worst)
	}
	need(t, tx.Rollback(t.Context()))
	dropped, err := d.DropSlices(t.Context(), now())
	need(t, err)
	if _, leaving := countSlices(t, url); leaving != 0 || dropped == 0 {
		t.Errorf("after the reader has ended %d slices are left, %d were dropped", leaving, dropped)
	}
}

// appendUntil appends from message 2 on until stop is closed, and says how long the slowest took.
func appendUntil(t *testing.T, stop <-chan struct{}, w backend.Writer, epoch uint64) (worst time.Duration) {
	for seq := uint64(2); ; seq++ {
		select {
		case <-stop:
			return worst
		default:
		}
		begun := time.Now()
		if err := w.Commit(context.Background(), batch(3, epoch, seq)); err != nil {
			t.Errorf("append %d: %v", seq, err)
		}
		worst = max(worst, time.Since(begun))
	}
}

func TestSlicesAreMadeOnce(t *testing.T) {
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

func TestOver(t *testing.T) {
	at := uint64(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMicro())
	for c := range backend.Classes {
		s := slice{"log_" + c.String(), c.Slice(at)}
		end := s.End + uint64(c.Keep().Microseconds())
		if _, yes := over(s.name(), end-1); yes {
			t.Errorf("%s is over too early", s.name())
		}
		if got, yes := over(s.name(), end); !yes || got != s {
			t.Errorf("%s at its end: %v, %v", s.name(), got, yes)
		}
	}
	for _, name := range []string{"log_day", "log_day_", "log_day_x", "other_5", "", "5"} {
		if _, yes := over(name, 1<<62); yes {
			t.Errorf("%q is taken for a slice", name)
		}
	}
}
