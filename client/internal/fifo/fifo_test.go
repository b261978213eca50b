package fifo

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type item struct {
	number uint64
	size   int
}

func (it item) Size() int   { return it.size }
func (it item) stays() bool { return it.number%3 == 0 }

// A queue is first in, first out, knows its bytes, keeps what is to stay, and no memory of what it
// gave away; numbers are those of the pushes, until something before them was taken out.
func TestQueueAgainstASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[item]
		var model []item
		made, taken := uint64(0), uint64(0) // the last one before something was taken out
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			n := rapid.IntRange(1, 1500).Draw(t, "n")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1, 2:
				for range n {
					made++
					it := item{made, int(made%7 + 1)}
					if q.Pushed() != made-1 {
						t.Fatalf("%d were pushed of %d", q.Pushed(), made-1)
					}
					q.Push(it)
					model = append(model, it)
				}
			case 3, 4:
				for range min(n, len(model)) {
					number, got := q.Pop()
					if got != model[0] {
						t.Fatalf("popped %+v, want %+v", got, model[0])
					}
					if own := got.number - 1; number < own || got.number > taken && number != own {
						t.Fatalf("%+v is number %d", got, number)
					}
					model = model[1:]
				}
			default:
				q.Keep(item.stays)
				model = slices.DeleteFunc(slices.Clone(model), func(it item) bool { return !it.stays() })
				taken = made
			}
			bytes := 0
			for _, it := range model {
				bytes += it.size
			}
			if q.Len() != len(model) || q.Bytes() != bytes {
				t.Fatalf("%d items of %d bytes, want %d of %d", q.Len(), q.Bytes(), len(model), bytes)
			}
			for _, it := range q.items[:q.head] {
				if it != (item{}) {
					t.Fatal("a message that was handed over is kept")
				}
			}
			if len(model) == 0 && cap(q.items) > 1500 {
				t.Fatalf("an empty queue has room for %d", cap(q.items))
			}
		}
	})
}

// A queue that never runs empty does not grow for ever, and one that does owns nothing but a
// little.
func TestAQueuesMemory(t *testing.T) {
	var q Queue[item]
	for range 100 {
		q.Push(item{})
	}
	for range 100_000 {
		q.Push(item{})
		q.Pop()
		if cap(q.items) > 8192 {
			t.Fatalf("room for %d, and 100 wait", cap(q.items))
		}
	}
	for q.Len() > 0 {
		q.Pop()
	}
	if cap(q.items) > 64 {
		t.Errorf("an idle queue has room for %d", cap(q.items))
	}
}
