package store

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A commit that takes longer than --db-patience costs its connection, and one that takes less
// doesn't, whatever the default is.
func TestPatienceIsASetting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		patience, late time.Duration
		lost           bool
	}{
		{"short", 300 * time.Millisecond, time.Second, true},
		{"long", 10 * time.Second, 2500 * time.Millisecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			proxy, err := pgtest.NewProxy(url)
			need(t, err)
			defer func() { need(t, proxy.Close()) }()
			st := serving(t, Settings{ID: "s1", DB: proxy.URL(url), Standalone: true, LogLevel: "error", Writers: 1, DBPatience: c.patience})
			client := dial(t, st.Addr())
			if r := appendAll(t, client, item(1, "room/1", "a"))[1]; r.GetCode() != wirev1.Code_CODE_OK {
				t.Fatalf("before: %v", r)
			}
			var held, writers atomic.Int32
			proxy.Judge(func(s pgtest.Statement) pgtest.Fate {
				switch {
				case strings.Contains(s.SQL, "INSERT INTO pushmesh.log_") && !strings.Contains(s.SQL, "parse: ") && held.Add(1) == 1:
					<-time.After(c.late) // the disk is slow
				case s.App == "pushmesh-writer" && strings.Contains(s.SQL, "parse: "):
					writers.Add(1)
				}
				return pgtest.Pass
			})
			r := appendAll(t, client, item(2, "room/1", "b"))[2]
			if ok := r.GetCode() == wirev1.Code_CODE_OK; held.Load() != 1 || !c.lost && !ok {
				t.Errorf("a commit that took %s with a patience of %s: %v, held %d", c.late, c.patience, r, held.Load())
			}
			if lost := writers.Load() > 0; lost != c.lost {
				t.Errorf("a commit that took %s with a patience of %s: another connection was made: %v", c.late, c.patience, lost)
			}
		})
	}
}
