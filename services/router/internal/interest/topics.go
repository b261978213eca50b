package interest

import "github.com/cespare/xxhash/v2"

// slot stands for one view of one edge's interest. 0 is none; 15 bits, because members packs slots.
type slot uint16

const maxSlots = 1<<15 - 1

// members is the set of slots that want a topic: up to four inline (16 bits each, 0: free), or, with
// the top bit set, an index into topics.spill. Most topics are wanted by one or two edges, so that the set costs 8 bytes.
type members uint64

const spilled members = 1 << 63

// parts is how many maps the topics are spread over: sweeping one part is short enough to hold a lock for.
const parts = 256

// topics maps exact topics to the slots that want them.
type topics struct {
	part  [parts]map[string]members
	spill [][]slot
	free  []uint32
}

func (t *topics) find(topic string) (*map[string]members, members) {
	m := &t.part[xxhash.Sum64String(topic)%parts]
	return m, (*m)[topic]
}

// add puts s into the set of topic; false where it was there.
func (t *topics) add(topic string, s slot) bool {
	m, set := t.find(topic)
	next, ok := t.with(set, s)
	if !ok {
		return false
	}
	if *m == nil {
		*m = map[string]members{}
	}
	if next != set {
		(*m)[topic] = next
	}
	return true
}

// remove takes s from the set of topic; false where it was not there.
func (t *topics) remove(topic string, s slot) bool {
	m, set := t.find(topic)
	next, ok := t.without(set, func(x slot) bool { return x == s })
	if !ok {
		return false
	}
	if next == 0 {
		delete(*m, topic)
	} else if next != set {
		(*m)[topic] = next
	}
	return true
}

// match appends the slots that want topic.
func (t *topics) match(dst []slot, topic string) []slot {
	_, set := t.find(topic)
	return t.list(dst, set)
}

func (t *topics) list(dst []slot, set members) []slot {
	if set&spilled != 0 {
		return append(dst, t.spill[uint32(set)]...)
	}
	for ; set != 0; set >>= 16 {
		if s := slot(set); s != 0 {
			dst = append(dst, s)
		}
	}
	return dst
}

func (t *topics) with(set members, s slot) (members, bool) {
	if set&spilled != 0 {
		list := &t.spill[uint32(set)]
		for _, have := range *list {
			if have == s {
				return set, false
			}
		}
		*list = append(*list, s)
		return set, true
	}
	room := -1
	for i := range 4 {
		switch slot(set >> (16 * i)) {
		case s:
			return set, false
		case 0:
			room = i
		}
	}
	if room >= 0 {
		return set | members(s)<<(16*room), true
	}
	return t.spillOver(append(t.list(nil, set), s)), true
}

func (t *topics) spillOver(list []slot) members {
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		t.spill[i] = list
		return spilled | members(i)
	}
	t.spill = append(t.spill, list)
	return spilled | members(len(t.spill)-1)
}

// without takes the slots that gone names from set; false where there is none.
func (t *topics) without(set members, gone func(slot) bool) (members, bool) {
	if set&spilled == 0 {
		next := set
		for i := range 4 {
			if s := slot(set >> (16 * i)); s != 0 && gone(s) {
				next &^= 0xffff << (16 * i)
			}
		}
		return next, next != set
	}
	i := uint32(set)
	list := t.spill[i]
	kept := list[:0]
	for _, s := range list {
		if !gone(s) {
			kept = append(kept, s)
		}
	}
	if len(kept) == len(list) {
		return set, false
	}
	t.spill[i] = kept
	if len(kept) > 4 {
		return set, true
	}
	t.spill[i], t.free = nil, append(t.free, i)
	var packed members
	for n, s := range kept {
		packed |= members(s) << (16 * n)
	}
	return packed, true
}

// sweep takes the slots that gone names from every topic of one part.
func (t *topics) sweep(part int, gone func(slot) bool) {
	m := t.part[part]
	for topic, set := range m {
		next, ok := t.without(set, gone)
		switch {
		case !ok:
		case next == 0:
			delete(m, topic)
		case next != set:
			m[topic] = next
		}
	}
}
