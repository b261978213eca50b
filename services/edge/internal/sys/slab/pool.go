package slab

// Pool is a slab for values that hold what the collector must see. Its places are never given back,
// so that a value of a Slab may point to them. It belongs to one goroutine.
type Pool[T any] struct {
	chunks []*[poolItems]T
	next   int
	free   []*T
	taken  int
}

const poolItems = 64

// Take gives a zeroed place.
func (p *Pool[T]) Take() *T {
	p.taken++
	if n := len(p.free); n > 0 {
		v := p.free[n-1]
		p.free = p.free[:n-1]
		return v
	}
	if len(p.chunks) == 0 || p.next == poolItems {
		p.chunks, p.next = append(p.chunks, new([poolItems]T)), 0
	}
	v := &p.chunks[len(p.chunks)-1][p.next]
	p.next++
	return v
}

// Give takes a place back and clears it, so that nothing stays referenced.
func (p *Pool[T]) Give(v *T) {
	var zero T
	*v = zero
	p.GiveCleared(v)
}

// GiveCleared takes a place back that its user has cleared.
func (p *Pool[T]) GiveCleared(v *T) {
	p.taken--
	p.free = append(p.free, v)
}

// Taken is how many places are in use.
func (p *Pool[T]) Taken() int { return p.taken }
