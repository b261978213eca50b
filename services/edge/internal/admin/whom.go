package admin

import "github.com/pushmesh/pushmesh/services/edge/internal/exchange"

// whom are the connections of a client id, and those of a user.
type whom struct {
	clientID string
	user     string // that was proven
	client   string // the client id of the user that is meant, where that is none who was proven
	backend  bool   // that is one
}

// whomOf names connections as requests do; an empty name matches nothing.
func whomOf(clientID, user string) whom {
	w := whom{clientID: clientID, user: user}
	w.client, w.backend = exchange.ClientOf(user)
	return w
}

// has reports whether a connection of a client, and of a user if it has proven one, is one of them.
func (w *whom) has(clientID, user string, backend bool) bool {
	switch {
	case w.clientID != "" && clientID == w.clientID:
		return true
	case user != "":
		return user == w.user
	}
	return w.client != "" && clientID == w.client && backend == w.backend
}
