package publish

import (
	"sync"
	"testing"

	"github.com/google/uuid"
)

func TestIdsAreNeverTheSame(t *testing.T) {
	var g ids
	const each = 5000
	made := make([][each][16]byte, 4)
	var all sync.WaitGroup
	for w := range made {
		all.Go(func() {
			for i := range made[w] {
				if err := g.next(&made[w][i]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	seen := map[[16]byte]bool{}
	for w := range made {
		last := uuid.UUID{}
		for _, id := range made[w] {
			if seen[id] {
				t.Fatalf("%v twice", id)
			}
			seen[id] = true
			u := uuid.UUID(id)
			if u.Version() != 7 || u.Variant() != uuid.RFC4122 || u.Time() < last.Time() {
				t.Fatalf("%v after %v", u, last)
			}
			last = u
		}
	}
}
