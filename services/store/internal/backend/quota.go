package backend

import "fmt"

// Quota is how many sessions there may be; 0: no bound. It is about creating them: a session that
// exists can always be attached.
type Quota struct {
	User    int // of one user
	Address int // of one origin
	All     int // in the database
}

// EmptyTTL is how long a session that never had a filter or cursor outlives its connection, in
// microseconds: nothing is lost with it. Where an edge is only not heard of, its clients may be
// connected, and the TTL counts.
const EmptyTTL = 45_000_000

// Counted is how many sessions there are, the new one among them.
type Counted struct{ User, Address, All int }

// Bound is one of a Quota's.
type Bound string

// Bounds, as metrics name them.
const (
	BoundUser    Bound = "user"
	BoundAddress Bound = "address"
	BoundAll     Bound = "all"
)

// TooManySessions is why a session was not created.
type TooManySessions struct {
	Bound Bound
	Most  int
}

func (e *TooManySessions) Error() string {
	return fmt.Sprintf("too many sessions: %d at most (%s)", e.Most, e.Bound)
}

// Check is a *TooManySessions where one bound is passed: the user's before the address's before
// that of all, so that the answer names what its client can do most about.
func (q Quota) Check(n Counted) error {
	for _, c := range []struct {
		bound   Bound
		n, most int
	}{{BoundUser, n.User, q.User}, {BoundAddress, n.Address, q.Address}, {BoundAll, n.All, q.All}} {
		if c.most > 0 && c.n > c.most {
			return &TooManySessions{Bound: c.bound, Most: c.most}
		}
	}
	return nil
}

// GroupUser is the user of the sessions in which edges keep groups: they are many users' together.
const GroupUser = "$group"

// For is the quota of a session that is created by a user from an origin.
func (q Quota) For(user, origin string) Quota {
	if user == GroupUser {
		q.User = 0
	}
	if origin == "" {
		q.Address = 0
	}
	return q
}
