// Package admission decides which connections an edge takes: how many it holds, of one address and
// in all, and how fast they come. The loops of an edge share one Door. They take no lock for it:
// what they share are atomic words, touched when a connection comes and when it ends.
package admission

import (
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Limits of an edge; 0: none. An address is an IPv4 address, or a /64 of IPv6, which is what one
// customer of a provider has.
type Limits struct {
	Connections        int // held in all
	AddressConnections int // held of one address
	Rate               int // connections taken in a second; a second's worth may come at once
	AddressRate        int // the same, of one address
	// Exempt addresses are not counted one by one: routers, proxies, networks behind one address.
	Exempt []netip.Prefix
	// Proxies may say in a PROXY header whom they connect for.
	Proxies []netip.Prefix
	// Forwarders may say in X-Forwarded-For whom they ask for.
	Forwarders []netip.Prefix
}

// retry is what those that are refused wait at least, and over as long again they are spread.
const retry = 5 * time.Second

// Door counts who is in. Every method may be called by all loops at a time; times are nanoseconds
// since one point for all of them.
type Door struct {
	lim   Limits
	seed  maphash.Seed
	held  atomic.Int64
	rate  bucket
	byOne *counts // nil: no limit
	rates *rates  // nil: no limit
}

// New makes a door.
func New(lim Limits) *Door {
	d := &Door{lim: lim, seed: maphash.MakeSeed(), rate: newBucket(lim.Rate)}
	if lim.AddressConnections > 0 {
		d.byOne = newCounts(lim.Connections)
	}
	if lim.AddressRate > 0 {
		d.rates = newRates(lim.AddressRate)
	}
	return d
}

// Held is how many are in.
func (d *Door) Held() int { return int(d.held.Load()) }

// CountsAddresses says that EnterFrom gives places.
func (d *Door) CountsAddresses() bool { return d.byOne != nil }

// Takes reports whether one more may be taken from the kernel now. It takes no token: Came does.
func (d *Door) Takes(now int64) bool { return d.rate.has(now) }

// Came says that one was taken from the kernel.
func (d *Door) Came(now int64) { d.rate.take(now) }

// Enter counts one more, or says why not. Who was counted calls Leave in the end.
func (d *Door) Enter() *code.Error {
	for {
		n := d.held.Load()
		if d.lim.Connections > 0 && n >= int64(d.lim.Connections) {
			return code.Retry(wirev1.Code_CODE_TOO_MANY_CONNECTIONS, spread(retry), "the edge is at its limit of connections")
		}
		if d.held.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

// Leave is Enter's end.
func (d *Door) Leave() { d.held.Add(-1) }

// Proxy reports whether the address may send a PROXY header.
func (d *Door) Proxy(addr netip.Addr) bool { return holds(d.lim.Proxies, addr) }

// Forwards reports whether X-Forwarded-For of the address is believed.
func (d *Door) Forwards(addr netip.Addr) bool { return holds(d.lim.Forwarders, addr) }

// EnterFrom counts one more of an address, or says why not. Who has a place, which is above 0,
// gives it to LeaveFrom in the end.
func (d *Door) EnterFrom(addr netip.Addr, now int64) (place uint32, why *code.Error) {
	if d.byOne == nil && d.rates == nil || holds(d.lim.Exempt, addr) {
		return 0, nil
	}
	from := network(addr)
	h := maphash.Bytes(d.seed, from[:])
	if d.rates != nil {
		if wait := d.rates.take(h, now); wait > 0 {
			return 0, code.Retry(wirev1.Code_CODE_RATE_LIMITED, max(spread(time.Duration(wait)), time.Millisecond), "too many connections a second come from this address")
		}
	}
	if d.byOne != nil {
		var ok bool
		if place, ok = d.byOne.enter(h, d.lim.AddressConnections); !ok {
			return 0, code.Retry(wirev1.Code_CODE_TOO_MANY_CONNECTIONS, spread(retry), "this address has too many connections")
		}
	}
	return place, nil
}

// Origin names what counts as one address: an IPv4 address, or a /64 of IPv6; "" for one that is
// exempt, or not known.
func (d *Door) Origin(addr netip.Addr) string {
	addr = addr.Unmap()
	switch {
	case !addr.IsValid() || holds(d.lim.Exempt, addr):
		return ""
	case addr.Is4():
		return addr.String()
	}
	return netip.PrefixFrom(addr.WithZone(""), 64).Masked().String()
}

// LeaveFrom is EnterFrom's end.
func (d *Door) LeaveFrom(place uint32) {
	if place > 0 {
		d.byOne.leave(place)
	}
}

// network is what counts as one address.
func network(addr netip.Addr) (from [16]byte) {
	from = addr.As16()
	if !addr.Unmap().Is4() {
		clear(from[8:])
	}
	return from
}

// holds goes over prefixes, of which there are few.
func holds(all []netip.Prefix, addr netip.Addr) bool {
	addr = addr.Unmap()
	for _, p := range all {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// spread is d to 2 d, so that those that were refused together do not come back together.
func spread(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)+1))
}
