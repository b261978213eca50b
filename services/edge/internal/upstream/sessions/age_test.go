package sessions

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// outage has the store away for so long after a session's positions were saved.
func outage(b *bench, generation uint64, d time.Duration) {
	b.set(func() { b.away = true })
	b.Save(conn(1), 0, write(generation, 5), false)
	pass(d)
}

// What a session ACKed while its store was away is written before its next connection to this edge
// attaches, however the store comes back: the attach would make it void, and all of it would come
// again.
func TestNoAttachOvertakesWhatWaitsHere(t *testing.T) {
	for _, back := range []time.Duration{0, 400 * time.Millisecond, 600 * time.Millisecond, 900 * time.Millisecond, 1300 * time.Millisecond, 2 * time.Second} {
		t.Run(fmt.Sprint("the store is back after ", back), func(t *testing.T) {
			in(t, func(b *bench) {
				outage(b, b.attach(1), 10*time.Second)
				b.raising = func() {
					b.set(func() {
						if !b.away && len(b.writes) == 0 {
							t.Error("attached before what waited was written")
						}
					})
				}
				b.Save(conn(1), 0, &meshv1.SessionWrite{User: "u", Name: "s", Generation: 1, Detach: true}, true)
				b.Attach(conn(2), "u", "s", 0, 2, "")
				b.expect(exchange.Yield{Conn: conn(1)})
				pass(back)
				b.set(func() { b.away = false })
				b.expect(exchange.Attached{Conn: conn(2), Generation: 2, Resumed: true})
				if w := b.written(); len(w) != 1 || w[0].GetCursors()[0].GetFloor() != 5 || !w[0].GetDetach() {
					t.Errorf("written: %v", w)
				}
				b.check()
			})
		})
	}
}

// An edge that is asked to yield a session writes at once what its store would not take before: who
// asked has reached that store, and waits half a second.
func TestWhoYieldsWritesWhatWaitedAtOnce(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		outage(b, g, 10*time.Second)
		b.Save(conn(1), 0, &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, Detach: true}, true)
		b.set(func() { b.away = false })
		late, cancel := context.WithTimeout(b.t.Context(), yieldPatience)
		defer cancel()
		if !b.Yield(late, "u", "s") {
			t.Error("what waited was not written in time")
		}
		if w := b.written(); len(w) != 1 || w[0].GetCursors()[0].GetFloor() != 5 {
			t.Errorf("written: %v", w)
		}
	})
}

// Where a session's writes fail and nothing else does, its next connection is not kept waiting for
// ever.
func TestAnAttachDoesNotWaitForEverForAWrite(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		b.set(func() { b.refuse = wirev1.Code_CODE_UNAVAILABLE })
		b.Save(conn(1), 0, detach(g, 5), true)
		pass(10 * time.Second)
		begin := time.Now()
		b.Attach(conn(2), "u", "s", 0, 2, "")
		b.expect(exchange.Yield{Conn: conn(1)})
		b.expect(exchange.Detached{Conn: conn(1), Err: errTakenOver})
		b.expect(exchange.Attached{Conn: conn(2), Generation: 2, Resumed: true})
		if d := time.Since(begin); d > owedPatience+time.Second {
			t.Errorf("it waited for %v", d)
		}
		b.check()
	})
}

// A session's ACKs are stored once its store answers for a second and a half in one piece, however
// long it was away and however often it came back for less.
func TestAnAckIsStoredOnceTheStoreIsThere(t *testing.T) {
	for _, away := range []time.Duration{time.Second, 5 * time.Second, time.Minute, time.Hour} {
		in(t, func(b *bench) {
			outage(b, b.attach(1), away)
			b.set(func() { b.away = false })
			pass(1500 * time.Millisecond)
			if w := b.written(); len(w) != 1 {
				t.Errorf("away for %v, then there for 1.5 s: %d writes", away, len(w))
			}
		})
	}
}
