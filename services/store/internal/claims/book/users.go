package book

import "strings"

// users counts the places of each user's clients, on whatever connections and under whatever names
// of clients: those that are tied to the connection of one, and those that wait for one to come
// back. Who has none is not in it.
type users map[string]int

// userOf is the user of an owner as edges name it: USER/CLIENT, or client:ID of one that has proven
// no user, which is one of its own.
func userOf(owner string) string {
	if strings.HasPrefix(owner, "client:") {
		return owner
	}
	user, _, _ := strings.Cut(owner, "/")
	return user
}

// full reports whether an owner's user has so many places; 0: there is no limit.
func (u users) full(owner string, most int) bool { return most > 0 && u[userOf(owner)] >= most }

// note counts a place that is a client's now, or takes off one that is no longer. It goes by what
// the database has of a place, so that a store that loads it counts the same.
func (u users) note(p *place) {
	is := !p.ended && (p.bound || p.gone != 0)
	if is == p.counted {
		return
	}
	p.counted = is
	user := userOf(p.owner)
	if is {
		u[user]++
	} else if u[user]--; u[user] == 0 {
		delete(u, user)
	}
}
