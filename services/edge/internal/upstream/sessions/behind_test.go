package sessions

import (
	"context"
	"testing"
	"time"
)

// behindOf is who waits for an owner, first come first.
func behindOf(b *bench, owner string) (out []*session) {
	q := b.line.behind[owner]
	if q == nil {
		return nil
	}
	for i := range q.Len() {
		out = append(out, *q.At(i))
	}
	return out
}

// Some of the sessions that wait for an owner become another's in the moment when its writes end
// (it has answered that it is not the owner any more). Those that stay must be written as well.
func TestWhoStaysBehindAnOwnerGoesOn(t *testing.T) {
	const n = 4*writesAtATime*writesInABatch + 3
	in(t, func(b *bench) {
		b.writeTime = time.Second
		moved := map[string]bool{}
		b.do(func() {
			b.cfg.Owner = func(_, name string) string {
				if moved[name] {
					return "another"
				}
				return "slow"
			}
			b.saveMany("u", n, true)
		})
		pass(990 * time.Millisecond)
		b.do(func() { // all but three of those who wait
			waits := behindOf(b, "slow")
			for _, one := range waits[:len(waits)-3] {
				moved[one.name] = true
			}
		})
		pass(time.Minute)
		b.do(func() {
			if len(b.dirty) != 0 {
				t.Errorf("%d sessions are not written after a minute, though their owner has no write under way (%d)", len(b.dirty), b.Sessions.writes["slow"])
			}
		})
		// What the edge would do as it stops: is it written then?
		ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
		defer cancel()
		if err := b.Flush(ctx); err != nil {
			t.Errorf("flush: %v", err)
		}
	})
}

// The same where those that would go on are taken over by other edges while they wait.
func TestWhoWaitsBehindSessionsThatAreLostGoesOn(t *testing.T) {
	const n = 4*writesAtATime*writesInABatch + 3
	in(t, func(b *bench) {
		b.events = nil
		b.cfg.Post = nil
		b.writeTime = time.Second
		b.do(func() {
			b.cfg.Owner = func(string, string) string { return "slow" }
			b.saveMany("u", n, true)
		})
		pass(990 * time.Millisecond)
		b.do(func() {
			waits := behindOf(b, "slow")
			for _, one := range waits[:len(waits)-3] {
				b.Sessions.discard(one, errTakenOver)
				b.Sessions.end(one)
			}
		})
		pass(time.Minute)
		b.do(func() {
			if len(b.dirty) != 0 {
				t.Errorf("%d sessions are not written after a minute, though their owner has no write under way (%d)", len(b.dirty), b.Sessions.writes["slow"])
			}
		})
	})
}
