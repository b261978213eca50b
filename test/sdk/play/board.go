package play

import (
	"fmt"
	"sync"
	"time"
)

// patience bounds a step that waits.
const patience = 10 * time.Second

// board is where everything that happens in a scene is put up: lines, connections, frames. Whoever
// waits for something looks again at each change.
type board struct {
	mu      sync.Mutex
	changed chan struct{}
	broken  error // the scene can't go on
}

func newBoard() *board { return &board{changed: make(chan struct{})} }

// post changes what is put up.
func (b *board) post(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	close(b.changed)
	b.changed = make(chan struct{})
}

// fail ends the scene.
func (b *board) fail(err error) {
	b.post(func() {
		if b.broken == nil {
			b.broken = err
		}
	})
}

// await looks, with the lock held, until the answer is yes or an error, or a time is over.
func (b *board) await(within time.Duration, look func() (bool, error)) error {
	over := time.NewTimer(within)
	defer over.Stop()
	for {
		b.mu.Lock()
		yes, err := look()
		if err == nil && !yes {
			err = b.broken
		}
		changed := b.changed
		b.mu.Unlock()
		if yes || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-over.C:
			return errLate
		}
	}
}

// quiet fails if something comes within a time.
func (b *board) quiet(during time.Duration, look func() error) error {
	err := b.await(during, func() (bool, error) { return false, look() })
	if err == errLate { //nolint:errorlint // it is made here
		return nil
	}
	return err
}

var errLate = fmt.Errorf("it did not come")
