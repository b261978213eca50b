// Package kept counts the bytes that clients make an edge keep beside their queues, such as
// messages that are not ACKed. Each is charged to its connection, to the client that this belongs
// to, and to the loop. A connection always has a little; who has more is bounded by all three.
package kept

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

const (
	// Own is what each connection may have, in bytes, however much others have.
	Own = 64 << 10
	// grant is how much is taken from a client's bound at a time, in bytes.
	grant = 64 << 10
)

// places is how many counters clients have. Two clients that meet in one, of very many and by
// chance, share a bound.
const places = 1 << 14

// Clients are what the loops of an edge share: how much of its bound each client has given to its
// connections, beside what each of these has for itself. It is safe for concurrent use, and takes
// no lock.
type Clients struct {
	most    int64
	seed    maphash.Seed
	granted [places]atomic.Int64
}

// NewClients makes those of an edge, with a bound for each in bytes; 0: none.
func NewClients(most int64) *Clients { return &Clients{most: most, seed: maphash.MakeSeed()} }

// place of a client's counter.
func (s *Clients) place(name string) uint32 { return uint32(maphash.String(s.seed, name) % places) }

// Config of Accounts. A bound that is 0 is none.
type Config struct {
	Connection int64 // bytes of one connection
	// Windows is the bytes of one connection beyond which its windows keep no message.
	Windows int64
	Loop    int64 // bytes of all connections of the loop
	Clients *Clients
	// Name of the client that a connection belongs to; "": it is not known, and the connection is
	// bounded alone. It is asked for once a connection has more than Own.
	Name func(slot uint32) string
}

// Accounts are the connections of one loop, by slot, and belong to that.
type Accounts struct {
	cfg    Config
	bySlot slab.Slab[account]
	bytes  int64
}

// account is what every connection has, in 16 bytes.
type account struct {
	bytes  int64
	grants uint32 // of the client, for what is beyond Own
	place  uint32 // of the client's counter, where it has granted something
}

// New makes accounts without connections.
func New(cfg Config) *Accounts { return &Accounts{cfg: cfg} }

// Bytes of all connections.
func (a *Accounts) Bytes() int64 { return a.bytes }

// Memory is how many bytes the accounts themselves take where the collector does not look.
func (a *Accounts) Memory() int { return a.bySlot.Bytes() }

// Of is how many bytes one connection has.
func (a *Accounts) Of(slot uint32) int64 { return a.at(slot).bytes }

func (a *Accounts) at(slot uint32) *account { return a.bySlot.At(int(slot)) }

// Open makes the account of a slot, where it is a new one: the one behind the last.
func (a *Accounts) Open(slot uint32) {
	if a.bySlot.Len() == int(slot) {
		a.bySlot.Take()
	}
}

// Charge counts what a connection has, whether it fits or not; n below 0 takes off.
func (a *Accounts) Charge(slot uint32, n int) {
	x := a.at(slot)
	x.bytes += int64(n)
	a.bytes += int64(n)
	if n < 0 && x.grants > 0 {
		a.giveBack(x)
	}
}

// Fits reports whether a connection may have n bytes more, which must be charged then.
func (a *Accounts) Fits(slot uint32, n int) bool {
	return a.fits(slot, int64(n), a.cfg.Connection, 0)
}

// WindowsFit reports whether a connection may have what its windows keep now. Windows are kept in a
// half of what a loop and a client may have, so that in the other half there is room for what can't
// be let go of.
func (a *Accounts) WindowsFit(slot uint32) bool { return a.fits(slot, 0, a.cfg.Windows, 1) }

// fits reports whether there is room for n bytes more, in a half of the loop's and the client's
// bounds where half is 1, and in all where it is 0.
func (a *Accounts) fits(slot uint32, n, bound int64, half uint) bool {
	x := a.at(slot)
	want := x.bytes + n
	switch {
	case bound > 0 && want > bound:
		return false
	case want <= Own:
		return true
	case a.cfg.Loop > 0 && a.bytes+n > a.cfg.Loop>>half:
		return false
	}
	return want-Own <= int64(x.grants)*grant || a.take(slot, x, grantsFor(want)-x.grants, half)
}

// grantsFor is how many grants a connection needs for so many bytes.
func grantsFor(bytes int64) uint32 { return uint32((max(bytes-Own, 0) + grant - 1) / grant) }

// take takes n grants from the bound of the client, or from a half of it.
func (a *Accounts) take(slot uint32, x *account, n uint32, half uint) bool {
	s := a.cfg.Clients
	if s == nil || s.most == 0 || a.cfg.Name == nil {
		return true
	}
	place := x.place
	if x.grants == 0 {
		name := a.cfg.Name(slot)
		if name == "" {
			return true
		}
		place = s.place(name)
	}
	if c := &s.granted[place]; c.Add(int64(n)*grant) > s.most>>half {
		c.Add(-int64(n) * grant)
		return false
	}
	x.grants, x.place = x.grants+n, place
	return true
}

// giveBack gives back what the connection does not need, but for one that it may want again soon.
func (a *Accounts) giveBack(x *account) {
	needs := grantsFor(x.bytes)
	if needs > 0 {
		needs++
	}
	if x.grants > needs {
		a.cfg.Clients.granted[x.place].Add(-int64(x.grants-needs) * grant)
		x.grants = needs
	}
}
