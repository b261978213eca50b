package walk

import (
	"slices"
	"testing"
)

func TestARoundVisitsEachPlaceOnce(t *testing.T) {
	for _, tt := range []struct {
		from, n uint32
		want    []uint32
	}{
		{0, 0, nil}, {0, 3, []uint32{2, 1, 0}}, {2, 5, []uint32{1, 0, 4, 3, 2}}, {5, 5, []uint32{4, 3, 2, 1, 0}}, {9, 3, []uint32{2, 1, 0}},
	} {
		r := RoundFrom(tt.from)
		var got []uint32
		for place, ok := r.Next(tt.n); ok; place, ok = r.Next(tt.n) {
			if got = append(got, place); len(got) > 20 {
				t.Fatalf("from %d of %d it never ends", tt.from, tt.n)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("from %d of %d it visits %v, want %v", tt.from, tt.n, got, tt.want)
		}
	}
}

// Places that go while the round is under way are not visited.
func TestARoundWhosePlacesGo(t *testing.T) {
	r := RoundFrom(4)
	r.Next(10) // 3
	if place, ok := r.Next(2); !ok || place != 1 {
		t.Fatalf("of two places %d is next, %v", place, ok)
	}
	r.Next(2)
	if place, ok := r.Next(2); ok {
		t.Fatalf("%d is visited once more", place)
	}
}
