package admin

import "github.com/pushmesh/pushmesh/services/edge/internal/exchange"

// whom are the connections of a client id, and those of a user.
type whom struct {
	clientID string
	user     string // the client id of the user that is meant, if any
	backend  bool   // the user is one
}

// whomOf names connections as requests do; an empty name matches nothing.
func whomOf(clientID, user string) whom {
	w := whom{clientID: clientID}
	w.user, w.backend = exchange.ClientOf(user)
	return w
}

// has reports whether a connection of a client is one of them.
func (w *whom) has(clientID string, backend bool) bool {
	return w.clientID != "" && clientID == w.clientID || w.user != "" && clientID == w.user && backend == w.backend
}
