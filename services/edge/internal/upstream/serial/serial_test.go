package serial

import (
	"context"
	"sync"
	"testing"
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
