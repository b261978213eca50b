package asker

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// slow is a hook whose answers wait for a word.
type slow struct {
	began chan string
	goOn  chan struct{}
}

func (s *slow) Timeout() time.Duration { return time.Second }

func (s *slow) Known(q *identity.Question) (identity.Permission, bool) {
	return identity.Permission{Allowed: true, Left: time.Minute}, q.User == "known"
}

func (s *slow) Ask(ctx context.Context, q *identity.Question) (identity.Permission, error) {
	s.began <- q.User
	select {
	case <-s.goOn:
	case <-ctx.Done():
	}
	if q.User == "bad" {
		return identity.Permission{}, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "down")
	}
	return identity.Permission{Allowed: true, Left: time.Second}, nil
}

func open(t *testing.T, cfg Config) (*Asker, *slow, chan exchange.Permitted) {
	t.Helper()
	s, got := &slow{began: make(chan string, 100), goOn: make(chan struct{}, 100)}, make(chan exchange.Permitted, 100)
	cfg.Hook, cfg.Post = s, func(_ uint16, e exchange.Event) bool { got <- e.(exchange.Permitted); return true }
	a := New(cfg)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return a, s, got
}

func ask(a *Asker, serial uint64, from, user string, have time.Duration) *code.Error {
	return a.Ask(exchange.Conn{Loop: 1, Slot: uint32(serial)}, serial, &identity.Question{User: user, Address: from}, have)
}

// Each question is answered by its serial, whatever came of it; what another has asked meanwhile
// needs no question, unless that is no better than what there is.
func TestQuestionsAreAnswered(t *testing.T) {
	a, s, got := open(t, Config{})
	for serial, user := range []string{1: "ann", 2: "bad", 3: "known"} {
		if user == "" {
			continue
		}
		if why := ask(a, uint64(serial), "", user, 0); why != nil {
			t.Fatal(why)
		}
		s.goOn <- struct{}{}
		e := <-got
		if e.Serial != uint64(serial) || e.Conn.Slot != uint32(serial) || (e.Why != nil) != (user == "bad") || e.Says.Allowed != (user != "bad") {
			t.Errorf("%s: %+v", user, e)
		}
	}
	if n := len(s.began); n != 2 {
		t.Errorf("the hook was asked %d times", n)
	}
	if why := ask(a, 4, "", "known", 2*time.Minute); why != nil {
		t.Fatal(why)
	}
	for range 3 {
		<-s.began
	}
}

// Where too many wait, who has most of them waiting gives one up, and is told when to come back.
func TestWhoWantsMostGivesWay(t *testing.T) {
	a, s, got := open(t, Config{UnderWay: 1, Waiting: 4})
	for serial := range uint64(5) {
		if why := ask(a, serial, "10.0.0.1", "greedy", 0); why != nil {
			t.Fatal(why)
		}
	}
	<-s.began
	if why := ask(a, 9, "10.0.0.1", "greedy", 0); why == nil || why.Code != wirev1.Code_CODE_OVERLOADED || why.RetryAfter <= 0 {
		t.Errorf("one more than may wait: %v", why)
	}
	if why := ask(a, 10, "10.0.0.2", "ann", 0); why != nil {
		t.Fatalf("another address: %v", why)
	}
	if e := <-got; e.Serial != 4 || e.Why == nil || e.Why.Code != wirev1.Code_CODE_OVERLOADED {
		t.Errorf("%+v gave way", e)
	}
	if st := a.Stats(); st.Waiting != 4 || st.UnderWay != 1 || st.GaveWay != 2 {
		t.Errorf("%+v", st)
	}
	var order []string
	for range 2 {
		s.goOn <- struct{}{}
		order = append(order, <-s.began)
	}
	if order[0] != "ann" && order[1] != "ann" {
		t.Errorf("%v came before the other address", order)
	}
}
