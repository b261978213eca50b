package postgres

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// An adoption that is interrupted at any statement, in every way, leaves the session whole with one
// owner, and is done by asking again.
func TestAdoptionsInterrupted(t *testing.T) {
	t.Parallel()
	wire := &pgtest.Wire{}
	url := pgtest.URL(t)
	d := openWith(t, Config{URL: url, Dial: wire.Dial, Patience: backendtest.Patience})
	whole := open(t, url)
	need(t, whole.MakeSlices(t.Context(), now()))
	a := backend.Adoption{From: backend.SessionKey{User: "u", Name: "s"}, To: backend.SessionKey{User: "ann", Name: "s"}}
	has := func(k backend.SessionKey) bool {
		t.Helper()
		peek, err := whole.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: k.User, Name: k.Name, Peek: true}, backend.Quota{}, now())
		need(t, err)
		letters, err := whole.ListDeadLetters(t.Context(), "", 0, 9)
		need(t, err)
		mine := len(letters) == 1 && letters[0].GetUser() == k.User
		if !peek.GetResumed() {
			if mine {
				t.Errorf("%v has a dead letter, and no session", k)
			}
			return false
		}
		if c := peek.GetCursors(); !mine || len(c) != 1 || c[0].GetFloor() != 7 || !slices.Equal(peek.GetFilters(), []string{"x"}) {
			t.Errorf("%v has %v, its letter: %v", k, peek, mine)
		}
		return true
	}
	statements := 0
	// who hears nothing waits for as long as its patience
	for _, fate := range []pgtest.Fate{pgtest.Refused, pgtest.Unsent, pgtest.Unanswered} {
		for n, met := 1, true; met; n++ {
			begun, err := whole.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: "u", Name: "s", EdgeId: "e", Origin: "192.0.2.1"}, backend.Quota{}, now())
			need(t, err)
			_, err = whole.WriteCursors(t.Context(), []*meshv1.SessionWrite{{
				User: "u", Name: "s", Generation: begun.GetGeneration(), Cursors: []*meshv1.SessionCursor{{Topic: "x", Floor: 7}}, AddFilters: []string{"x"},
				DeadLetters: []*meshv1.DeadLetter{{User: "u", Session: "s", Topic: "x", Seq: 1}},
			}}, now())
			need(t, err)
			met = false
			sent := 0
			wire.Judge(func(pgtest.Statement) pgtest.Fate {
				if sent++; sent != n {
					return pgtest.Pass
				}
				met = true
				return fate
			})
			_, failed := d.AdoptSession(t.Context(), a, now())
			wire.Judge(nil)
			before, after := has(a.From), has(a.To)
			if before == after || failed == nil && before {
				t.Errorf("statement %d %s: %v; the old owner has it: %v, the new one: %v", n, fate, failed, before, after)
			}
			done, err := d.AdoptSession(t.Context(), a, now())
			need(t, err)
			if done.Already != after || has(a.From) || !has(a.To) {
				t.Errorf("statement %d %s, again: %+v", n, fate, done)
			}
			_, _, err = whole.DeleteSession(t.Context(), "ann", "s")
			need(t, err)
			letters, err := whole.ListDeadLetters(t.Context(), "", 0, 9)
			need(t, err)
			_, err = whole.DiscardDeadLetters(t.Context(), []uint64{letters[0].GetId()})
			need(t, err)
			statements = n
		}
	}
	if statements < 6 {
		t.Errorf("an adoption has %d statements", statements)
	}
	if n := pgtest.Exec(t, url, `SELECT FROM pushmesh.session_count WHERE origin <> ''`); n != 0 {
		t.Errorf("%d counts of addresses are left of sessions that are gone", n)
	}
}

// An adoption that had to begin anew tells of the edge that it took the session from at first,
// which holds nothing any more.
func TestAnAdoptionThatBeginsAnewTellsTheHolder(t *testing.T) {
	t.Parallel()
	wire := &pgtest.Wire{}
	url := pgtest.URL(t)
	d := openWith(t, Config{URL: url, Dial: wire.Dial, Patience: backendtest.Patience})
	need(t, d.MakeSlices(t.Context(), now()))
	_, err := d.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: "u", Name: "s", EdgeId: "e"}, backend.Quota{}, now())
	need(t, err)
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, conn.Close(t.Context())) }()
	cuts := 0
	wire.Judge(func(s pgtest.Statement) pgtest.Fate {
		if sql, _, _ := strings.Cut(s.SQL, "parse: "); strings.Contains(sql, "LOCK TABLE ONLY pushmesh.cursor_page") {
			switch cuts++; cuts {
			case 1: // somebody writes cursors for long
				_, err = conn.Exec(t.Context(), `BEGIN; LOCK TABLE pushmesh.cursor_page IN ROW EXCLUSIVE MODE`)
				need(t, err)
			case 2:
				_, err = conn.Exec(t.Context(), `COMMIT`)
				need(t, err)
			}
		}
		return pgtest.Pass
	})
	done, err := d.AdoptSession(t.Context(), backend.Adoption{From: backend.SessionKey{User: "u", Name: "s"}, To: backend.SessionKey{User: "ann", Name: "s"}}, now())
	need(t, err)
	if cuts != 2 || done.Edge != "e" || done.Already {
		t.Errorf("after %d tries: %+v, want it taken from e", cuts, done)
	}
}

// A session of the new owner's that comes and goes while the adoption waits leaves nothing in the
// one that is adopted: with its positions, messages that were never delivered would be skipped.
func TestAnAdoptionTakesNothingOfOneThatCameMeanwhile(t *testing.T) {
	t.Parallel()
	wire := &pgtest.Wire{}
	url := pgtest.URL(t)
	d := openWith(t, Config{URL: url, Dial: wire.Dial, Patience: backendtest.Patience})
	other := open(t, url)
	need(t, other.MakeSlices(t.Context(), now()))
	attachedAt := func(user string, floor uint64) {
		t.Helper()
		begun, err := other.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: user, Name: "s", EdgeId: "e"}, backend.Quota{}, now())
		need(t, err)
		codes, err := other.WriteCursors(t.Context(), []*meshv1.SessionWrite{{
			User: user, Name: "s", Generation: begun.GetGeneration(), Cursors: []*meshv1.SessionCursor{{Topic: "x", Floor: floor}},
		}}, now())
		need(t, err)
		if codes[0] != wirev1.Code_CODE_OK {
			t.Fatal(codes)
		}
	}
	attachedAt("u", 7)
	cuts := 0
	wire.Judge(func(s pgtest.Statement) pgtest.Fate {
		if sql, _, _ := strings.Cut(s.SQL, "parse: "); strings.Contains(sql, "LOCK TABLE ONLY pushmesh.cursor_page") {
			cuts++
			attachedAt("ann", 99)
			_, _, err := other.DeleteSession(t.Context(), "ann", "s")
			need(t, err)
		}
		return pgtest.Pass
	})
	_, err := d.AdoptSession(t.Context(), backend.Adoption{From: backend.SessionKey{User: "u", Name: "s"}, To: backend.SessionKey{User: "ann", Name: "s"}}, now())
	need(t, err)
	peek, err := other.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: "ann", Name: "s", Peek: true}, backend.Quota{}, now())
	need(t, err)
	if c := peek.GetCursors(); cuts != 1 || len(c) != 1 || c[0].GetFloor() != 7 {
		t.Errorf("after %d cuts the session has %v, want its own position", cuts, c)
	}
}
