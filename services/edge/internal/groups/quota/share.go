package quota

// Share bounds how many things each of many has at a time. The zero K has no bound. It is not safe
// for concurrent use.
type Share[K comparable] struct {
	most int // 0: no limit
	has  map[K]int
}

// NewShare makes one of so many things for each; 0: no limit.
func NewShare[K comparable](most int) Share[K] { return Share[K]{most: most, has: map[K]int{}} }

// Fits reports whether k may have one more.
func (s *Share[K]) Fits(k K) bool {
	var none K
	return s.most == 0 || k == none || s.has[k] < s.most
}

// Add notes that k has one more.
func (s *Share[K]) Add(k K) {
	var none K
	if s.most > 0 && k != none {
		s.has[k]++
	}
}

// Remove notes that k has one less.
func (s *Share[K]) Remove(k K) {
	var none K
	if s.most == 0 || k == none {
		return
	}
	if s.has[k]--; s.has[k] == 0 {
		delete(s.has, k)
	}
}

// Len is how many have something.
func (s *Share[K]) Len() int { return len(s.has) }
