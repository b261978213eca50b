package promise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Victim is a part of a mesh that can be struck in one way, and brought back.
type Victim struct {
	Name string
	// Kind of the fault: it is what the report counts by.
	Kind   Fault
	Strike func() error
	Back   func() error
	// Parts are what no two victims may have a hand in at a time; empty: nothing.
	Parts []string
	// Down is the longest that it stays away; 0: as long as Faults says.
	Down time.Duration
}

// Fault is a kind of fault.
type Fault string

// Kinds of faults.
const (
	// Kill ends a process with SIGKILL, Freeze stops it for a while, which it does not notice
	// itself.
	Kill   Fault = "kill"
	Freeze Fault = "freeze"
	// Alone kills all stores, routers and edges, of which one begins again without any other.
	Alone Fault = "begin without stores"
)

// Faults strikes one victim after the other, each at a random moment and for a random time, also
// several at once.
type Faults struct {
	Victims []Victim
	// Every is the mean time between strikes, Down the longest that a victim stays away.
	Every, Down time.Duration
	Rand        *rand.Rand

	// Struck is how often each victim was, in all runs, and Kinds how often each kind of fault;
	// read when Run has returned.
	Struck map[string]int
	Kinds  map[Fault]int
}

// Run strikes until ctx ends, and returns when everything is back.
func (f *Faults) Run(ctx context.Context) error {
	var up sync.WaitGroup
	busy, taken := make([]bool, len(f.Victims)), map[string]bool{}
	// a victim lies there once at most: it is busy until it is taken out
	back := make(chan int, len(f.Victims))
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
		v := f.Victims[i]
		down := time.Duration(f.Rand.Int64N(int64(cmp.Or(v.Down, f.Down))))
		if busy[i] || slices.ContainsFunc(v.Parts, func(part string) bool { return taken[part] }) {
			continue
		}
		busy[i] = true
		for _, part := range v.Parts {
			taken[part] = true
		}
		f.count(v)
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

// Strike one victim, whatever chance says, while Run does not run; it is back at once.
func (f *Faults) Strike(v Victim) error {
	f.count(v)
	return errors.Join(v.Strike(), v.Back())
}

func (f *Faults) count(v Victim) {
	if f.Struck == nil {
		f.Struck, f.Kinds = map[string]int{}, map[Fault]int{}
	}
	f.Struck[v.Name]++
	f.Kinds[v.Kind]++
}

// Total of all strikes.
func (f *Faults) Total() (n int) {
	for _, k := range f.Struck {
		n += k
	}
	return n
}
