package promise

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Victim is a process that can be struck (killed, or frozen) and brought back.
type Victim struct {
	Name   string
	Strike func() error
	Back   func() error
	// Parts are what no two victims may have a hand in at a time; empty: nothing.
	Parts []string
}

// Faults strikes one victim after the other, each at a random moment and for a random time, also several at once.
type Faults struct {
	Victims []Victim
	// Every is the mean time between strikes, Down the longest that a victim stays away.
	Every, Down time.Duration
	Rand        *rand.Rand

	// Struck is how often each victim was, in all runs; read when Run has returned.
	Struck map[string]int
}

// Run strikes until ctx ends, and returns when everything is back.
func (f *Faults) Run(ctx context.Context) error {
	if f.Struck == nil {
		f.Struck = map[string]int{}
	}
	var up sync.WaitGroup
	busy, taken := make([]bool, len(f.Victims)), map[string]bool{}
	back := make(chan int, len(f.Victims)) // a victim lies there once at most: it is busy until it is taken out
	errs := make(chan error, len(f.Victims))
	defer up.Wait()
	for {
		select {
		case <-ctx.Done():
			up.Wait()
			select {
			case err := <-errs:
				return err
			default:
				return nil
			}
		case i := <-back:
			busy[i] = false
			for _, part := range f.Victims[i].Parts {
				delete(taken, part)
			}
			continue
		case err := <-errs:
			return err
		case <-time.After(time.Duration(f.Rand.ExpFloat64() * float64(f.Every))):
		}
		i := f.Rand.IntN(len(f.Victims))
		v, down := f.Victims[i], time.Duration(f.Rand.Int64N(int64(f.Down)))
		if busy[i] || slices.ContainsFunc(v.Parts, func(part string) bool { return taken[part] }) {
			continue
		}
		busy[i] = true
		for _, part := range v.Parts {
			taken[part] = true
		}
		f.Struck[v.Name]++
		up.Go(func() {
			err := v.Strike()
			time.Sleep(down)
			if err == nil {
				err = v.Back()
			}
			if err != nil {
				errs <- fmt.Errorf("%s: %w", v.Name, err)
				return
			}
			back <- i
		})
	}
}

// Total of all strikes.
func (f *Faults) Total() (n int) {
	for _, k := range f.Struck {
		n += k
	}
	return n
}
