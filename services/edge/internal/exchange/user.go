package exchange

import "strings"

const (
	// clientUser is in front of a client's id in the name of the user that it is while nobody
	// proves who they are. backendUser is the same for a backend that a router connects for: it has
	// its own, for anybody may claim a client's id over TCP.
	clientUser  = "client:"
	backendUser = "backend:"
)

// UserOf names the user that a connection of a client, or of a backend, belongs to.
func UserOf(clientID string, backend bool) string {
	if backend {
		return backendUser + clientID
	}
	return clientUser + clientID
}

// ClientOf is the client, or the backend, that a user is; "" where it is neither.
func ClientOf(user string) (clientID string, backend bool) {
	if id, ok := strings.CutPrefix(user, clientUser); ok {
		return id, false
	}
	id, ok := strings.CutPrefix(user, backendUser)
	if !ok {
		return "", false
	}
	return id, true
}
