package ranked

import (
	"slices"
	"testing"
)

// The best come first, whatever was put back before them, then the rest without what is skipped.
func TestOrder(t *testing.T) {
	o := Order{Best: []Next{{Seq: 7}, {Seq: 3}}, From: 1, To: 8, Skip: []uint64{1, 3, 7, 8}}
	var got []uint64
	for {
		next, ok := o.Next()
		if !ok {
			break
		}
		o.Pop()
		if got = append(got, next.Seq); len(got) == 1 {
			o.PutBack(next.Seq, 0)
		}
	}
	if want := []uint64{7, 7, 3, 2, 4, 5, 6}; !slices.Equal(got, want) {
		t.Fatalf("%v, not %v", got, want)
	}
	if _, ok := o.Next(); ok || o.From != 0 {
		t.Fatal("something remains of an order that was handed on")
	}
}
