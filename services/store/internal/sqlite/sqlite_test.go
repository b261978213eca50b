package sqlite

import (
	"context"
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
