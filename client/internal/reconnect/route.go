// Package reconnect decides where and when a connection is tried next.
package reconnect

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// lookupWithin bounds the question for a name's addresses.
const lookupWithin = 5 * time.Second

// Place is where a connection may be made: Addr is dialled, Name is what a certificate there must
// say.
type Place struct{ Addr, Name string }

// Lookup finds the addresses of a host; nil leaves names to whoever dials.
type Lookup func(ctx context.Context, host string) ([]string, error)

// Route picks places in random order, all of them once in a round; those of a detour come first,
// once. A name counts as many times as it has addresses, which are looked up for every round. Where
// a round begins with the place that was tried last, it comes last. So the clients of a server that
// dies spread over all the others. One goroutine uses it.
type Route struct {
	addrs   []string
	lookup  Lookup
	order   []Place
	tried   int // of order
	last    Place
	special []Place
}

// NewRoute over addrs, host:port each.
func NewRoute(addrs []string, look Lookup) *Route { return &Route{addrs: addrs, lookup: look} }

// Resolve is the Lookup of whoever does not dial by itself.
func Resolve(ctx context.Context, host string) ([]string, error) {
	return net.DefaultResolver.LookupHost(ctx, host)
}

// Next is the place to try.
func (r *Route) Next(ctx context.Context) Place {
	if len(r.special) > 0 {
		r.last = r.special[0]
		r.special = r.special[1:]
		return r.last
	}
	if r.tried == 0 || r.tried >= len(r.order) {
		r.order, r.tried = r.Expand(ctx), 0
		rand.Shuffle(len(r.order), func(i, j int) { r.order[i], r.order[j] = r.order[j], r.order[i] })
		if i := slices.Index(r.order, r.last); i >= 0 {
			r.order = append(slices.Delete(r.order, i, i+1), r.last)
		}
	}
	r.last = r.order[r.tried]
	r.tried++
	return r.last
}

// Expand lists the places: it puts each name's addresses in its place. A name without any stays:
// whoever dials it says why.
func (r *Route) Expand(ctx context.Context) []Place {
	var all []Place
	add := func(p Place) {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	for _, addr := range r.addrs {
		hosts, port := r.hosts(ctx, addr)
		for _, h := range hosts {
			add(Place{net.JoinHostPort(h, port), addr})
		}
		if len(hosts) == 0 {
			add(Place{addr, addr})
		}
	}
	return all
}

// hosts are the addresses of addr's host where that is a name. What is no plain host:port is for
// whoever dials.
func (r *Route) hosts(ctx context.Context, addr string) (hosts []string, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || r.lookup == nil || host == "" || net.ParseIP(host) != nil {
		return nil, ""
	}
	ctx, cancel := context.WithTimeout(ctx, lookupWithin)
	defer cancel()
	hosts, err = r.lookup(ctx, host)
	if err != nil {
		return nil, ""
	}
	return hosts, port
}

// Last is the place that Next gave last.
func (r *Route) Last() Place { return r.last }

// Others are the places of this round but the last one that was given.
func (r *Route) Others() []Place {
	return slices.DeleteFunc(slices.Clone(r.order), func(p Place) bool { return p == r.last })
}

// Found begins a new round: a place that was good for a connection is none that was tried in vain.
func (r *Route) Found() { r.tried = 0 }

// Round reports whether every place has been tried since it said so last.
func (r *Route) Round() bool {
	if r.tried < len(r.order) || len(r.special) > 0 {
		return false
	}
	r.tried = 0
	return true
}

// Detour tries these before the configured ones.
func (r *Route) Detour(places ...Place) {
	r.special = slices.Clone(places)
	rand.Shuffle(len(r.special), func(i, j int) { r.special[i], r.special[j] = r.special[j], r.special[i] })
}
