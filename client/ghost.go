package pushmesh

import (
	"errors"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// unanswered is the end of a connection whose Hello was sent and not answered.
type unanswered struct{ err error }

func (u *unanswered) Error() string { return "pushmesh: welcome: " + u.err.Error() }
func (u *unanswered) Unwrap() error { return u.err }

// ghostFor is how long after a Hello was left unanswered the loss of the session may be that
// Hello's doing.
const ghostFor = time.Minute

// ghost is a Hello that was left unanswered. An edge that was frozen reads it when it goes on, and
// takes the session from the connection that the same subscriber has made elsewhere meanwhile.
// Edges look whether the client is still there; where they can't know, it comes back, once.
type ghost struct{ at time.Time }

// left notes how an attempt to connect ended.
func (g *ghost) left(err error) {
	if errors.As(err, new(*unanswered)) {
		g.at = time.Now()
	}
}

// took reports whether such a Hello may be why a connection ended.
func (g *ghost) took(why *Error) bool {
	if why.Code != wirev1.Code_CODE_SESSION_TAKEN_OVER || g.at.IsZero() || time.Since(g.at) > ghostFor {
		return false
	}
	*g = ghost{}
	return true
}
