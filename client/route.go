package pushmesh

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// lookupWithin bounds the question for a name's addresses.
const lookupWithin = 5 * time.Second

// place is where a connection may be made: addr is dialled, name is what a certificate there must
// say.
type place struct{ addr, name string }

// lookup finds the addresses of a host; nil leaves names to whoever dials.
type lookup func(ctx context.Context, host string) ([]string, error)

// route picks places in random order, all of them once in a round; those of a detour come first,
// once. A name counts as many times as it has addresses, which are looked up for every round. Where
// a round begins with the place that was tried last, it comes last. So the clients of a server that
// dies spread over all the others. One goroutine uses it.
type route struct {
	addrs   []string
	lookup  lookup
	order   []place
	tried   int // of order
	last    place
	special []place
}

func newRoute(addrs []string, look lookup) *route { return &route{addrs: addrs, lookup: look} }

// resolve is the lookup of whoever does not dial by itself.
func resolve(ctx context.Context, host string) ([]string, error) {
	return net.DefaultResolver.LookupHost(ctx, host)
}

func (r *route) next(ctx context.Context) place {
	if len(r.special) > 0 {
		r.last = r.special[0]
		r.special = r.special[1:]
		return r.last
	}
	if r.tried == 0 || r.tried >= len(r.order) {
		r.order, r.tried = r.expand(ctx), 0
		rand.Shuffle(len(r.order), func(i, j int) { r.order[i], r.order[j] = r.order[j], r.order[i] })
		if i := slices.Index(r.order, r.last); i >= 0 {
			r.order = append(slices.Delete(r.order, i, i+1), r.last)
		}
	}
	r.last = r.order[r.tried]
	r.tried++
	return r.last
}

// expand puts each name's addresses in its place. A name without any stays: whoever dials it says
// why.
func (r *route) expand(ctx context.Context) []place {
	var all []place
	add := func(p place) {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	for _, addr := range r.addrs {
		hosts, port := r.hosts(ctx, addr)
		for _, h := range hosts {
			add(place{net.JoinHostPort(h, port), addr})
		}
		if len(hosts) == 0 {
			add(place{addr, addr})
		}
	}
	return all
}

// hosts are the addresses of addr's host where that is a name. What is no plain host:port is for
// whoever dials.
func (r *route) hosts(ctx context.Context, addr string) (hosts []string, port string) {
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

// others are the places of this round but the last one that was given.
func (r *route) others() []place {
	return slices.DeleteFunc(slices.Clone(r.order), func(p place) bool { return p == r.last })
}

// found begins a new round: a place that was good for a connection is none that was tried in vain.
func (r *route) found() { r.tried = 0 }

// round reports whether every place has been tried since it said so last.
func (r *route) round() bool {
	if r.tried < len(r.order) || len(r.special) > 0 {
		return false
	}
	r.tried = 0
	return true
}

// detour tries these before the configured ones.
func (r *route) detour(places ...place) {
	r.special = slices.Clone(places)
	rand.Shuffle(len(r.special), func(i, j int) { r.special[i], r.special[j] = r.special[j], r.special[i] })
}
