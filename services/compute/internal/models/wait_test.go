package models

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// waiting asks once.
func waiting(t *testing.T, m *Models, name string, version uint64) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return m.Wait(ctx, name, version)
}

// One question is enough to know what there is and what there isn't, also before the first list.
func TestWaitingForAVersion(t *testing.T) {
	store := newFake()
	store.put("ctr", 1, file(t, "lightgbm-stump.txt"))
	store.put("bad", 1, []byte(`{"learner":{}}`))
	m := New(Config{Store: store, MaxBytes: 1 << 20, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	m.every = time.Hour // only what is missed has it ask again
	ended := make(chan error, 2)
	for _, name := range []string{"none", "ctr"} {
		go func() { ended <- waiting(t, m, name, 1) }()
	}
	begin(t, m)
	var errs error
	for range 2 {
		errs = errors.Join(errs, <-ended)
	}
	if code.Of(errs) != wirev1.Code_CODE_NOT_FOUND || strings.Count(errs.Error(), "\n") != 0 || !strings.Contains(errs.Error(), "no model none, version 1") {
		t.Error(errs)
	}
	for _, c := range []struct {
		name    string
		version uint64
		want    wirev1.Code
	}{
		{"none", 1, wirev1.Code_CODE_NOT_FOUND},
		{"other", 0, wirev1.Code_CODE_NOT_FOUND},
		{"ctr", 2, wirev1.Code_CODE_NOT_FOUND},
		{"ctr", 0, wirev1.Code_CODE_OK},
		{"ctr", 1, wirev1.Code_CODE_OK},
		{"bad", 1, wirev1.Code_CODE_INVALID_ARGUMENT},
	} {
		if err := waiting(t, m, c.name, c.version); code.Of(err) != c.want {
			t.Errorf("%s@%d: %v, want %v", c.name, c.version, err, c.want)
		}
	}
	store.put("late", 1, file(t, "lightgbm-stump.txt"))
	if err := waiting(t, m, "late", 1); err != nil {
		t.Error(err)
	}
}

func TestWaitingForAFile(t *testing.T) {
	store := newFake()
	store.put("ctr", 1, file(t, "lightgbm-stump.txt"))
	hold := make(chan struct{})
	store.hold = hold
	m := start(t, store, 1<<20)
	until(t, "the file is being read", func() bool { return store.read("ctr", 1) == 1 })
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Wait(gone, "ctr", 1); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || code.From(err).RetryAfter == 0 {
		t.Errorf("whose time is over: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- waiting(t, m, "ctr", 1) }()
	close(hold)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Who waits for a store that can't be asked is told so, and does not wait on.
func TestWaitingForAStoreThatIsAway(t *testing.T) {
	store := newFake()
	store.down = code.New(wirev1.Code_CODE_UNAVAILABLE, "away")
	m := start(t, store, 1<<20)
	if err := waiting(t, m, "ctr", 1); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || !strings.Contains(err.Error(), "away") {
		t.Error(err)
	}
	store.set(func(f *fake) { f.down = nil })
	until(t, "a list", func() bool { return m.Check() == nil })
	store.set(func(f *fake) { f.down = code.New(wirev1.Code_CODE_UNAVAILABLE, "away again") })
	if err := waiting(t, m, "ctr", 1); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || !strings.Contains(err.Error(), "away again") {
		t.Error(err)
	}
	none := start(t, nil, 1<<20)
	if err := waiting(t, none, "ctr", 1); code.Of(err) != wirev1.Code_CODE_UNSUPPORTED {
		t.Error(err)
	}
}
