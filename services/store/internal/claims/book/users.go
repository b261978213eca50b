package book

import "strings"

// users counts the places that each user's clients have made, on whatever connections and under
// whatever names of clients. Who has none is not in it.
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

// count counts a place that a client has made.
func (u users) count(p *place) {
	if !p.counted {
		p.counted = true
		u[userOf(p.owner)]++
	}
}

// forget takes a place off that has ended, if it was counted.
func (u users) forget(p *place) {
	if !p.counted {
		return
	}
	p.counted = false
	user := userOf(p.owner)
	if u[user]--; u[user] == 0 {
		delete(u, user)
	}
}
