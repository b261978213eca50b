package serial

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestFunctionsRunInOrderInOneGoroutine(t *testing.T) {
	q := New()
	ctx, cancel := context.WithCancel(t.Context())
	var served sync.WaitGroup
	served.Go(func() { q.Serve(ctx) })
	const writers, each = 8, 2000
	last := [writers]int{}
	sum := 0
	var wrote sync.WaitGroup
	for w := range writers {
		wrote.Go(func() {
			for i := range each {
				q.Do(func() {
					if last[w] != i {
						t.Errorf("writer %d: %d after %d", w, i, last[w])
					}
					last[w]++
					sum++
				})
			}
		})
	}
	wrote.Wait()
	done := make(chan struct{})
	q.Do(func() { close(done) })
	<-done
	cancel()
	served.Wait()
	if sum != writers*each || q.Len() != 0 {
		t.Errorf("%d ran, %d wait", sum, q.Len())
	}
}

func TestTryDoRefusesBeyondTheLimit(t *testing.T) {
	q := New()
	ran := 0
	for range 5 {
		q.TryDo(3, func() { ran++ })
	}
	if q.Len() != 3 {
		t.Errorf("%d wait", q.Len())
	}
	q.Run()
	if ran != 3 || !q.TryDo(3, func() {}) {
		t.Errorf("%d ran", ran)
	}
}

// Whoever runs functions for a while is back after those in hand, and goes on where it was: all run
// once and in order, those that were put in meanwhile after them, and all count for the limit until
// they ran.
func TestALongQueueIsRunInSlices(t *testing.T) {
	const all, slice = 10 * lookEvery, time.Millisecond
	q := New()
	var ran []int
	for n := range all {
		q.Do(func() {
			ran = append(ran, n)
			for began := time.Now(); time.Since(began) < slice/lookEvery; {
			}
			if n < 5 {
				q.Do(func() { ran = append(ran, all+n) })
			}
		})
	}
	turns := 0
	for ; q.Len() > 0; turns++ {
		select {
		case <-q.Ready():
		default:
			t.Fatalf("%d wait, and nobody is told", q.Len())
		}
		before := len(ran)
		q.RunFor(slice)
		if n := len(ran) - before; n > 2*lookEvery {
			t.Fatalf("%d ran in one slice", n)
		}
		if waits := all + min(len(ran), 5) - len(ran); q.Len() != waits {
			t.Fatalf("%d wait, counted are %d", waits, q.Len())
		}
		if q.Len() > 0 && q.TryDo(q.Len(), func() {}) {
			t.Fatal("there is room beyond the limit")
		}
	}
	want := make([]int, all+5)
	for n := range want {
		want[n] = n
	}
	if !slices.Equal(ran, want) || turns < 5 {
		t.Errorf("in %d slices %v ran", turns, ran)
	}
}
