package gate

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/hook"
	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// held is a verifier whose answers wait for a word.
type held struct {
	began chan string
	goOn  chan struct{}
}

func (h *held) Known(token string) *identity.Principal {
	if token == "known" {
		return &identity.Principal{User: "ann"}
	}
	return nil
}

func (h *held) Verify(ctx context.Context, token string) (*identity.Principal, error) {
	h.began <- token
	select {
	case <-h.goOn:
	case <-ctx.Done():
	}
	if token == "bad" {
		return nil, code.New(wirev1.Code_CODE_UNAUTHENTICATED, "bad")
	}
	return &identity.Principal{User: token}, nil
}

type world struct {
	*Gate
	*held
	answers chan exchange.Identified
}

func newWorld(t *testing.T, cfg Config) *world {
	w := &world{held: &held{began: make(chan string), goOn: make(chan struct{})}, answers: make(chan exchange.Identified, 100)}
	cfg.Verifier = w.held
	cfg.Post = func(_ uint16, e exchange.Event) bool { w.answers <- e.(exchange.Identified); return true }
	w.Gate = New(cfg)
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for done := make(chan struct{}); ; {
			go func() { _ = w.Stop(context.Background()); close(done) }()
			for {
				select {
				case <-w.began: // what had its turn
				case <-done:
					return
				}
			}
		}
	})
	return w
}

func (w *world) ask(slot int, from, token string) (*identity.Principal, *code.Error, bool) {
	return w.Identify(exchange.Conn{Slot: uint32(slot)}, principals.Shown{From: from, Token: token})
}

func TestTokensAreCheckedOffTheLoop(t *testing.T) {
	w := newWorld(t, Config{})
	if who, why, known := w.ask(1, "", "known"); !known || why != nil || who.User != "ann" {
		t.Fatalf("a token that was seen before: %v %v %v", who, why, known)
	}
	for i, token := range []string{"bob", "bad"} {
		if _, _, known := w.ask(i, "a", token); known {
			t.Fatalf("%s is known", token)
		}
		if got := <-w.began; got != token {
			t.Fatalf("%s is checked", got)
		}
		w.goOn <- struct{}{}
		a := <-w.answers
		if a.Conn.Slot != uint32(i) || (a.Why == nil) != (token == "bob") || a.Why == nil && a.Who.User != "bob" {
			t.Errorf("%s: %+v", token, a)
		}
	}
}

// Who shows very many tokens waits for itself, and gives way where there is no room.
func TestAddressesTakeTurns(t *testing.T) {
	w := newWorld(t, Config{UnderWay: 1, Waiting: 4})
	slot := 0
	ask := func(from string) (refused bool) {
		slot++
		_, why, known := w.ask(slot, from, fmt.Sprint(from, slot))
		if known && why.Code != wirev1.Code_CODE_OVERLOADED {
			t.Fatalf("%v", why)
		}
		return known
	}
	ask("flood")
	if got := <-w.began; got != "flood1" {
		t.Fatal(got)
	}
	for range 4 {
		if ask("flood") {
			t.Fatal("there is room")
		}
	}
	if !ask("flood") {
		t.Error("the flood gets more than there is room for")
	}
	if ask("ann") {
		t.Error("an address that has none is refused for one that has all")
	}
	if a := <-w.answers; a.Conn.Slot != 5 || a.Why == nil || a.Why.RetryAfter == 0 {
		t.Errorf("another gave way: %+v", a)
	}
	if s := w.Stats(); s.UnderWay != 1 || s.Waiting != 4 || s.GaveWay != 2 {
		t.Errorf("%+v", s)
	}
	var order []string
	for range 4 {
		w.goOn <- struct{}{}
		order = append(order, <-w.began)
	}
	if want := []string{"flood2", "ann7", "flood3", "flood4"}; !slices.Equal(order, want) {
		t.Errorf("checked were %v, want %v", order, want)
	}
	w.goOn <- struct{}{}
}

func TestClientsWithoutAToken(t *testing.T) {
	for mode, want := range map[Nameless]bool{"": false, Refuse: false, Warn: true, Accept: true} {
		g := New(Config{Nameless: mode})
		why := g.Nameless()
		if in := why == nil; in != want || !in && why.Code != wirev1.Code_CODE_UNAUTHENTICATED {
			t.Errorf("%q: %v", mode, why)
		}
		if n := g.Stats().Nameless; (n == 1) != want {
			t.Errorf("%q: %d are counted", mode, n)
		}
	}
}

func TestAGateThatStopsTakesNothing(t *testing.T) {
	g := New(Config{Verifier: &held{}})
	if _, why, known := g.Identify(exchange.Conn{}, principals.Shown{Token: "x"}); !known || why.Code != wirev1.Code_CODE_DRAINING {
		t.Errorf("%v", why)
	}
	if err := g.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// Very many at once, from many goroutines as loops are: each is answered once.
func TestEachIsAnsweredOnce(t *testing.T) {
	const loops, each = 4, 500
	var mu sync.Mutex
	got := map[exchange.Conn]int{}
	all := make(chan struct{}, loops*each)
	g := New(Config{Verifier: at{}, UnderWay: 8, Waiting: 100, Post: func(_ uint16, e exchange.Event) bool {
		mu.Lock()
		got[e.(exchange.Identified).Conn]++
		mu.Unlock()
		all <- struct{}{}
		return true
	}})
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var askers sync.WaitGroup
	for loop := range loops {
		askers.Go(func() {
			for i := range each {
				conn := exchange.Conn{Loop: uint16(loop), Slot: uint32(i)}
				if _, why, known := g.Identify(conn, principals.Shown{From: fmt.Sprint(i % 7), Token: "x"}); known {
					g.cfg.Post(0, exchange.Identified{Conn: conn, Why: why})
				}
			}
		})
	}
	askers.Wait()
	for range loops * each {
		<-all
	}
	if err := g.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for conn, n := range got {
		if n != 1 {
			t.Fatalf("%v is answered %d times", conn, n)
		}
	}
	if s := g.Stats(); len(got) != loops*each || s.UnderWay != 0 || s.Waiting != 0 {
		t.Fatalf("%d are answered; %+v", len(got), s)
	}
}

// at answers at once.
type at struct{}

func (at) Known(string) *identity.Principal { return nil }
func (at) Verify(context.Context, string) (*identity.Principal, error) {
	return &identity.Principal{User: "ann"}, nil
}

// says is a backend that knows everybody by what they say.
type says struct{ asked chan *hook.Question }

func (s *says) Known(q *hook.Question) *identity.Principal {
	if q.Client == "known" {
		return &identity.Principal{User: "ann"}
	}
	return nil
}

func (s *says) Ask(_ context.Context, q *hook.Question) (*identity.Principal, error) {
	s.asked <- q
	if q.Token == "" {
		return nil, code.New(wirev1.Code_CODE_UNAUTHENTICATED, "nobody")
	}
	return &identity.Principal{User: "u-" + q.Token}, nil
}

// What has the form of a signed token is for the issuers, all else for the backend, where there is
// one: also that nothing is shown.
func TestWhoIsAsked(t *testing.T) {
	s := &says{asked: make(chan *hook.Question, 1)}
	w := newWorld(t, Config{Backend: s, Edge: "e1"})
	if !w.Asks() {
		t.Error("clients without a token are not asked about")
	}
	ask := func(shown principals.Shown) *identity.Principal {
		who, why, known := w.Identify(exchange.Conn{}, shown)
		if why != nil || (who == nil) == known {
			t.Fatal(who, why, known)
		}
		return who
	}
	if who := ask(principals.Shown{ClientID: "known"}); who == nil || who.User != "ann" {
		t.Errorf("got %v", who)
	}
	ask(principals.Shown{From: "10.1.1.1", Token: "cookie", ClientID: "phone", Session: "s"})
	if q := <-s.asked; *q != (hook.Question{Token: "cookie", Client: "phone", Session: "s", Address: "10.1.1.1", Edge: "e1"}) {
		t.Errorf("asked %v", q)
	}
	if a := <-w.answers; a.Who.User != "u-cookie" {
		t.Errorf("got %v", a)
	}
	ask(principals.Shown{})
	<-s.asked
	if a := <-w.answers; a.Who != nil || a.Why.Code != wirev1.Code_CODE_UNAUTHENTICATED {
		t.Errorf("got %v", a)
	}
	ask(principals.Shown{Token: "a.b.c", ClientID: "known"})
	if token := <-w.began; token != "a.b.c" || len(s.asked) != 0 {
		t.Errorf("%s is checked", token)
	}
	w.goOn <- struct{}{}
	if a := <-w.answers; a.Who.User != "a.b.c" {
		t.Errorf("got %v", a)
	}
	alone := New(Config{Backend: s})
	if who, err := alone.find(t.Context(), principals.Shown{Token: "a.b.c"}); err != nil || who.User != "u-a.b.c" || (<-s.asked).Token != "a.b.c" {
		t.Error("without issuers the backend is asked about all")
	}
}
