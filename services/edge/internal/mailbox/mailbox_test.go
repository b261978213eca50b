package mailbox

import (
	"sync"
	"testing"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

func batch(size int) exchange.Live {
	return exchange.Live{Messages: []*exchange.Message{{Frame: make([]byte, size)}}}
}

func TestBatchesAreBoundedAndOthersHaveRoom(t *testing.T) {
	b := New(Bounds{Batches: 2, Bytes: 100, Others: 1}, func() {})
	for i, want := range []bool{true, true, false} {
		if b.Put(batch(10)) != want {
			t.Fatalf("batch %d: the bound is 2", i+1)
		}
	}
	if !b.Put(exchange.PoliciesChanged{}) || b.Put(exchange.PoliciesChanged{}) {
		t.Fatal("other events have no room of their own, or no bound")
	}
	got := b.Take(nil)
	if len(got) != 3 || !b.Empty() || b.Refused() != 2 {
		t.Fatalf("took %d, refused %d", len(got), b.Refused())
	}
	if b.Put(batch(10)) {
		t.Fatal("there is room before Done")
	}
	b.Done(got[0].(exchange.Live))
	b.Done(got[1].(exchange.Live))
	if !b.Put(batch(1000)) || b.Put(batch(1)) {
		t.Fatal("a batch of any size must get through an empty box, and the next one wait")
	}
	b.Done(b.Take(nil)[0].(exchange.Live))
	for range 2 {
		if !b.Put(batch(99)) {
			t.Fatal("the bytes were not given back")
		}
	}
}

func TestOrderAndWakingWithManySenders(t *testing.T) {
	const senders, each = 8, 2000
	woken := make(chan struct{}, 1)
	b := New(Bounds{Batches: senders * each, Bytes: 1 << 30, Others: 1}, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				m := &exchange.Message{Epoch: uint64(s), Seq: uint64(i)}
				if !b.Put(exchange.Live{Messages: []*exchange.Message{m}}) {
					t.Error("refused")
				}
			}
		})
	}
	next := make([]uint64, senders)
	for n := 0; n < senders*each; {
		<-woken
		for _, e := range b.Take(nil) {
			m := e.(exchange.Live).Messages[0]
			if m.Seq != next[m.Epoch] {
				t.Fatalf("sender %d: got %d, want %d", m.Epoch, m.Seq, next[m.Epoch])
			}
			next[m.Epoch]++
			n++
		}
	}
	wg.Wait()
}
