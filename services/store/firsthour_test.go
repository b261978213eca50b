package store

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/telemetry"
)

// A database file that was not there is told, once: a mistyped path looks like an empty mesh.
func TestFirstHourANewDatabaseIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "no such folder", "pushmesh.db")
	for _, told := range []bool{true, false} {
		var log bytes.Buffer
		c := &core{settings: Settings{DB: "sqlite:" + path}, tel: &telemetry.Telemetry{Log: slog.New(slog.NewTextHandler(&log, nil))}}
		b, err := c.open(within(t))
		need(t, err)
		need(t, b.Close())
		if got := strings.Contains(log.String(), "new database: there is no file of this name yet"); got != told || told && !strings.Contains(log.String(), path) {
			t.Errorf("told %t: %s", told, log.String())
		}
	}
}

// A new epoch is told, with its number and how many shards begin it.
func TestFirstHourANewEpochIsTold(t *testing.T) {
	var log bytes.Buffer
	c := &core{
		settings: Settings{DB: "sqlite:" + filepath.Join(t.TempDir(), "pushmesh.db"), NewEpoch: true},
		tel:      &telemetry.Telemetry{Log: slog.New(slog.NewTextHandler(&log, nil))},
	}
	b, err := c.open(within(t))
	need(t, err)
	c.backend = b
	need(t, c.newEpoch(within(t), 4_000_000_000_000_000))
	need(t, b.Close())
	if want := "new epoch: the logs of all topics begin anew, at seq 1; start without --new-epoch the next time"; !strings.Contains(log.String(), want) ||
		!strings.Contains(log.String(), "epoch=4000000000000000 shards=1024") {
		t.Errorf("it says %s", log.String())
	}
}
