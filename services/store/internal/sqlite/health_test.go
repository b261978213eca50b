package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// A full disk is noticed by the commit that it fails; then appends are refused, and health says so,
// until there is room again.
func TestAFullDiskIsSaidAndHeals(t *testing.T) {
	b, err := Open(context.Background(), filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	log := backendtest.OpenLog(t, b, backend.Owner{StoreID: "a", Incarnation: 7}, 1, time.Now)
	log.WaitReady(t)
	defer log.Close(t)
	if r := log.Append(t, backendtest.Item("room/1", "first"))[0]; r.GetCode() != wirev1.Code_CODE_OK {
		t.Fatal(r)
	}
	var pages int
	set := func(most int) {
		t.Helper()
		if err := b.write.QueryRow(fmt.Sprintf("PRAGMA max_page_count = %d", most)).Scan(&pages); err != nil {
			t.Fatal(err)
		}
	}
	set(1) // as many as there are: less is not possible
	full := pages
	large := string(bytes.Repeat([]byte("x"), 100_000))
	if r := log.Append(t, backendtest.Item("room/1", large))[0]; r.GetCode() != wirev1.Code_CODE_UNAVAILABLE || r.GetRetryAfterMs() == 0 {
		t.Fatalf("on a full disk: %v", r)
	}
	for _, err := range []error{b.Ping(context.Background()), b.Check(), b.Away()} {
		if err == nil {
			t.Error("a full disk is said to be well")
		}
	}
	if e := code.From(b.Away()); e.Code != wirev1.Code_CODE_UNAVAILABLE || e.RetryAfter == 0 {
		t.Errorf("refused as %v", e)
	}
	if r := log.Append(t, backendtest.Item("room/2", "small"))[0]; r.GetCode() != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("another one: %v", r)
	}
	set(full + 10_000)
	if err := errors.Join(b.Ping(context.Background()), b.Check(), b.Away()); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if r := log.Append(t, backendtest.Item("room/1", large))[0]; r.GetCode() != wirev1.Code_CODE_OK || r.GetSeq() != 2 {
		t.Errorf("with room again: %v %v", r.GetCode(), r.GetSeq())
	}
}
