package dbgate

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func gate() *Gate {
	return New(Config{Name: "postgres", Conns: 20, Reads: 8, Acquire: 5 * time.Second, Now: time.Now})
}

func enter(t *testing.T, g *Gate, class Class) *Ticket {
	t.Helper()
	ticket, err := g.Enter(context.Background(), class)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

// fill enters until somebody would have to wait.
func fill(g *Gate, class Class) (all []*Ticket) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		ticket, err := g.Enter(ctx, class)
		cancel()
		if err != nil {
			return all
		}
		all = append(all, ticket)
	}
}

func openIt(t *testing.T, g *Gate) {
	t.Helper()
	for range failuresToOpen {
		enter(t, g, Small).Leave(Failed)
	}
}

func refusedAs(t *testing.T, err error, want wirev1.Code) {
	t.Helper()
	if e := code.From(err); err == nil || e.Code != want || e.RetryAfter == 0 {
		t.Errorf("got %v, want %s with a time to come back", err, code.Name(want))
	}
}

func TestBulkheads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate()
		reads := fill(g, Reads)
		small := fill(g, Small)
		vital := fill(g, Vital)
		if len(reads) != 6 || len(small) != 10 || len(vital) != Reserved {
			// 8 of 20 are 6 of the 16 that are not reserved
			t.Fatalf("%d reads, %d small, %d vital", len(reads), len(small), len(vital))
		}
		for _, ticket := range small {
			ticket.Leave(Answered)
		}
		if more := fill(g, Reads); len(more) != 0 {
			t.Errorf("%d more reads where small statements were", len(more))
		}
		if small := fill(g, Small); len(small) != 10 {
			t.Errorf("%d small statements beside the reads", len(small))
		}
	})
}

func TestEverybodyGetsATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate()
		var wg sync.WaitGroup
		for i := range 900 {
			wg.Go(func() {
				ticket, err := g.Enter(context.Background(), Class(i%3))
				if err != nil {
					t.Error(err)
					return
				}
				<-time.After(time.Millisecond)
				ticket.Leave(Answered)
			})
		}
		wg.Wait()
		if s := g.Status(); s.Busy != [classes]int{} || s.Waiting != [classes]int{} || s.Waits == 0 {
			t.Errorf("afterwards: %+v", s)
		}
	})
}

func TestWaitersAreRefusedWhenTheBreakerOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate()
		var held []*Ticket
		held = append(held, fill(g, Small)...)
		refused := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := g.Enter(context.Background(), Small)
				refused <- err
			}()
		}
		synctest.Wait()
		begun := time.Now()
		for range failuresToOpen {
			g.Note(Failed)
		}
		for range 3 {
			refusedAs(t, <-refused, wirev1.Code_CODE_UNAVAILABLE)
		}
		_, err := g.Enter(context.Background(), Small)
		refusedAs(t, err, wirev1.Code_CODE_UNAVAILABLE)
		if time.Since(begun) != 0 {
			t.Errorf("refused only after %s", time.Since(begun))
		}
		for _, ticket := range held {
			ticket.Leave(Failed)
		}
		if g.Away() == nil || g.Check() == nil {
			t.Error("nobody is told")
		}
	})
}

func TestTheLimitRampsUpAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate()
		openIt(t, g)
		for range successesToClose {
			<-time.After(ProbeEvery)
			ticket, err := g.Try()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.Try(); err == nil {
				t.Fatal("two probes at once")
			}
			ticket.Leave(Answered)
		}
		if at := g.Status().Limit; at != 2 {
			t.Errorf("%d at once, want a tenth", at)
		}
		got := make(chan *Ticket, 16) // waiters are let in as the limit grows, though nobody leaves
		for range 16 {
			go func() {
				ticket, err := g.Enter(context.Background(), Small)
				if err != nil {
					t.Error(err)
				}
				got <- ticket
			}()
		}
		<-time.After(ramp + recheckEvery)
		synctest.Wait()
		if len(got) != 15 { // the last is a read's
			t.Errorf("%d of 16 are at work after the ramp", len(got))
		}
		(<-got).Leave(Answered)
		synctest.Wait()
		for range 15 {
			(<-got).Leave(Answered)
		}
	})
}

func TestAFullPoolIsBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate()
		held := fill(g, Small)
		begun := time.Now()
		first := make(chan error, 1)
		go func() {
			_, err := g.Enter(context.Background(), Small)
			first <- err
		}()
		<-time.After(2 * time.Second) // longer than newcomers are let wait behind
		asked := time.Now()
		_, err := g.Enter(context.Background(), Small)
		refusedAs(t, err, wirev1.Code_CODE_OVERLOADED)
		if time.Since(asked) != 0 {
			t.Errorf("a newcomer was refused only after %s", time.Since(asked))
		}
		refusedAs(t, <-first, wirev1.Code_CODE_OVERLOADED)
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("the first in line waited %s", took)
		}
		for range 20 {
			enter(t, g, Reads).Leave(PoolExhausted)
			<-time.After(ProbeEvery)
		}
		if g.Away() != nil {
			t.Error("the breaker is open")
		}
		for _, ticket := range held {
			ticket.Leave(Answered)
		}
		if g.Check() != nil {
			t.Error(g.Check())
		}
	})
}

func TestAStarvedPoolRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate()
		enter(t, g, Small).Leave(PoolExhausted)
		trial := enter(t, g, Small) // one tries
		_, err := g.Enter(context.Background(), Small)
		refusedAs(t, err, wirev1.Code_CODE_OVERLOADED)
		trial.Leave(Answered)
		for range 5 {
			enter(t, g, Small).Leave(Answered)
		}
	})
}

// What has a connection of its own says nothing about the pool.
func TestAPoolStaysStarvedBesideConnectionsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate()
		enter(t, g, Small).Leave(PoolExhausted)
		own, err := g.Try()
		if err != nil {
			t.Fatal(err)
		}
		own.Leave(Answered)
		if g.Check() == nil {
			t.Error("work that needed none of the pool's connections ended a shortage of them")
		}
		<-time.After(ProbeEvery)
		enter(t, g, Small).Leave(Answered)
		if err := g.Check(); err != nil {
			t.Error(err)
		}
	})
}

// Callers that give up at any moment leave nothing behind.
func TestGivingUpLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate()
		var wg sync.WaitGroup
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range 5000 {
			patience, work := time.Duration(rng.IntN(2000))*time.Microsecond, time.Duration(rng.IntN(1000))*time.Microsecond
			outcome := Outcome(rng.IntN(4))
			if outcome == Failed {
				outcome = Answered
			}
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				ticket, err := g.Enter(ctx, Class(i%3))
				if err != nil {
					if e := code.From(err); !errors.Is(err, context.DeadlineExceeded) && e.Code != wirev1.Code_CODE_OVERLOADED {
						t.Error(err)
					}
					return
				}
				<-time.After(work)
				ticket.Leave(outcome)
			})
			if i%50 == 0 {
				<-time.After(time.Millisecond)
			}
		}
		wg.Wait()
		if s := g.Status(); s.Busy != [classes]int{} || s.Waiting != [classes]int{} {
			t.Errorf("left: %+v", s)
		}
	})
}
