package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// gathering has known sessions u0, u1, … of which each has a filter and a cursor in a page, and
// holds all rounds up until whoever is to be in the next one waits.
type gathering struct {
	*Sessions
	t    *testing.T
	url  string
	wire *pgtest.Wire

	held    chan struct{} // closed: rounds go on
	blocked sync.WaitGroup
	mu      sync.Mutex
	seen    []string // statements since rounds go on
	fate    func(sql string) pgtest.Fate
}

func isRound(sql string) bool { return strings.Contains(sql, "SKIP LOCKED) AS s") }

func gather(t *testing.T, known int) *gathering {
	t.Helper()
	g := &gathering{t: t, url: pgtest.URL(t), wire: &pgtest.Wire{}, held: make(chan struct{}), fate: func(string) pgtest.Fate { return pgtest.Pass }}
	ctx, cancel := context.WithTimeout(t.Context(), backendtest.Patience)
	defer cancel()
	s, err := server.Open(ctx, server.Config{
		URL: g.url, Dial: g.wire.Dial, Patience: backendtest.Patience, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	need(t, err)
	t.Cleanup(func() { need(t, s.Close()) })
	g.Sessions = opened(t, s)
	for i := range known {
		resp, err := g.AttachSession(t.Context(), asked(i, "before"), backend.Quota{}, now())
		need(t, err)
		_, err = g.WriteCursors(t.Context(), []*meshv1.SessionWrite{{
			User: asked(i, "").GetUser(), Name: "s", Generation: resp.GetGeneration(), AddFilters: []string{"f", fmt.Sprint("g", i)},
			Cursors: []*meshv1.SessionCursor{{Topic: "x", Epoch: 1, Floor: uint64(i)}},
		}}, now())
		need(t, err)
	}
	g.wire.Judge(func(s pgtest.Statement) pgtest.Fate {
		if strings.HasPrefix(s.SQL, "parse: ") {
			return pgtest.Pass
		}
		if isRound(s.SQL) {
			<-g.held
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.seen = append(g.seen, s.SQL)
		return g.fate(s.SQL)
	})
	// Each round that may be under way has one, of nobody else.
	for i := range roundsAtOnce {
		g.blocked.Go(func() {
			_, err := g.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: fmt.Sprint("blocks", i), Name: "s", EdgeId: "e"}, backend.Quota{}, now())
			if err != nil {
				t.Error(err)
			}
		})
		g.until(func(waiting, running int) bool { return running == i+1 && waiting == 0 })
	}
	return g
}

func asked(i int, edge string) *meshv1.AttachSessionRequest {
	return &meshv1.AttachSessionRequest{User: fmt.Sprint("u", i), Name: "s", EdgeId: edge, ConnectionId: uint64(i + 1)}
}

// until polls who waits for a round.
func (g *gathering) until(ok func(waiting, running int) bool) {
	g.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(backendtest.Patience)
	for {
		g.rounds.mu.Lock()
		waiting, running := len(g.rounds.waiting), g.rounds.running
		g.rounds.mu.Unlock()
		if ok(waiting, running) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			g.t.Fatalf("%d wait, %d rounds", waiting, running)
		}
	}
}

// goOn lets the rounds go on.
func (g *gathering) goOn() {
	g.t.Helper()
	close(g.held)
	g.blocked.Wait()
}

type answer struct {
	resp *meshv1.AttachSessionResponse
	err  error
}

// ask has all wait for one round.
func (g *gathering) ask(reqs ...*meshv1.AttachSessionRequest) []chan answer {
	g.t.Helper()
	all := make([]chan answer, len(reqs))
	for i, req := range reqs {
		all[i] = make(chan answer, 1)
		go func() {
			resp, err := g.AttachSession(g.t.Context(), req, backend.Quota{}, now())
			all[i] <- answer{resp, err}
		}()
	}
	g.until(func(waiting, _ int) bool { return waiting == len(reqs) })
	return all
}

func (g *gathering) check(i int, a answer) {
	g.t.Helper()
	if a.err != nil {
		g.t.Errorf("u%d: %v", i, a.err)
		return
	}
	r := a.resp
	if !r.GetResumed() || len(r.GetCursors()) != 1 || r.GetCursors()[0].GetFloor() != uint64(i) || len(r.GetFilters()) != 2 || r.GetFilters()[1] != fmt.Sprint("g", i) {
		g.t.Errorf("u%d: %v", i, r)
	}
	s, err := g.GetSession(g.t.Context(), fmt.Sprint("u", i), "s", now())
	need(g.t, err)
	if s.GetEdge() != "after" || s.GetGeneration() != r.GetGeneration() || s.GetConnectionId() != uint64(i+1) {
		g.t.Errorf("u%d is %v, answered %v", i, s, r)
	}
}

// Known sessions, peeks and new ones that come while others are under way go together: what is sent
// to the server does not grow with them, new ones aside.
func TestAttachesGoTogether(t *testing.T) {
	t.Parallel()
	const known = 60
	g := gather(t, known)
	var reqs []*meshv1.AttachSessionRequest
	for i := range known {
		reqs = append(reqs, asked(i, "after"))
	}
	peek, absent := &meshv1.AttachSessionRequest{User: "blocks0", Name: "s", Peek: true}, &meshv1.AttachSessionRequest{User: "nobody", Name: "s", Peek: true}
	all := g.ask(append(reqs, peek, absent, &meshv1.AttachSessionRequest{User: "new", Name: "s", EdgeId: "after"})...)
	g.goOn()
	rest := all[known:]
	for i, c := range all[:known] {
		a := <-c
		g.check(i, a)
		if a.resp.GetPreviousEdge() != "before" || a.resp.GetPreviousConnectionId() != uint64(i+1) {
			t.Errorf("u%d was held by %v", i, a.resp)
		}
	}
	if a := <-rest[0]; a.err != nil {
		t.Error(a.err)
	}
	if a := <-rest[1]; a.err != nil || a.resp.GetResumed() || a.resp.GetGeneration() != 0 {
		t.Errorf("peek at nobody: %+v", a)
	}
	if a := <-rest[2]; a.err != nil || a.resp.GetResumed() || a.resp.GetGeneration() == 0 {
		t.Errorf("a new one: %+v", a)
	}
	rounds, cursors := 0, 0
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, sql := range g.seen {
		if isRound(sql) {
			rounds++
		}
		if strings.Contains(sql, "FROM pushmesh.cursor WHERE user_id = w.user_id") {
			cursors++
		}
	}
	if rounds > roundsAtOnce+1 || cursors > 1 {
		t.Errorf("%d rounds, cursors were read %d times, for %d sessions at a time", rounds, cursors, known)
	}
}

// One that the server does not take fails alone.
func TestABadAttachFailsAlone(t *testing.T) {
	t.Parallel()
	const known = 5
	g := gather(t, known)
	reqs := []*meshv1.AttachSessionRequest{{User: "with\x00nul", Name: "s", EdgeId: "after"}}
	for i := range known {
		reqs = append(reqs, asked(i, "after"))
	}
	all := g.ask(reqs...)
	g.goOn()
	if a := <-all[0]; server.SQLState(a.err) != "22021" {
		t.Errorf("a name with a zero: %+v", a)
	}
	for i, c := range all[1:] {
		g.check(i, <-c)
	}
}

// A round does not wait for a session that somebody else has locked; who attaches that one does.
func TestARoundWaitsForNoLock(t *testing.T) {
	t.Parallel()
	const known = 5
	g := gather(t, known)
	other, err := pgx.Connect(t.Context(), g.url)
	need(t, err)
	defer func() { need(t, other.Close(t.Context())) }()
	tx, err := other.Begin(t.Context())
	need(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM pushmesh.session WHERE user_id = 'u2' FOR UPDATE`)
	need(t, err)
	var reqs []*meshv1.AttachSessionRequest
	for i := range known {
		reqs = append(reqs, asked(i, "after"))
	}
	all := g.ask(reqs...)
	g.goOn()
	for i, c := range all {
		if i != 2 {
			g.check(i, <-c)
		}
	}
	select {
	case a := <-all[2]:
		t.Errorf("attached under another's lock: %+v", a)
	default:
	}
	need(t, tx.Commit(t.Context()))
	g.check(2, <-all[2])
}

// Who gives up while it waits attaches nothing, and nobody else notices.
func TestACallerGivesUpBeforeItsRound(t *testing.T) {
	t.Parallel()
	g := gather(t, 3)
	before, err := g.GetSession(t.Context(), "u0", "s", now())
	need(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := g.AttachSession(ctx, asked(0, "after"), backend.Quota{}, now())
		gone <- err
	}()
	g.until(func(waiting, _ int) bool { return waiting == 1 })
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up: %v", err)
	}
	all := g.ask(asked(1, "after"), asked(2, "after"))
	g.goOn()
	g.check(1, <-all[0])
	g.check(2, <-all[1])
	after, err := g.GetSession(t.Context(), "u0", "s", now())
	need(t, err)
	if after.GetGeneration() != before.GetGeneration() || after.GetEdge() != "before" {
		t.Errorf("%v, before %v", after, before)
	}
}

// Whatever becomes of a round's statement, each is answered: with what the session has and a
// generation that holds, or, where the connection broke while holds were taken, with an error,
// after which the session is attached as if nothing had been.
func TestARoundsStatementsFail(t *testing.T) {
	t.Parallel()
	for _, fate := range []pgtest.Fate{pgtest.Refused, pgtest.Unsent, pgtest.Unanswered} {
		for _, of := range []string{"holds", "cursors"} {
			t.Run(fmt.Sprint(fate, " ", of), func(t *testing.T) {
				t.Parallel()
				const known = 4
				g := gather(t, known)
				rounds, failed := 0, 0
				g.fate = func(sql string) pgtest.Fate {
					if isRound(sql) {
						rounds++
					}
					// those that were held up are passed on first
					if of == "holds" && isRound(sql) && rounds == roundsAtOnce+1 ||
						of == "cursors" && strings.Contains(sql, "FROM pushmesh.cursor WHERE user_id = w.user_id") && failed == 0 {
						failed++
						return fate
					}
					return pgtest.Pass
				}
				var reqs []*meshv1.AttachSessionRequest
				for i := range known {
					reqs = append(reqs, asked(i, "after"))
				}
				all := g.ask(reqs...)
				g.goOn()
				for i, c := range all {
					a := <-c
					if of == "holds" && fate != pgtest.Refused {
						if a.err == nil {
							t.Errorf("u%d: %v over a broken connection", i, a.resp)
						}
						a.resp, a.err = g.AttachSession(t.Context(), reqs[i], backend.Quota{}, now())
					}
					g.check(i, a)
				}
				g.mu.Lock()
				defer g.mu.Unlock()
				if failed != 1 {
					t.Errorf("%d statements have failed", failed)
				}
			})
		}
	}
}

// Attaches beside all else that locks sessions: nothing fails, and nothing waits for ever.
func TestRoundsBesideWhatLocksSessions(t *testing.T) {
	t.Parallel()
	d := open(t, pgtest.URL(t))
	const sessions, turns = 40, 12
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for turn := range turns {
				for k := range 5 {
					i := (k*7 + worker*3 + turn) % sessions
					resp, err := d.AttachSession(t.Context(), asked(i, fmt.Sprint("e", worker%3)), backend.Quota{User: 3, All: 1000}, now())
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := d.WriteCursors(t.Context(), []*meshv1.SessionWrite{
						{User: fmt.Sprint("u", i), Name: "s", Generation: resp.GetGeneration(), AddFilters: []string{"f"}, Detach: turn%2 == 0},
						{User: fmt.Sprint("u", (i+9)%sessions), Name: "s", Generation: 1, AddFilters: []string{"f"}},
					}, now()); err != nil {
						t.Error(err)
						return
					}
				}
				if _, err := d.DetachEdge(t.Context(), fmt.Sprint("e", turn%3), now(), 20); err != nil {
					t.Error(err)
				}
				if worker == 0 {
					if _, err := d.ExpireSessions(t.Context(), now()+uint64((8*24*time.Hour).Microseconds()), 10); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
}

// A round looks at its own sessions only, whatever the server knows of the table.
func TestARoundLooksAtNoOtherSessions(t *testing.T) {
	t.Parallel()
	const round = 20
	url := pgtest.URL(t)
	d := open(t, url)
	undone := errors.New("undone")
	pgtest.Exec(t, url, `INSERT INTO pushmesh.session (user_id, name, generation, connection_id, attached_at, expires_at, ttl, edge)
		SELECT 'user-' || i, 'phone', 1, i, 1, 0, 3600000000, 'edge-' || i % 3 FROM generate_series(1, 40000) AS i`)
	for _, known := range []bool{false, true} {
		if known {
			pgtest.Exec(t, url, `ANALYZE pushmesh.session`)
		}
		looked, text := map[string]float64{}, ""
		err := d.server.Do(t.Context(), func(ctx context.Context, conn *pgxpool.Conn) error {
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, `PREPARE round (text[], text[], bigint[], text[], bigint[], bigint[]) AS `+raiseKnown); err != nil {
					return err
				}
				defer func() { _, _ = tx.Exec(ctx, `DEALLOCATE round`) }()
				var users []string
				for i := range round {
					users = append(users, fmt.Sprint("user-", 100*(i+1)))
				}
				each := func(one string) string { return "'{" + strings.Join(slices.Repeat([]string{one}, round), ",") + "}'" }
				sql := fmt.Sprintf(`EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE round ('{%s}', %s, %s, %s, %s, %s)`,
					strings.Join(users, ","), each("phone"), each("2"), each("edge"), each("2"), each("2"))
				if err := tx.QueryRow(ctx, sql, pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
					return err
				}
				return undone
			})
		})
		if !errors.Is(err, undone) {
			t.Fatal(err)
		}
		var plans []struct{ Plan node }
		need(t, json.Unmarshal([]byte(text), &plans))
		plans[0].Plan.looked(looked)
		delete(looked, "Subquery Scan") // of the same rows
		if looked["Index Scan session_pkey"] != 2*round || len(looked) != 1 {
			t.Errorf("analyzed %v: these rows were looked at: %v\n%s", known, looked, text)
		}
	}
}
