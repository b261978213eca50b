package backendtest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const second = 1_000_000

func ofUser(user string, until uint64) *pushmeshv1.Revocation {
	return &pushmeshv1.Revocation{User: user, Reason: "left", Until: until}
}

func revoke(t *testing.T, b backend.Backend, r *pushmeshv1.Revocation, now uint64) *pushmeshv1.Revocation {
	t.Helper()
	kept, err := b.Revoke(within(t), r, now)
	need(t, err)
	return kept
}

// listed is what a page has, and what it says of others.
func listed(t *testing.T, b backend.Backend, have uint64, limit int, now uint64) (page backend.RevocationPage, all string) {
	t.Helper()
	page, err := b.ListRevocations(within(t), have, limit, now)
	need(t, err)
	var names []string
	for i, r := range page.All {
		name := r.User + r.Issuer + r.TokenId
		if r.Restored {
			name += " restored"
		}
		names = append(names, name)
		if i > 0 && page.All[i-1].Version >= r.Version {
			t.Errorf("not in the order of versions: %v", page.All)
		}
	}
	return page, strings.Join(names, ", ")
}

func testRevocations(t *testing.T, db Database) {
	b := db(t)
	empty, _ := listed(t, b, 0, 10, begin)
	if empty.Version == 0 || empty.More || empty.Anew || len(empty.All) != 0 {
		t.Fatalf("a database without revocations: %+v", empty)
	}
	ann := revoke(t, b, ofUser("ann", begin+100*second), begin)
	if ann.At != begin || ann.Version <= empty.Version || ann.Reason != "left" || ann.Until != begin+100*second {
		t.Errorf("kept: %v", ann)
	}
	revoke(t, b, &pushmeshv1.Revocation{Issuer: "i", TokenId: "1", Until: begin + 50*second}, begin)
	revoke(t, b, &pushmeshv1.Revocation{Issuer: "i", TokenId: "2", Until: begin + 50*second}, begin)
	closeNow(t, b)
	b = db(t)
	defer closeNow(t, b)

	first, names := listed(t, b, empty.Version, 2, begin)
	if names != "ann, i1" || !first.More {
		t.Errorf("the first page: %s, more %v", names, first.More)
	}
	last, names := listed(t, b, first.Version, 2, begin)
	if names != "i2" || last.More {
		t.Errorf("the last page: %s, more %v", names, last.More)
	}
	if same, names := listed(t, b, last.Version, 2, begin); names != "" || same.Version != last.Version {
		t.Errorf("nothing has changed: %s, %+v", names, same)
	}
	if beyond, names := listed(t, b, last.Version+7, 9, begin); names != "ann, i1, i2" || !beyond.Anew || beyond.Version != last.Version {
		t.Errorf("a version that never was: %s, %+v", names, beyond)
	}

	// Once more: later, and ends no sooner.
	again := revoke(t, b, ofUser("ann", begin+20*second), begin+10*second)
	if again.At != begin+10*second || again.Until != ann.Until || again.Version <= last.Version {
		t.Errorf("revoked again: %v", again)
	}
	version, err := b.Restore(within(t), &pushmeshv1.Revocation{Issuer: "i", TokenId: "1"}, begin)
	need(t, err)
	changed, names := listed(t, b, last.Version, 9, begin)
	if names != "ann, i1 restored" || changed.Version != version {
		t.Errorf("changes: %s, %+v, restored with version %d", names, changed, version)
	}
	for _, r := range []*pushmeshv1.Revocation{{Issuer: "i", TokenId: "1"}, {User: "bob"}, {User: "i"}} {
		if _, err := b.Restore(within(t), r, begin); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("restore of %v: %v", r, err)
		}
	}
	if _, names := listed(t, b, version, 9, begin); names != "" {
		t.Errorf("what was not there has changed: %s", names)
	}

	// What is over is not told, and goes. An older revocation that is made again does not come back
	// with its time.
	if _, names := listed(t, b, 0, 9, begin+50*second); names != "ann" {
		t.Errorf("after 50 s: %s", names)
	}
	if n, err := b.ExpireRevocations(within(t), begin+50*second, 1); err != nil || n != 1 {
		t.Errorf("%d are deleted of two, one at a time: %v", n, err)
	}
	if n, err := b.ExpireRevocations(within(t), begin+50*second, 9); err != nil || n != 1 {
		t.Errorf("%d are deleted, want the other one: %v", n, err)
	}
	if _, err := b.Restore(within(t), ofUser("ann", 0), begin+100*second); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("restore of what is over: %v", err)
	}
	if late := revoke(t, b, ofUser("ann", begin+150*second), begin+100*second); late.Until != begin+150*second || late.At != begin+100*second {
		t.Errorf("revoked after the first one was over: %v", late)
	}
}

// Those who follow page by page, while others revoke and restore, have in the end what is kept.
func testRevocationsFollowed(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	const writers, each = 4, 25
	var changing sync.WaitGroup
	for w := range writers {
		changing.Go(func() {
			for i := range each {
				r := ofUser(fmt.Sprint("u", (w+i)%7), begin+100*second)
				if i%3 == 2 {
					if _, err := b.Restore(within(t), r, begin); err != nil && !errors.Is(err, backend.ErrNotFound) {
						t.Error(err)
					}
				} else if _, err := b.Revoke(within(t), r, begin+uint64(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { changing.Wait(); close(done) }()
	has := map[string]backend.KeptRevocation{}
	var have uint64
	follow := func() {
		for more := true; more; {
			page, err := b.ListRevocations(within(t), have, 3, begin)
			need(t, err)
			for _, r := range page.All {
				has[r.User] = r
			}
			if page.Version < have || page.Anew {
				t.Fatalf("version %d after %d", page.Version, have)
			}
			have, more = page.Version, page.More
		}
	}
	for under := true; under; {
		select {
		case <-done:
			under = false
		default:
		}
		follow()
	}
	all, err := b.ListRevocations(within(t), 0, 99, begin)
	need(t, err)
	if len(all.All) != len(has) || all.Version != have {
		t.Errorf("%d are followed of %d, version %d of %d", len(has), len(all.All), have, all.Version)
	}
	for _, r := range all.All {
		if got := has[r.User]; got.Revocation == nil || got.Version != r.Version || got.At != r.At || got.Restored != r.Restored {
			t.Errorf("%s: followed %v, kept %v", r.User, got, r)
		}
	}
}

func testRoomForRevocations(t *testing.T, _ Database) {
	if err := backend.RoomForRevocation(backend.MaxRevocations - 1); err != nil {
		t.Error(err)
	}
	if err := backend.RoomForRevocation(backend.MaxRevocations); code.Of(err) != wirev1.Code_CODE_OVERLOADED {
		t.Errorf("one too many: %v", err)
	}
}
