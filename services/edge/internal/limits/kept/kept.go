// Package kept counts the bytes that clients make an edge keep beside their queues, such as
// messages that are not ACKed. Each is charged to its connection, to the client that this belongs
// to, to the address that it comes from, and to the loop. A connection always has a little; who has
// more is bounded by all four. What is charged though it did not fit is held against its own
// connection alone.
package kept

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

const (
	// Own is what each connection may have, in bytes, however much others have.
	Own = 64 << 10
	// grant is how much is taken from a holder's bound at a time, in bytes.
	grant = 64 << 10
)

// places is how many counters holders have. Two holders that meet in one, of very many and by
// chance, share a bound.
const places = 1 << 14

// Holders are clients, or addresses, each with connections on all loops of an edge: what the loops
// share is how much of its bound each holder has given to its connections, beside what each of
// these has for itself. They are safe for concurrent use, and take no lock.
type Holders struct {
	most    int64
	seed    maphash.Seed
	granted [places]atomic.Int64
}

// NewHolders makes those of an edge, with a bound for each in bytes; 0: none.
func NewHolders(most int64) *Holders { return &Holders{most: most, seed: maphash.MakeSeed()} }

// place of a holder's counter.
func (s *Holders) place(name string) place {
	return place(maphash.String(s.seed, name)%places) + 1
}

// take takes so many bytes of the bound of the holder at a place, or of a half of it where half is
// 1, and reports whether there was room.
func (s *Holders) take(at place, bytes int64, half uint) bool {
	if at == unknown || at == nobody {
		return true
	}
	c := &s.granted[at-1]
	if c.Add(bytes) > s.most>>half {
		c.Add(-bytes)
		return false
	}
	return true
}

// give gives them back.
func (s *Holders) give(at place, bytes int64) {
	if at != unknown && at != nobody {
		s.granted[at-1].Add(-bytes)
	}
}

// place is that of a holder's counter and 1, or one of the following.
type place uint16

const (
	unknown place = 0         // not asked for yet, or not known yet
	nobody  place = 1<<16 - 1 // nobody's bound counts for the connection
)

// Config of Accounts. A bound that is 0 is none.
type Config struct {
	Connection int64 // bytes of one connection
	// Windows is the bytes of one connection beyond which its windows keep no message.
	Windows int64
	Loop    int64 // bytes of all connections of the loop
	// Clients and Addresses bound all connections of one of them together; nil: there is no bound.
	Clients, Addresses *Holders
	// Client is the client that a connection belongs to; "": it is not known yet. Address is the
	// one that it comes from; "": its bytes count for none. Both are asked for once a connection
	// has more than Own, and not again while they are known; nil: nothing is known of any.
	Client, Address func(slot uint32) string
}

// Accounts are the connections of one loop, by slot, and belong to that.
type Accounts struct {
	cfg    Config
	bySlot slab.Slab[account]
	bytes  int64
	// admitted are those of them that connections may have whatever others have, or that fitted.
	admitted int64
}

// account is what every connection has, in 16 bytes.
type account struct {
	bytes  int64
	grants uint32 // of the client and of the address each, for what is beyond Own
	// whose counters they are of; they stay the same as long as there are any
	client, address place
}

// admitted are the bytes of a connection that are held against others.
func (x *account) admitted() int64 { return min(x.bytes, Own+int64(x.grants)*grant) }

// New makes accounts without connections.
func New(cfg Config) *Accounts { return &Accounts{cfg: cfg} }

// Bytes of all connections.
func (a *Accounts) Bytes() int64 { return a.bytes }

// Memory is how many bytes the accounts themselves take where the collector does not look.
func (a *Accounts) Memory() int { return a.bySlot.Bytes() }

// Of is how many bytes one connection has.
func (a *Accounts) Of(slot uint32) int64 { return a.at(slot).bytes }

func (a *Accounts) at(slot uint32) *account { return a.bySlot.At(int(slot)) }

// Open begins the account of a connection in a slot: the one behind the last, or one whose
// connection has ended and has given everything back.
func (a *Accounts) Open(slot uint32) {
	if a.bySlot.Len() == int(slot) {
		a.bySlot.Take()
	}
	x := a.at(slot)
	x.client, x.address = unknown, unknown
}

// Charge counts what a connection has, whether it fits or not; n below 0 takes off.
func (a *Accounts) Charge(slot uint32, n int) {
	x := a.at(slot)
	before := x.admitted()
	x.bytes += int64(n)
	a.bytes += int64(n)
	if n < 0 && x.grants > 0 {
		a.giveBack(x)
	}
	a.admitted += x.admitted() - before
}

// Fits reports whether a connection may have n bytes more, which must be charged then.
func (a *Accounts) Fits(slot uint32, n int) bool {
	return a.fits(slot, int64(n), a.cfg.Connection, 0)
}

// WindowsFit reports whether a connection may have what its windows keep now. Windows are kept in a
// half of what a loop, a client and an address may have, so that in the other half there is room
// for what can't be let go of.
func (a *Accounts) WindowsFit(slot uint32) bool { return a.fits(slot, 0, a.cfg.Windows, 1) }

// fits reports whether there is room for n bytes more, in a half of the bounds of the loop, the
// client and the address where half is 1, and in all where it is 0.
func (a *Accounts) fits(slot uint32, n, bound int64, half uint) bool {
	x := a.at(slot)
	want := x.bytes + n
	switch {
	case bound > 0 && want > bound:
		return false
	case want <= Own:
		return true
	case a.cfg.Loop > 0 && a.admitted-x.admitted()+want > a.cfg.Loop>>half:
		return false
	}
	return want-Own <= int64(x.grants)*grant || a.take(slot, x, grantsFor(want)-x.grants, half)
}

// grantsFor is how many grants a connection needs for so many bytes.
func grantsFor(bytes int64) uint32 { return uint32((max(bytes-Own, 0) + grant - 1) / grant) }

// take takes n grants from the bounds of the client and the address, or from a half of them.
func (a *Accounts) take(slot uint32, x *account, n uint32, half uint) bool {
	if x.grants == 0 {
		x.client = a.cfg.Clients.placeOf(x.client, a.cfg.Client, slot, unknown)
		x.address = a.cfg.Addresses.placeOf(x.address, a.cfg.Address, slot, nobody)
	}
	bytes := int64(n) * grant
	if !a.cfg.Clients.take(x.client, bytes, half) {
		return false
	}
	if !a.cfg.Addresses.take(x.address, bytes, half) {
		a.cfg.Clients.give(x.client, bytes)
		return false
	}
	before := x.admitted()
	x.grants += n
	a.admitted += x.admitted() - before
	return true
}

// placeOf is the place of the holder of a connection, which was at before; otherwise, where it has
// none.
func (s *Holders) placeOf(at place, name func(slot uint32) string, slot uint32, otherwise place) place {
	switch {
	case s == nil || s.most == 0 || name == nil:
		return nobody
	case at != unknown:
		return at
	}
	if holder := name(slot); holder != "" {
		return s.place(holder)
	}
	return otherwise
}

// giveBack gives back what the connection does not need, but for one that it may want again soon.
func (a *Accounts) giveBack(x *account) {
	needs := grantsFor(x.bytes)
	if needs > 0 {
		needs++
	}
	if x.grants > needs {
		bytes := int64(x.grants-needs) * grant
		a.cfg.Clients.give(x.client, bytes)
		a.cfg.Addresses.give(x.address, bytes)
		x.grants = needs
	}
}
