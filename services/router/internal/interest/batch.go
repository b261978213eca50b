package interest

import "github.com/pushmesh/pushmesh/internal/events"

// batch is a part of a snapshot, sorted by where its topics go: one that is added alone waits for
// memory twice, for its part and for its entry. Of those that come together the processor fetches
// several entries at once.
type batch struct {
	keys   []key
	sorted []key
	ends   [parts]uint32 // of the keys of each part, in sorted
}

// addAll adds filters to v.
func (t *Table) addAll(v *view, filters []string) {
	b := &t.batch
	b.keys = b.keys[:0]
	for _, f := range filters {
		if wildcard(f) || events.IsEvent(f) {
			t.add(v, f)
			continue
		}
		b.keys = append(b.keys, keyOf(f))
	}
	b.sort()
	from := uint32(0)
	for i, end := range b.ends {
		if from < end {
			n, sum := t.topics.part[i].addAll(b.sorted[from:end], v.slot, t.topics.expected)
			v.count += n
			v.hash += sum
		}
		from = end
	}
}

// sort counts, and puts each key behind those before it.
func (b *batch) sort() {
	if cap(b.sorted) < len(b.keys) {
		b.sorted = make([]key, cap(b.keys))
	}
	b.sorted = b.sorted[:len(b.keys)]
	clear(b.ends[:])
	for _, k := range b.keys {
		b.ends[partOfKey(k)]++
	}
	at := uint32(0)
	for i, n := range b.ends {
		b.ends[i] = at
		at += n
	}
	for _, k := range b.keys {
		end := &b.ends[partOfKey(k)]
		b.sorted[*end] = k
		*end++
	}
}

// addAll adds s to the sets of topics, and says how many it was not in, and the sum of their
// hashes.
func (p *part) addAll(keys []key, s slot, expected int) (n, sum uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.room(len(keys), expected)
	for _, k := range keys {
		if p.add(k, s) {
			n++
			sum += k.sum
		}
	}
	return n, sum
}
