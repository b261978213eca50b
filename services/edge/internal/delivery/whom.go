package delivery

import "strings"

// clientUser is in front of a client's id in the name of the user that it is while nobody proves
// who they are.
const clientUser = "client:"

// backendUser is the same for a backend that a router connects for.
const backendUser = "backend:"

// whom are the connections of a client id, and those of a user.
type whom struct {
	clientID string
	user     string // the client id of the user that is meant, if any
	backend  bool   // the user is one
}

// whomOf names connections as requests do; an empty name matches nothing.
func whomOf(clientID, user string) whom {
	w := whom{clientID: clientID}
	if id, ok := strings.CutPrefix(user, clientUser); ok {
		w.user = id
	}
	if id, ok := strings.CutPrefix(user, backendUser); ok {
		w.user, w.backend = id, true
	}
	return w
}

// has reports whether a connection is one of them: open, or with a session that is being attached.
func (w *whom) has(c *conn) bool {
	if c.state != stateOpen && c.state != stateWaiting {
		return false
	}
	return w.clientID != "" && c.clientID == w.clientID || w.user != "" && c.clientID == w.user && c.backend == w.backend
}
