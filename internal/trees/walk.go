package trees

// walk takes one lane of a group from the root to its leaf.
func (m *Model) walk(steps []step, group [][lanes]int64, lane int) uint32 {
	place := uint32(0)
	for {
		s := &steps[place]
		if s.child == place {
			return place
		}
		place = m.next(s, group[s.slot&^category][lane])
	}
}

// next is where the slot's integer goes from a split.
func (m *Model) next(s *step, key int64) uint32 {
	second := key > s.key
	if s.slot&category != 0 {
		second = !m.has(s.key, key)
	}
	if second {
		return s.child + 1
	}
	return s.child
}

// walkLanes takes all lanes of a group through a tree without categorical splits. A lane at its
// leaf stays there.
func walkLanes(steps []step, group [][lanes]int64, depth int, places *[lanes]uint32) {
	var p0, p1, p2, p3, p4, p5, p6, p7 uint32
	for range depth {
		s := &steps[p0]
		p0 = s.child + above(group[s.slot][0], s.key)
		s = &steps[p1]
		p1 = s.child + above(group[s.slot][1], s.key)
		s = &steps[p2]
		p2 = s.child + above(group[s.slot][2], s.key)
		s = &steps[p3]
		p3 = s.child + above(group[s.slot][3], s.key)
		s = &steps[p4]
		p4 = s.child + above(group[s.slot][4], s.key)
		s = &steps[p5]
		p5 = s.child + above(group[s.slot][5], s.key)
		s = &steps[p6]
		p6 = s.child + above(group[s.slot][6], s.key)
		s = &steps[p7]
		p7 = s.child + above(group[s.slot][7], s.key)
	}
	*places = [lanes]uint32{p0, p1, p2, p3, p4, p5, p6, p7}
}

// above is 1 where a > b, without a branch.
func above(a, b int64) uint32 {
	if a > b {
		return 1
	}
	return 0
}
