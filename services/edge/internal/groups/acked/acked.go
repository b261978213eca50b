// Package acked is what an edge remembers of ACKs, by group, for a dispatcher that begins: the one
// before may have died before it stored them, and without a word on them their messages would come
// again.
package acked

import (
	"math/bits"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// For is how long an ACK is remembered.
const For = time.Minute

const (
	// most ACKs of a group.
	most = 16 << 10
	// Bytes that one takes, about: its room, and what a slice has in reserve.
	Bytes = 64
)

// Book is what is remembered of all groups. At its bound it forgets the oldest of a group of which
// it remembers most, so that groups with few ACKs keep them whatever others do. To forget one costs
// a redelivery at most. It is not safe for concurrent use.
type Book struct {
	most  int // bytes; 0: no bound
	used  int
	count func(bytes int)
	began time.Time // the zero of times
	// groups by how much is remembered of them: those at i have less than twice as much as each
	// other.
	groups [sizes][]*Group
}

// sizes is how many powers of two there are up to most.
const sizes = 16

// Group is what is remembered of one group. The zero value is empty. It belongs to one Book.
type Group struct {
	all   []ack // the oldest first
	from  int   // in all
	size  int   // in Book.groups; 0: not there
	place int   // in Book.groups[size]
}

type ack struct {
	topic      string
	epoch, seq uint64
	at         time.Duration
}

// NewBook makes one of so many bytes; 0: no bound. count is told of each change of what is kept, in
// bytes.
func NewBook(most int, count func(bytes int)) *Book {
	return &Book{most: most, count: count, began: time.Now()}
}

// Used bytes now.
func (b *Book) Used() int { return b.used }

// Add remembers that a message was ACKed.
func (b *Book) Add(g *Group, topic string, epoch, seq uint64, now time.Time) {
	g.all = append(g.all, ack{topic, epoch, seq, now.Sub(b.began)})
	b.keeps(g, 1)
	if g.Len() > most {
		b.forget(g, 1)
	}
	for b.most > 0 && b.used > b.most {
		b.forget(b.largest(), 1)
	}
}

// Expire forgets what is older than For.
func (b *Book) Expire(g *Group, now time.Time) {
	n, at := 0, now.Sub(b.began)
	for n < g.Len() && at-g.all[g.from+n].at >= For {
		n++
	}
	b.forget(g, n)
}

// Oldest is when the first ACK of a group came that is remembered; there must be one.
func (b *Book) Oldest(g *Group) time.Time { return b.began.Add(g.all[g.from].at) }

// Drop forgets everything of a group.
func (b *Book) Drop(g *Group) { b.forget(g, g.Len()) }

// forget the n oldest.
func (b *Book) forget(g *Group, n int) {
	if n == 0 {
		return
	}
	clear(g.all[g.from : g.from+n])
	if g.from += n; g.from >= len(g.all)-g.from { // as much is free as is used
		g.all, g.from = slices.Clone(g.all[g.from:]), 0
	}
	b.keeps(g, -n)
}

// keeps notes that n more are remembered of a group.
func (b *Book) keeps(g *Group, n int) {
	b.used += n * Bytes
	b.count(n * Bytes)
	size := bits.Len(uint(g.Len()))
	if size == g.size {
		return
	}
	if g.size > 0 {
		of := b.groups[g.size]
		last := of[len(of)-1]
		of[g.place], last.place = last, g.place
		of[len(of)-1] = nil
		b.groups[g.size] = of[:len(of)-1]
	}
	if g.size = size; size > 0 {
		g.place = len(b.groups[size])
		b.groups[size] = append(b.groups[size], g)
	}
}

// largest is a group of which no other has twice as much remembered.
func (b *Book) largest() *Group {
	for size := sizes - 1; ; size-- {
		if of := b.groups[size]; len(of) > 0 {
			return of[len(of)-1]
		}
	}
}

// Len is how many ACKs are remembered.
func (g *Group) Len() int { return len(g.all) - g.from }

// Seqs that are remembered, by topic.
func (g *Group) Seqs() (all []*meshv1.GroupAcked) {
	type log struct {
		topic string
		epoch uint64
	}
	of := map[log]*meshv1.GroupAcked{}
	for i := range g.all[g.from:] {
		a := &g.all[g.from+i]
		l := log{a.topic, a.epoch}
		if of[l] == nil {
			of[l] = &meshv1.GroupAcked{Topic: a.topic, Epoch: a.epoch}
			all = append(all, of[l])
		}
		of[l].Seqs = append(of[l].Seqs, a.seq)
	}
	return all
}
