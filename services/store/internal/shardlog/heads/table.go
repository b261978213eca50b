// Package heads holds what a store knows of the topics of one shard: where each topic's log ends,
// and an index of their names by levels, which finds what a filter matches at the cost of the
// matches. A topic takes 40 bytes with its place in a hash table, its name, and 4 to 12 bytes for
// each level: there may be millions.
package heads

import (
	"math"

	"github.com/cespare/xxhash/v2"
)

// Topic is where a topic's log ends and begins. It stays where it is as long as its table.
type Topic struct {
	// Head is the seq of the newest message. Oldest may still be retained, all below is not.
	// OldestAt is the time of its run in Unix microseconds; 0: not known.
	Head, Oldest, OldestAt uint64

	name uint32 // where it begins in names
	// epoch is the place, counted from 1, of the topic's in the table's list; 0: it is forgotten,
	// and only its name is still there.
	epoch uint16
	// keeps and changed lie in bytes of their own: who plans an append reads keeps while a reader
	// that moved Oldest notes the change.
	keeps, changed bool
}

// Keeps reports whether the message at Head is kept.
func (t *Topic) Keeps() bool { return t.keeps }

// SetKeeps says whether the message at Head is kept.
func (t *Topic) SetKeeps(yes bool) { t.keeps = yes }

// Unstored reports whether the topic is to be among the next TakeChanged.
func (t *Topic) Unstored() bool { return t.changed }

// A topic's number is its place in the table, counted from 1. MaxTopics is how many a table holds:
// numbers share 32 bits with 8 of a hash.
const (
	MaxTopics = 1<<24 - 1
	chunk     = 64 // topics
)

// Table holds the topics of a shard. It is not safe for concurrent use, but for any number of
// readers.
type Table struct {
	topics  []*[chunk]Topic
	n       int
	gone    int // of n: those that are forgotten
	indexed int // of n: less only between Append and Index
	// epochs are those that topics are of, in the order in which they came.
	epochs  []uint64
	names   names
	found   []uint32 // numbers by hash of the name, with 8 bits of it; 0: free
	levels  levels
	changed []uint32 // numbers
}

// Len is the number of topics.
func (t *Table) Len() int { return t.n - t.gone }

// Taken is how many of MaxTopics numbers are taken: those of forgotten topics are until the table
// is compacted.
func (t *Table) Taken() int { return t.n }

// Epoch of a topic of this table.
func (t *Table) Epoch(topic *Topic) uint64 { return t.epochs[topic.epoch-1] }

// epoch is the place of an epoch in the list; 0: there is no room for it.
func (t *Table) epoch(epoch uint64) uint16 {
	for at := len(t.epochs); at > 0; at-- { // the newest are asked for most
		if t.epochs[at-1] == epoch {
			return uint16(at)
		}
	}
	if len(t.epochs) == math.MaxUint16 {
		return 0
	}
	t.epochs = append(t.epochs, epoch)
	return uint16(len(t.epochs))
}

// at is the topic of a number.
func (t *Table) at(n uint32) *Topic { return &t.topics[(n-1)/chunk][(n-1)%chunk] }

// Get finds a topic; nil: there is none of that name.
func (t *Table) Get(name string) *Topic {
	if topic := t.find(name); topic != nil && topic.epoch != 0 {
		return topic
	}
	return nil
}

// find is Get of one that may be forgotten.
func (t *Table) find(name string) *Topic {
	if t == nil || t.n == 0 {
		return nil
	}
	h := hashOf(name)
	for at := h.place(len(t.found)); t.found[at] != 0; at = after(at, len(t.found)) {
		if have := t.found[at]; have>>24 == h.tag() {
			if topic := t.at(have & MaxTopics); t.names.is(topic.name, name) {
				return topic
			}
		}
	}
	return nil
}

// Add adds a topic that is not there yet, without messages. nil: the table is full.
func (t *Table) Add(name string, epoch uint64) *Topic {
	if again := t.find(name); again != nil { // it was forgotten
		of := t.epoch(epoch)
		if of == 0 {
			return nil
		}
		*again = Topic{name: again.name, epoch: of}
		t.gone--
		return again
	}
	if full(t.n, len(t.found)) {
		t.grow(larger(len(t.found)))
	}
	topic := t.Append(name, epoch)
	if topic != nil {
		t.place(hashOf(name), uint32(t.n))
		t.levels.add(name, uint32(t.n))
		t.indexed = t.n
	}
	return topic
}

// Append adds a topic of many, which is found after Index only, and moves then. Of several of one
// name the latest epoch holds, and of that the greatest head and the greatest oldest. nil: the
// table is full.
func (t *Table) Append(name string, epoch uint64) *Topic {
	of := t.epoch(epoch)
	if t.n == MaxTopics || of == 0 {
		return nil
	}
	if t.n == len(t.topics)*chunk {
		t.topics = append(t.topics, new([chunk]Topic))
	}
	t.n++
	topic := t.at(uint32(t.n))
	*topic = Topic{name: t.names.add(name), epoch: of}
	return topic
}

// Restart has a topic begin anew, without messages, under an epoch. false: there is no room for it.
func (t *Table) Restart(topic *Topic, epoch uint64) bool {
	of := t.epoch(epoch)
	if of != 0 {
		topic.Head, topic.Oldest, topic.OldestAt, topic.epoch, topic.keeps = 0, 0, 0, of, false
	}
	return of != 0
}

// Forget lets go of a topic. Its name stays until the table is compacted.
func (t *Table) Forget(topic *Topic) {
	*topic = Topic{name: topic.name}
	t.gone++
}

// Index has what was appended be found. It goes through one table after the other where topics of
// many come mixed: a table's own memory is near while it does.
func (t *Table) Index() {
	if t.indexed == t.n {
		return
	}
	all := uint32(t.n)
	if size := t.n + t.n/2; size > len(t.found) {
		t.n = t.indexed
		t.grow(max(8, size))
	}
	t.n = t.indexed
	t.levels.fill(func() { t.indexAfter(uint32(t.indexed), all) })
	t.indexed = t.n
}

func (t *Table) indexAfter(indexed, all uint32) {
	for n := indexed + 1; n <= all; n++ {
		from := *t.at(n)
		name := t.names.view(from.name)
		to := t.find(name)
		if to == nil {
			t.n++
			to = t.at(uint32(t.n))
			t.place(hashOf(name), uint32(t.n))
			t.levels.add(name, uint32(t.n))
		} else {
			from = t.joined(to, &from)
		}
		*to = from
	}
}

// joined is what two records of one name are together.
func (t *Table) joined(to, from *Topic) Topic {
	all := *to
	if to.epoch == 0 || from.epoch != to.epoch && t.Epoch(from) > t.Epoch(to) {
		all = *from
		all.name, all.changed = to.name, from.changed || to.changed
		if to.epoch == 0 {
			t.gone--
		}
		return all
	}
	all.changed = from.changed || to.changed
	if from.epoch == to.epoch {
		all.Head, all.Oldest, all.OldestAt = max(from.Head, to.Head), max(from.Oldest, to.Oldest), max(from.OldestAt, to.OldestAt)
		all.keeps = from.keeps || to.keeps
	}
	return all
}

// Changed notes that a topic, which Get or Add returned, is to be among the next TakeChanged.
func (t *Table) Changed(topic *Topic, name string) {
	if topic.changed {
		return
	}
	topic.changed = true
	h := hashOf(name)
	for at := h.place(len(t.found)); ; at = after(at, len(t.found)) {
		if n := t.found[at] & MaxTopics; t.found[at]>>24 == h.tag() && t.at(n) == topic {
			t.changed = append(t.changed, n)
			return
		}
	}
}

// TakeChanged visits the topics that have changed since it was last called. A name is not to be
// kept but in a copy.
func (t *Table) TakeChanged(visit func(name string, topic *Topic)) {
	for _, n := range t.changed {
		topic := t.at(n)
		if !topic.changed { // it was forgotten since
			continue
		}
		topic.changed = false
		visit(t.names.view(topic.name), topic)
	}
	t.changed = nil
}

// Each visits all topics. A name is not to be kept but in a copy.
func (t *Table) Each(visit func(name string, topic *Topic)) {
	for n := uint32(1); n <= uint32(t.n); n++ {
		if topic := t.at(n); topic.epoch != 0 {
			visit(t.names.view(topic.name), topic)
		}
	}
}

func (t *Table) place(h hash, n uint32) {
	at := h.place(len(t.found))
	for t.found[at] != 0 {
		at = after(at, len(t.found))
	}
	t.found[at] = h.tag()<<24 | n
}

func (t *Table) grow(places int) {
	t.found = make([]uint32, places)
	for n := uint32(1); n <= uint32(t.n); n++ {
		t.place(hashOf(t.names.view(t.at(n).name)), n)
	}
}

// hash of a name. Its rest by topic.Shards is the same for all topics of a table: only the upper
// bits tell them apart.
type hash uint64

func hashOf(name string) hash { return hash(xxhash.Sum64String(name)) }

// place in a hash table of so many places.
func (h hash) place(places int) int { return int(uint64(h>>32) * uint64(places) >> 32) }

// tag are bits that place does not use first.
func (h hash) tag() uint32 { return uint32(h>>16) & 0xff }

// Hash tables are open, and searched place by place.

func after(at, places int) int {
	if at++; at < places {
		return at
	}
	return 0
}

// full says that one more needs a larger table.
func full(n, places int) bool { return n >= places-places/4 }

// larger is the size after one: little more, so that little is free in many tables.
func larger(places int) int { return max(8, places+places/4) }
