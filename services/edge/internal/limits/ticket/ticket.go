// Package ticket lets routers connect to an edge on behalf of backends: a ticket is given over
// NATS, which only the mesh's own processes reach, and shown in Hello, once, by the router that it
// was given to.
package ticket

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"sync/atomic"
	"time"
)

const (
	// Size of a ticket in bytes.
	Size = 16
	// Valid is how long a ticket may be used, from when it was given.
	Valid = 5 * time.Second
	// places bounds the tickets that are not used yet.
	places = 4096
	// tries to find a free place, before the book counts as full.
	tries = 8
)

// Book holds the tickets given and not used yet. The zero Book is empty and ready; it is safe for
// concurrent use and takes no lock, so that event loops may redeem.
type Book struct {
	given [places]atomic.Pointer[ticket]
}

type ticket struct {
	secret  [Size]byte
	router  string
	expires uint64 // Unix time in microseconds
}

// Issue makes a ticket for a router; now is Unix time in microseconds. nil: too many are not used
// yet.
func (b *Book) Issue(router string, now uint64) []byte {
	for range tries {
		t := &ticket{router: router, expires: now + uint64(Valid.Microseconds())}
		_, _ = rand.Read(t.secret[:]) // never fails
		at := b.place(t.secret[:])
		old := at.Load()
		if old != nil && now < old.expires {
			continue
		}
		if at.CompareAndSwap(old, t) {
			return t.secret[:]
		}
	}
	return nil
}

// Redeem reports whether shown, as Hello has it, is a ticket and the id of the router that it was
// given to. No second call says so again; one with another router's id leaves the ticket good.
func (b *Book) Redeem(shown []byte, now uint64) bool {
	if len(shown) <= Size {
		return false
	}
	at := b.place(shown)
	t := at.Load()
	switch {
	case t == nil, subtle.ConstantTimeCompare(t.secret[:], shown[:Size]) == 0, t.router != string(shown[Size:]):
		return false
	case !at.CompareAndSwap(t, nil): // somebody else was quicker
		return false
	}
	return now < t.expires
}

func (b *Book) place(secret []byte) *atomic.Pointer[ticket] {
	return &b.given[binary.LittleEndian.Uint16(secret)%places]
}
