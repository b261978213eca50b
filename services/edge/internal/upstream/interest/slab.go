package interest

const slabChunk = 1 << 10

// slab holds filters in places that don't move, in the order in which they came: whoever walks over
// all of them finds neighbours, and their names, beside each other in memory. The zero slab is
// empty.
type slab struct {
	chunks []*[slabChunk]filter
	end    uint32 // places that were ever taken
	spare  []uint32
}

// at is the filter in a place.
func (s *slab) at(i uint32) *filter { return &s.chunks[i/slabChunk][i%slabChunk] }

// take finds a free place.
func (s *slab) take() uint32 {
	if n := len(s.spare); n > 0 {
		i := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return i
	}
	i := s.end
	if i%slabChunk == 0 {
		s.chunks = append(s.chunks, new([slabChunk]filter))
	}
	s.end++
	return i
}

// free gives a place back, and all memory once nobody has one.
func (s *slab) free(i uint32) {
	*s.at(i) = filter{}
	s.spare = append(s.spare, i)
	if len(s.spare) == int(s.end) {
		*s = slab{}
	}
}
