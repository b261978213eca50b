package letters

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

const second = int64(1e9)

// A new pace allows one message at once, one that was idle ten seconds' worth, and then as many in
// a second as the rate says.
func TestAPaceHasARate(t *testing.T) {
	const rate = 100
	var p Pace
	l := Limits{Session: rate}
	at := 5 * second
	for _, x := range []struct {
		after int64
		want  int
	}{{0, 1}, {0, 0}, {second / 2, rate / 2}, {second, rate}, {3 * second, 3 * rate}, {3600 * second, 10 * rate}, {0, 0}} {
		at += x.after
		if got := most(func() bool { return p.May(at, "ann", &l) }); got != x.want {
			t.Errorf("%d were allowed %d ns later, want %d", got, x.after, x.want)
		}
	}
}

// most is how often may says yes in turn, up to 100,000.
func most(may func() bool) (n int) {
	for n < 100_000 && may() {
		n++
	}
	return n
}

// A user has a rate of its own, however many sessions it has; others are not concerned, and a
// session that the user's rate refuses keeps what its own allows.
func TestAUserHasARate(t *testing.T) {
	const rate, sessions = 10, 50
	l := Limits{Session: 100, Users: NewUsers(rate)}
	paces := make([]Pace, sessions)
	all := func(at int64, user string) (n int) {
		for i := range paces {
			n += most(func() bool { return paces[i].May(at, user, &l) })
		}
		return n
	}
	at := 5 * second
	if got := all(at, "ann"); got != sessions {
		t.Errorf("%d of %d new sessions' first ones were allowed", got, sessions)
	}
	at += second
	if got, want := all(at, "ann"), 10*rate-sessions+rate; got != want {
		t.Errorf("a second later %d, want %d: ten seconds' worth at once, and one second's", got, want)
	}
	if got := all(at+second, "ann"); got != rate {
		t.Errorf("%d in a second, want %d", got, rate)
	}
	var other Pace
	if !other.May(at, "bob", &l) {
		t.Error("another user waits for ann")
	}
	at += 3600 * second
	if got := all(at, "ann"); got != 10*rate {
		t.Errorf("%d after an hour, want ten seconds' worth", got)
	}
}

func TestWithoutLimits(t *testing.T) {
	l := Limits{Users: NewUsers(0)}
	var p Pace
	if l.Any() || most(func() bool { return p.May(second, "ann", &l) }) != 100_000 {
		t.Error("something is bounded")
	}
	l = Limits{Users: NewUsers(10)}
	if got := most(func() bool { return p.May(second, "ann", &l) }); !l.Any() || got != 100 {
		t.Errorf("with a limit of users alone %d, want 100", got)
	}
}

// Loops take from one rate at a time together no more than it has.
func TestLoopsShareTheUsers(t *testing.T) {
	const rate, loops = 1000, 4
	l := Limits{Users: NewUsers(rate)}
	var allowed atomic.Int64
	var all sync.WaitGroup
	for range loops {
		all.Go(func() {
			var p Pace
			allowed.Add(int64(most(func() bool { return p.May(second, "ann", &l) })))
		})
	}
	all.Wait()
	if got := allowed.Load(); got != 10*rate {
		t.Errorf("%d were allowed, want %d", got, 10*rate)
	}
}

func BenchmarkMay(b *testing.B) {
	l := Limits{Session: 100, Users: NewUsers(1000)}
	for _, users := range []int{1, 10_000} {
		b.Run(fmt.Sprint(users, " users"), func(b *testing.B) {
			names := make([]string, users)
			for i := range names {
				names[i] = fmt.Sprint("user-", i)
			}
			var p Pace
			for i := range b.N {
				p.May(int64(i)*1000, names[i%users], &l)
			}
		})
	}
}
