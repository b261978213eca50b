package walk

// Turns holds values of owners who take turns: one value of each is taken before any has another
// one taken, and those of one owner in the order in which they came. The zero value is ready.
type Turns[K comparable, V any] struct {
	of    map[K]*turn[K, V]
	order FIFO[*turn[K, V]]
	n     int
}

type turn[K comparable, V any] struct {
	owner  K
	values FIFO[V]
}

// Len is how many values there are.
func (t *Turns[K, V]) Len() int { return t.n }

// Push adds a value behind the others of its owner.
func (t *Turns[K, V]) Push(owner K, v V) {
	if t.of == nil {
		t.of = map[K]*turn[K, V]{}
	}
	o := t.of[owner]
	if o == nil {
		o = &turn[K, V]{owner: owner}
		t.of[owner] = o
		t.order.Push(o)
	}
	o.values.Push(v)
	t.n++
}

// Pop takes the first value of the owner whose turn it is; ok is false where there is none.
func (t *Turns[K, V]) Pop() (v V, ok bool) {
	o, ok := t.order.Pop()
	if !ok {
		return v, false
	}
	v, _ = o.values.Pop()
	if t.n--; o.values.Len() > 0 {
		t.order.Push(o)
	} else {
		delete(t.of, o.owner)
	}
	return v, true
}
