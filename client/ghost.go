package pushmesh

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// unanswered is the end of a connection whose Hello was sent and not answered.
type unanswered struct {
	addr string
	err  error
}

func (u *unanswered) Error() string {
	if errors.Is(u.err, net.ErrClosed) || errors.Is(u.err, os.ErrDeadlineExceeded) {
		return "pushmesh: " + u.addr + " accepts connections but does not answer: is it an edge's port (7400)?"
	}
	return "pushmesh: " + u.addr + " ended the connection without an answer (" + u.err.Error() + "): is it an edge's port (7400), and does it want TLS?"
}

func (u *unanswered) Unwrap() error { return u.err }

// noEdge is what something else than an edge answers.
type noEdge struct{ addr string }

func (n *noEdge) Error() string {
	return "pushmesh: " + n.addr + " accepts connections but does not speak pushmesh: is it an edge's port (7400)?"
}

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
