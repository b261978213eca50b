package reconnect

import "time"

// ghostFor is how long after a Hello was left unanswered the loss of the session may be that
// Hello's doing.
const ghostFor = time.Minute

// Ghost is a Hello that was left unanswered. An edge that was frozen reads it when it goes on, and
// takes the session from the connection that the same subscriber has made elsewhere meanwhile.
// Edges look whether the client is still there; where they can't know, it comes back, once.
type Ghost struct{ at time.Time }

// Left notes that a Hello was left unanswered.
func (g *Ghost) Left(now time.Time) { g.at = now }

// Took reports whether it may be what took the session, and forgets it.
func (g *Ghost) Took(now time.Time) bool {
	if g.at.IsZero() || now.Sub(g.at) > ghostFor {
		return false
	}
	*g = Ghost{}
	return true
}
