package databases

import (
	"context"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// Inspect asks all of them.
func (s *Set) Inspect(ctx context.Context) (all []*meshv1.InspectedDatabase) {
	for i, db := range s.all {
		for _, found := range db.Inspect(ctx) {
			found.Name = s.names[i]
			all = append(all, found)
		}
	}
	return all
}
