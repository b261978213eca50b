package pushmesh

import "math/rand/v2"

// route picks addresses in turn, from a random one on; those of a GoAway come first, once. One goroutine uses it.
type route struct {
	addrs   []string
	at      int
	tried   int
	special []string
}

func newRoute(addrs []string) *route { return &route{addrs: addrs, at: rand.IntN(len(addrs))} }

func (r *route) next() string {
	if len(r.special) > 0 {
		a := r.special[0]
		r.special = r.special[1:]
		return a
	}
	a := r.addrs[r.at%len(r.addrs)]
	r.at++
	r.tried++
	return a
}

// found begins a new round: an address that was good for a connection is none that was tried in vain.
func (r *route) found() { r.tried = 0 }

// round says whether every address has been tried since it said so last.
func (r *route) round() bool {
	if r.tried < len(r.addrs) || len(r.special) > 0 {
		return false
	}
	r.tried = 0
	return true
}

// detour tries these before the configured ones.
func (r *route) detour(addrs []string) {
	r.special = append([]string(nil), addrs...)
	rand.Shuffle(len(r.special), func(i, j int) { r.special[i], r.special[j] = r.special[j], r.special[i] })
}
