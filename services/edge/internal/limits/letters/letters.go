// Package letters bounds how many messages become dead letters for want of ACKs: of one session,
// and of one user of an edge, whatever sessions it has. A client that Nacks all it gets makes the
// database write; it can do that no faster than this.
package letters

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// burst is what may be made at once after as much time, as the time that it takes at the rate.
const burst = 10 * int64(time.Second)

// Limits of an edge.
type Limits struct {
	// Session is how many a session may make in a second; 0: no limit.
	Session int
	// Users bounds those of a user's sessions together; nil: nothing does.
	Users *Users
}

// Any reports whether there is a limit.
func (l *Limits) Any() bool { return l.Session > 0 || l.Users != nil }

// Pace is that of one session on one connection. It has one user at a time.
type Pace struct{ at int64 }

// May reports whether one more message of a user's session may become a dead letter now, in the
// nanoseconds of the edge, and counts it then. Ten seconds' worth may come at once, but one message
// alone where the pace is new: so one whose client ends each time that it gets a message is given
// up as well, and connecting again, which the store has to write down anyhow, gains one more.
func (p *Pace) May(now int64, user string, l *Limits) bool {
	each := perMessage(l.Session)
	if p.at == 0 {
		p.at = now + burst - each
	}
	at := max(p.at, now)
	if l.Session > 0 && at-now >= burst || l.Users != nil && !l.Users.take(now, user) {
		return false
	}
	p.at = at + each
	return true
}

// perMessage is the time that each takes at so many in a second; 0: none.
func perMessage(rate int) int64 {
	if rate <= 0 {
		return 0
	}
	return int64(time.Second) / int64(rate)
}

// places is how many paces users have. Two users that meet in one, of very many and by chance,
// share it.
const places = 1 << 14

// Users are those of an edge, whose loops share them. They are safe for concurrent use, and take no
// lock.
type Users struct {
	each  int64
	seed  maphash.Seed
	paces [places]atomic.Int64
}

// NewUsers makes those of an edge, with so many dead letters of each in a second, and ten seconds'
// worth at once; 0: there is no limit, and nil.
func NewUsers(rate int) *Users {
	if rate <= 0 {
		return nil
	}
	return &Users{each: perMessage(rate), seed: maphash.MakeSeed()}
}

// take takes one.
func (u *Users) take(now int64, user string) bool {
	p := &u.paces[maphash.String(u.seed, user)%places]
	for {
		was := p.Load()
		at := max(was, now)
		if at-now >= burst {
			return false
		}
		if p.CompareAndSwap(was, at+u.each) {
			return true
		}
	}
}
