package interest

// slot stands for one view of one edge's interest. 0 is none; 15 bits, because members packs slots.
type slot uint16

const maxSlots = 1<<15 - 1

// members is a set of slots: up to four inline (16 bits each, 0: free), or, with the top bit set,
// an index into the lists of its sets. Most topics are wanted by one or two edges, so that the set
// costs 8 bytes.
type members uint64

const spilled members = 1 << 63

// sets keeps the lists of those members that have more than four slots.
type sets struct {
	lists [][]slot
	free  []uint32
}

// each calls f with every slot of set.
func (t *sets) each(set members, f func(slot)) {
	if set&spilled != 0 {
		for _, s := range t.lists[uint32(set)] {
			f(s)
		}
		return
	}
	for ; set != 0; set >>= 16 {
		if s := slot(set); s != 0 {
			f(s)
		}
	}
}

// with is set and s; false where s was in it.
func (t *sets) with(set members, s slot) (members, bool) {
	if set&spilled != 0 {
		list := &t.lists[uint32(set)]
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
	list := make([]slot, 0, 8)
	t.each(set, func(s slot) { list = append(list, s) })
	return t.spill(append(list, s)), true
}

func (t *sets) spill(list []slot) members {
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		t.lists[i] = list
		return spilled | members(i)
	}
	t.lists = append(t.lists, list)
	return spilled | members(len(t.lists)-1)
}

// without takes the slots that gone names from set, and says how many there were.
func (t *sets) without(set members, gone func(slot) bool) (next members, n int) {
	if set&spilled != 0 {
		return t.withoutSpilled(set, gone)
	}
	next = set
	for i := range 4 {
		if s := slot(set >> (16 * i)); s != 0 && gone(s) {
			next &^= 0xffff << (16 * i)
			n++
		}
	}
	return next, n
}

func (t *sets) withoutSpilled(set members, gone func(slot) bool) (members, int) {
	i := uint32(set)
	list := t.lists[i]
	kept := list[:0]
	for _, s := range list {
		if !gone(s) {
			kept = append(kept, s)
		}
	}
	n := len(list) - len(kept)
	if n == 0 {
		return set, 0
	}
	t.lists[i] = kept
	if len(kept) > 4 {
		return set, n
	}
	t.lists[i], t.free = nil, append(t.free, i)
	var packed members
	for k, s := range kept {
		packed |= members(s) << (16 * k)
	}
	return packed, n
}
