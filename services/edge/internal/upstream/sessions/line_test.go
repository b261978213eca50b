package sessions

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// saveMany holds n sessions of one user and has something of each written, at once or in a second,
// in one go of the goroutine.
func (b *bench) saveMany(user string, n int, now bool) {
	for i := range n {
		c, name := conn(uint32(i)), fmt.Sprint(user, i)
		one := b.get(key{user, name})
		if !one.held {
			b.Held.Add(1)
			one.held, one.conn, one.generation = true, c, 1
		}
		b.Sessions.save(c, 0, &meshv1.SessionWrite{User: user, Name: name, Generation: 1, Cursors: []*meshv1.SessionCursor{{Topic: "t", Floor: 1}}}, now)
	}
}

// However many sessions have something to be written: one step of a flush looks at a few, and
// whoever asks for the goroutine meanwhile waits for no more than that. A look at what is not due
// costs the same, however much that is.
func TestAFlushIsCutIntoSteps(t *testing.T) {
	const n = 3*flushedOfStep + 1
	in(t, func(b *bench) {
		b.do(func() {
			// who takes enough writes
			b.cfg.Owner = func(_, name string) string { return name[len(name)-1:] }
			b.saveMany("later", n, false)
			b.saveMany("now", n, true)
			for left := n; left > 0; left = max(left-flushedOfStep, 0) {
				if dirty := len(b.dirty) - n; dirty != left {
					b.t.Errorf("%d are to be written, want %d", dirty, left)
				}
				if more := b.Sessions.flush(time.Now()); more != (left >= flushedOfStep) {
					b.t.Errorf("with %d left there is more: %v", left, more)
				}
			}
		})
		pass(2 * time.Second)
		if n := len(b.written()); n != 2*(3*flushedOfStep+1) {
			b.t.Errorf("%d are written", n)
		}
	})
}

// However many sessions wait for an owner that takes no more: they go on as soon as they are
// another's, as fast as that one takes them, though only some of them are.
func TestSessionsGoOnOnceTheyAreAnothers(t *testing.T) {
	const n = 50_000
	in(t, func(b *bench) {
		b.writeTime = 5 * time.Second
		moved := false
		b.do(func() {
			b.cfg.Owner = func(_, name string) string {
				if moved && name[len(name)-1] != '0' {
					return "another"
				}
				return "slow"
			}
			b.saveMany("u", n, true)
		})
		pass(time.Second)
		b.do(func() {
			if waits := b.line.behind["slow"]; len(b.dirty) != n-writesAtATime*writesInABatch || waits.Len() != len(b.dirty) {
				t.Errorf("%d are to be written", len(b.dirty))
			}
			moved = true
			b.set(func() { b.writeTime = time.Millisecond })
		})
		pass(time.Second)
		b.do(func() {
			for one := range b.dirty {
				if b.cfg.Owner(one.user, one.name) != "slow" {
					t.Errorf("%d wait a second after most were another's", len(b.dirty))
					break
				}
			}
			if b.line.behind["slow"] == nil {
				t.Error("those that stay its own do not wait for the one that takes no more")
			}
		})
		pass(5 * time.Second)
		if all := len(b.written()); all != n {
			t.Errorf("%d of %d are written in the end", all, n)
		}
	})
}

// Whatever is lined up, moved, put in a hurry or has to wait for its owner: what is due comes out
// once, and what is not does not.
func TestALineGivesWhatIsDue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l line
		now := time.Unix(1000, 0)
		all := make([]*session, 8)
		for i := range all {
			all[i] = &session{key: key{name: fmt.Sprint(i)}}
		}
		lined, hurry, behind := map[*session]bool{}, map[*session]bool{}, map[*session]string{}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"put", "put", "put", "next", "next", "hurry", "owner", "time"}).Draw(t, "step") {
			case "put":
				one := all[rapid.IntRange(0, len(all)-1).Draw(t, "session")]
				one.due = now.Add(time.Duration(rapid.IntRange(-5, 20).Draw(t, "due")) * time.Millisecond)
				l.put(one)
				if behind[one] == "" {
					lined[one] = true
				}
			case "next":
				one := l.next(now)
				if one == nil {
					for s := range lined {
						if hurry[s] || !s.due.After(now) {
							t.Fatalf("%s is due and does not come", s.name)
						}
					}
					break
				}
				if !lined[one] || one.due.After(now) && !hurry[one] || one.in != nil {
					t.Fatalf("%s comes, and is not due", one.name)
				}
				delete(lined, one)
				delete(hurry, one)
				if rapid.Bool().Draw(t, "waits") {
					behind[one] = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner")
					l.wait(behind[one], one)
				}
			case "hurry":
				l.allNow()
				for s := range lined {
					hurry[s] = true
				}
			case "owner":
				owner := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner")
				if rapid.Bool().Draw(t, "goes on") {
					l.goOn(owner)
				} else {
					l.look(owner, 99, func(*session) bool { return true })
				}
				for s, of := range behind {
					if of == owner {
						delete(behind, s)
						lined[s] = true
					}
				}
			case "time":
				now = now.Add(time.Duration(rapid.IntRange(1, 9).Draw(t, "ms")) * time.Millisecond)
			}
			for _, s := range all {
				if (s.in != nil) != (lined[s] || behind[s] != "") {
					t.Fatalf("%s is in line: %v, want %v", s.name, s.in != nil, lined[s])
				}
			}
		}
	})
}

// What a look at sessions costs that have something to be written, but not yet, and what one costs
// that is due beside them.
func BenchmarkFlush(b *testing.B) {
	for _, others := range []int{100, 100_000} {
		b.Run(fmt.Sprint(others), func(b *testing.B) {
			s := New(Config{})
			now := time.Now()
			for i := range others {
				one := s.get(key{"u", fmt.Sprint(i)})
				one.pending, one.due = newPending(1), now.Add(time.Hour)
				s.schedule(one)
			}
			due := s.get(key{"u", "due"})
			for b.Loop() {
				due.pending, due.due = newPending(1), now
				s.schedule(due)
				if one := s.line.next(now); one != due {
					b.Fatal("another is due")
				}
				delete(s.dirty, due)
				s.flush(now)
			}
		})
	}
}
