package publish

import (
	"bufio"
	"crypto/rand"
	"sync"

	"github.com/google/uuid"
)

// ids makes message ids: UUIDs of version 7, so that later ones are greater to the millisecond.
// Randomness is taken from the system for 64 at a time.
type ids struct{ random sync.Pool }

const idsAtOnce = 64

func (g *ids) next(dst *[16]byte) error {
	r, _ := g.random.Get().(*bufio.Reader)
	if r == nil {
		r = bufio.NewReaderSize(rand.Reader, idsAtOnce*16)
	}
	defer g.random.Put(r)
	id, err := uuid.NewV7FromReader(r)
	*dst = id
	return err
}
