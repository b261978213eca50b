package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Edges attach to one session at the same time: each gets a generation of its own, and the holder
// is who got the greatest.
func TestAttachesAtOnceGetGenerationsOfTheirOwn(t *testing.T) {
	d := open(t, pgtest.URL(t))
	at := now()
	var mu sync.Mutex
	seen := map[uint64]string{}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			edge := fmt.Sprint("e", i)
			resp, err := d.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: "u", Name: "s", EdgeId: edge}, backend.Quota{}, at)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if other, taken := seen[resp.GetGeneration()]; taken {
				t.Errorf("%s and %s both have generation %d", edge, other, resp.GetGeneration())
			}
			seen[resp.GetGeneration()] = edge
		})
	}
	wg.Wait()
	s, err := d.GetSession(t.Context(), "u", "s", at)
	need(t, err)
	for g, edge := range seen {
		if g > s.GetGeneration() || g == s.GetGeneration() && edge != s.GetEdge() {
			t.Errorf("%s has generation %d, the session is %v", edge, g, s)
		}
	}
}

// Writes of many sessions in different orders, with dead letters, wait for each other and never
// deadlock.
func TestCursorWritesOfTheSameSessionsAtOnce(t *testing.T) {
	d := open(t, pgtest.URL(t))
	const sessions = 8
	var generations [sessions]uint64
	for i := range generations {
		resp, err := d.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: "u", Name: fmt.Sprint(i), EdgeId: "e"}, backend.Quota{}, now())
		need(t, err)
		generations[i] = resp.GetGeneration()
	}
	var wg sync.WaitGroup
	for worker := range 6 {
		wg.Go(func() {
			for round := range uint64(10) {
				var writes []*meshv1.SessionWrite
				for k := range sessions {
					i := (k*5 + worker*3) % sessions
					writes = append(writes, &meshv1.SessionWrite{
						User: "u", Name: fmt.Sprint(i), Generation: generations[i],
						Cursors:     []*meshv1.SessionCursor{{Topic: "x", Floor: round, Acked: []uint64{round + 2, round + 3}}, {Topic: "y", Floor: round}},
						AddFilters:  []string{fmt.Sprint("f", round)},
						DeadLetters: []*meshv1.DeadLetter{{Topic: "x", Seq: round, User: "u", Session: fmt.Sprint(i)}},
					})
				}
				codes, err := d.WriteCursors(t.Context(), writes, now())
				if err != nil {
					t.Error(err)
					return
				}
				for i, k := range codes {
					if k != wirev1.Code_CODE_OK {
						t.Errorf("write %d: %v", i, k)
					}
				}
			}
		})
	}
	wg.Wait()
	letters, err := d.ListDeadLetters(t.Context(), "x", 0, 1000)
	need(t, err)
	if len(letters) != sessions*10 {
		t.Errorf("%d dead letters, want one for each session and message: %d", len(letters), sessions*10)
	}
}

func TestBadPageTokenIsRefused(t *testing.T) {
	d := open(t, pgtest.URL(t))
	if _, _, err := d.ListSessions(t.Context(), backend.SessionQuery{Limit: 10, PageToken: "?"}, now()); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("got %v", err)
	}
}

// A server that was restarted while the pool was idle costs no caller an error.
func TestARestartWhileIdleIsNotNoticed(t *testing.T) {
	server := pgtest.New(t)
	d := open(t, server.URL())
	for range 3 {
		need(t, d.Ping(t.Context()))
		need(t, server.Restart())
		if _, err := d.GetSession(t.Context(), "u", "s", now()); !errors.Is(err, backend.ErrNotFound) {
			t.Fatalf("after a restart: %v", err)
		}
	}
}

// A caller who gives up says nothing about the database.
func TestCancelledCallsDoNotOpenTheBreaker(t *testing.T) {
	d := open(t, pgtest.URL(t))
	for range 15 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.Ping(ctx); err == nil {
			t.Fatal("a cancelled question was answered")
		}
	}
	if d.Away() != nil {
		t.Error("the breaker is open")
	}
	need(t, d.Ping(t.Context()))
}
