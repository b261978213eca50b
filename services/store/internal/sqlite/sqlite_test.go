package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Database {
		// nothing in a path may be taken for an option
		path := filepath.Join(t.TempDir(), "a ?#%20 b", "store.db")
		return func(t *testing.T) backend.Backend {
			b, err := Open(context.Background(), path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			return former{b}
		}
	})
}

// former is a backendtest.Former.
type former struct{ *Backend }

func (f former) ForgetUse(t *testing.T) {
	if _, err := f.write.ExecContext(t.Context(), "UPDATE session SET used = 0"); err != nil {
		t.Fatal(err)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	b, err := Open(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("second open: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b, err = Open(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A file with steps that this version does not know is opened, since they only add; not one which
// says that a step took away what this version uses.
func TestALaterSchemaIsWorkedWithUnlessItSaysNo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	change := func(sql string) {
		t.Helper()
		b, err := Open(t.Context(), path)
		if err == nil {
			_, err = b.write.ExecContext(t.Context(), sql)
			err = errors.Join(err, b.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	change("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, 1)")
	change("ALTER TABLE session ADD COLUMN later INTEGER NOT NULL DEFAULT 1")
	change("PRAGMA user_version = 3")
	change("PRAGMA user_version = 99999")
	if b, err := Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), "later version, whose stores know step 99999") {
		t.Errorf("a store that knows less opens it: %v, %v", b, err)
	}
}
