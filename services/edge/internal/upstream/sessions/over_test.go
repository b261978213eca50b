package sessions

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// A holder whose session another edge has since is told at once, though it writes nothing.
func TestWhoLostASessionElsewhereIsToldAtOnce(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		b.Over("u", "s", g, wirev1.Code_CODE_OK) // about an older one
		b.Over("u", "other", g+1, wirev1.Code_CODE_OK)
		synctest.Wait()
		if b.Held.Load() != 1 {
			t.Fatal("the hold was ended by a notice about an older one")
		}
		b.Save(conn(1), 7, write(g, 5), false)
		b.Over("u", "s", g+1, wirev1.Code_CODE_OK)
		b.expect(exchange.Detached{Conn: conn(1), Err: errTakenOver})
		b.expect(exchange.Saved{Conn: conn(1), Ref: 7, Err: errTakenOver})
		pass(time.Minute)
		if len(b.written()) != 0 || b.Held.Load() != 0 || b.kept() != 0 {
			t.Errorf("%d writes, %d held, %d kept", len(b.written()), b.Held.Load(), b.kept())
		}
	})
}

// The notice may overtake the store's answer.
func TestWhoLostASessionBeforeItsAnswerCame(t *testing.T) {
	in(t, func(b *bench) {
		b.raising = func() {
			b.raising = nil
			b.Over("u", "s", 2, wirev1.Code_CODE_OK)
			b.Over("u", "s", 2, wirev1.Code_CODE_NOT_FOUND) // the first notice says why
			synctest.Wait()
		}
		b.Attach(conn(1), "u", "s", 0, 1, "")
		if e := (<-b.events).(exchange.Attached); code.Of(e.Err) != wirev1.Code_CODE_SESSION_TAKEN_OVER || e.Conn != conn(1) {
			t.Errorf("%+v", e)
		}
		synctest.Wait()
		if b.Held.Load() != 0 || b.TakenOver.Load() != 1 {
			t.Errorf("%d held, %d taken over", b.Held.Load(), b.TakenOver.Load())
		}
		if g := b.attach(2); g != 2 { // of the present generation, which the notice was not about
			t.Errorf("generation %d", g)
		}
	})
}

// Whom the store names as the holder before is told, again and again where it can't be reached.
func TestTheHolderBeforeIsTold(t *testing.T) {
	in(t, func(b *bench) {
		// it has attached between the question and the attach
		b.raising = func() { b.set(func() { b.holder, b.generation = "e2", 4 }) }
		b.set(func() { b.deaf = 3 })
		b.attach(1)
		pass(time.Minute)
		b.set(func() {
			if !slices.Equal(b.over, []string{"e2 u s 5"}) || b.Untold.Load() != 0 {
				t.Errorf("told %v, %d untold", b.over, b.Untold.Load())
			}
		})
		b.set(func() { b.deaf, b.over = 100, nil })
		b.Over("u", "s", 6, wirev1.Code_CODE_OK)
		b.expect(exchange.Detached{Conn: conn(1), Err: errTakenOver})
		b.attach(2)
		pass(time.Minute)
		b.set(func() {
			if len(b.over) != 0 || b.Untold.Load() != 1 || len(b.tells) != 0 {
				t.Errorf("told %v, %d untold", b.over, b.Untold.Load())
			}
		})
	})
}

// A session that is deleted is no takeover: its holder is told so, at once or with the write that
// finds out.
func TestTheHolderOfADeletedSessionIsTold(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		b.Over("u", "s", g+1, wirev1.Code_CODE_NOT_FOUND)
		b.expect(exchange.Detached{Conn: conn(1), Err: errDeleted})
		g = b.attach(2)
		b.set(func() { b.refuse = wirev1.Code_CODE_NOT_FOUND })
		b.Save(conn(2), 2, write(g, 5), true)
		b.expect(exchange.Saved{Conn: conn(2), Ref: 2, Err: errDeleted})
		b.expect(exchange.Detached{Conn: conn(2), Err: errDeleted})
		if code.Of(errDeleted) != wirev1.Code_CODE_NOT_FOUND {
			t.Error("not the code of docs/protocol.md")
		}
	})
}

// shared is a store with one session, for the edges of a test. Every call takes its time.
type shared struct {
	r          *rand.Rand
	lock       chan struct{}
	generation uint64
	holder     string
}

func (s *shared) locked(f func()) {
	s.lock <- struct{}{}
	defer func() { <-s.lock }()
	f()
}

func (s *shared) takeTime() {
	var d time.Duration
	s.locked(func() { d = time.Duration(s.r.IntN(3000)) * time.Microsecond })
	pass(d)
}

func (s *shared) AttachSession(_ context.Context, req *meshv1.AttachSessionRequest) (resp *meshv1.AttachSessionResponse, err error) {
	s.takeTime()
	s.locked(func() {
		resp = &meshv1.AttachSessionResponse{Generation: s.generation, PreviousEdge: s.holder}
		if !req.GetPeek() {
			s.generation++
			s.holder, resp.Generation = req.GetEdgeId(), s.generation
		}
	})
	s.takeTime()
	return resp, nil
}

func (s *shared) WriteCursors(_ context.Context, req *meshv1.WriteCursorsRequest) (*meshv1.WriteCursorsResponse, error) {
	resp := &meshv1.WriteCursorsResponse{}
	s.takeTime()
	s.locked(func() {
		for _, w := range req.GetWrites() {
			c := wirev1.Code_CODE_SESSION_TAKEN_OVER
			if w.GetGeneration() == s.generation {
				c = wirev1.Code_CODE_OK
				if w.GetDetach() {
					s.holder = ""
				}
			}
			resp.Codes = append(resp.Codes, c)
		}
	})
	return resp, nil
}

// Connections of one session that say Hello at several edges within milliseconds, and then are
// silent: whoever comes first, and whatever is late, one keeps it, the one that the store knows,
// and every other one is told.
func TestOneOfManyEdgesKeepsASession(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { keepOne(t, seed) })
	}
}

func keepOne(t *testing.T, seed uint64) {
	store := &shared{r: rand.New(rand.NewPCG(seed, 1)), lock: make(chan struct{}, 1)}
	edges := map[string]*Sessions{}
	told, holds := map[string]bool{}, map[string]uint64{}
	for i := range 3 {
		id := fmt.Sprint("e", i)
		var s *Sessions
		s = New(Config{
			Edge: id, Store: store, Log: slog.New(slog.DiscardHandler),
			Post: func(_ uint16, e exchange.Event) {
				store.locked(func() {
					switch e := e.(type) {
					case exchange.Attached:
						if told[id] = e.Err != nil; !told[id] {
							holds[id] = e.Generation
						}
					case exchange.Detached:
						told[id] = true
					case exchange.Yield:
						told[id] = true
						s.Save(e.Conn, 0, &meshv1.SessionWrite{User: "u", Name: "s", Generation: holds[id], Detach: true}, true)
					}
				})
			},
			Yield: func(ctx context.Context, edge, user, name string) bool {
				store.takeTime()
				return edges[edge].Yield(ctx, user, name)
			},
			Over: func(_ context.Context, edge, user, name string, generation uint64) bool {
				store.takeTime()
				edges[edge].Over(user, name, generation, wirev1.Code_CODE_OK)
				return true
			},
		})
		edges[id] = s
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}()
	}
	for _, s := range edges {
		store.takeTime()
		s.Attach(exchange.Conn{Slot: 1, Gen: 1}, "u", "s", 0, 1, "")
	}
	<-time.After(time.Minute)
	store.locked(func() {
		for id, s := range edges {
			keeps := s.Held.Load() == 1 && !told[id]
			if keeps != (store.holder == id && holds[id] == store.generation) {
				t.Errorf("seed %d: the store has %s under %d; %s holds %d under %d, told %v", seed, store.holder, store.generation, id, s.Held.Load(), holds[id], told[id])
			}
		}
	})
}
