package lifecycle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func recorder(log *[]string, name string, fail error) Part {
	return Funcs{
		OnStart: func(context.Context) error {
			*log = append(*log, "+"+name)
			return fail
		},
		OnStop: func(context.Context) error {
			*log = append(*log, "-"+name)
			return nil
		},
	}
}

func TestStackStopsInReverse(t *testing.T) {
	var log []string
	var s Stack
	s.Add("a", recorder(&log, "a", nil))
	s.Add("b", recorder(&log, "b", nil))
	ctx := t.Context()
	if err := errors.Join(s.Start(ctx), s.Start(ctx), s.Stop(ctx), s.Stop(ctx)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"+a", "+b", "-b", "-a"}; !slices.Equal(log, want) {
		t.Fatalf("got %v, want %v", log, want)
	}
	if s.Start(ctx) == nil {
		t.Fatal("a stopped stack started again")
	}
}

func TestStackUndoesAFailedStart(t *testing.T) {
	var log []string
	boom := errors.New("boom")
	var s Stack
	s.Add("a", recorder(&log, "a", nil))
	s.Add("b", recorder(&log, "b", boom))
	s.Add("c", recorder(&log, "c", nil))
	if err := s.Start(t.Context()); !errors.Is(err, boom) {
		t.Fatalf("got %v", err)
	}
	if want := []string{"+a", "+b", "-a"}; !slices.Equal(log, want) {
		t.Fatalf("got %v, want %v", log, want)
	}
}

func TestStackStress(t *testing.T) {
	for range 200 {
		var log []string
		var s Stack
		s.Add("a", recorder(&log, "a", nil))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { _ = s.Start(t.Context()) })
			wg.Go(func() { _ = s.Stop(t.Context()) })
		}
		wg.Wait()
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(log) != 0 && len(log) != 2 {
			t.Fatalf("got %v", log)
		}
	}
}

func TestGroupWaits(t *testing.T) {
	g := NewGroup(t.Context())
	stuck := make(chan struct{})
	g.Go("ends", func(ctx context.Context) { <-ctx.Done() })
	g.Go("stuck", func(context.Context) { <-stuck })
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := g.Stop(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	close(stuck)
	if err := g.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestEveryTicksUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, n := time.Now(), 0
		Every(ctx, time.Minute, func(now time.Time) {
			if n++; now.Sub(began) != time.Duration(n)*time.Minute {
				t.Errorf("tick %d after %v", n, now.Sub(began))
			}
			if n == 3 {
				cancel()
			}
		})
		if n < 3 {
			t.Errorf("%d ticks", n)
		}
	})
}
