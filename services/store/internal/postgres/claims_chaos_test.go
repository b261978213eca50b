package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// counting is what stores do that count together: the only place of shard 3 has the last number as
// its owner. Each number is a commit: were two runs good at the same time, both would be told that
// they had made the same number; were a commit lost, a later take would find less.
type counting struct {
	mu      sync.Mutex
	by      map[int]string // who was told of a number
	last    int            // the greatest that anybody was told of
	fenced  int
	faults  int // other errors of runs
	refused int // opened within atOnce, in vain
	wrong   []error
	more    chan struct{} // closed at the next change
}

func (c *counting) note(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.more)
	c.more = make(chan struct{})
}

func (c *counting) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(backendtest.Patience)
	for {
		c.mu.Lock()
		ok, more, wrong := cond(), c.more, errors.Join(c.wrong...)
		c.mu.Unlock()
		if wrong != nil {
			t.Fatal(wrong)
		}
		if ok {
			return
		}
		select {
		case <-more:
		case <-deadline:
			c.mu.Lock()
			defer c.mu.Unlock()
			t.Fatalf("never: %s; %d counted, %d times fenced, %d faults", what, c.last, c.fenced, c.faults)
		}
	}
}

// another n numbers from now on.
func (c *counting) another(n int) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := c.last
	return func() bool { return c.last >= from+n }
}

// count opens runs until ctx ends, takes the shard from whoever has it, and counts up to turn
// numbers.
func (c *counting) count(ctx context.Context, d *DB, id string, turn int) {
	pause := time.NewTicker(2 * time.Millisecond)
	defer pause.Stop()
	for ctx.Err() == nil {
		begun := time.Now()
		r, err := d.OpenClaims(ctx, owner(id))
		if err != nil {
			c.note(func() {
				e := code.From(err)
				if e.Code != wirev1.Code_CODE_UNAVAILABLE || e.RetryAfter == 0 {
					c.wrong = append(c.wrong, fmt.Errorf("opening was refused with %w", err))
				}
				if time.Since(begun) < atOnce {
					c.refused++
				}
			})
			<-pause.C
			continue
		}
		err = c.turn(ctx, r, id, turn)
		c.note(func() {
			switch {
			case errors.Is(err, backend.ErrFenced):
				c.fenced++
			case err != nil:
				c.faults++
			}
		})
		if err := r.Close(); err != nil {
			c.note(func() { c.wrong = append(c.wrong, err) })
		}
	}
}

func (c *counting) turn(ctx context.Context, r backend.ClaimWriter, id string, turn int) error {
	c.mu.Lock()
	least := c.last
	c.mu.Unlock()
	var places []backend.ClaimPlace
	taken, _, err := r.Take(ctx, []int{3}, true, func(p backend.ClaimPlace) { places = append(places, p) })
	if err != nil {
		return err
	}
	var change backend.ClaimChanges
	n := 0
	if len(places) == 1 {
		n, _ = strconv.Atoi(places[0].Owner)
		change.Delete = []backend.ClaimKey{places[0].ClaimKey}
	}
	if len(places) > 1 || n < least {
		c.note(func() { c.wrong = append(c.wrong, fmt.Errorf("%s took %v, %d was counted before", id, places, least)) })
	}
	for i := range uint64(turn) {
		key := backend.ClaimKey{Shard: 3, Seq: taken[0].Next + i}
		n++
		change.Put = []backend.ClaimPlace{{ClaimKey: key, Owner: strconv.Itoa(n)}}
		if _, err := r.Commit(ctx, &change); err != nil {
			return err
		}
		c.note(func() {
			if other, twice := c.by[n]; twice {
				c.wrong = append(c.wrong, fmt.Errorf("%s and %s both made %d", other, id, n))
			}
			c.by[n], c.last = id, max(c.last, n)
		})
		change.Delete = []backend.ClaimKey{key}
	}
	return nil
}

func TestClaimsOverCrashesHangsAndTakes(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	c := &counting{by: map[int]string{}, more: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	var counters sync.WaitGroup
	t.Cleanup(func() {
		stop()
		counters.Wait()
	})
	for i, id := range []string{"a", "b"} {
		d := openWith(t, Config{URL: server.URL(), Patience: time.Second})
		pulse(t, d)
		counters.Go(func() { c.count(ctx, d, id, 400+100*i) })
	}
	c.until(t, "numbers and takes by force", func() bool { return c.last >= 500 && c.fenced >= 5 })

	for deadline := time.Now().Add(backendtest.Patience); ; {
		// one that ends between two commits of its run's last is no fault
		goesOn := c.another(20)
		pgtest.Terminate(t, server.URL(), `application_name = 'pushmesh-claims'`)
		c.until(t, "numbers after the end of a backend", goesOn)
		c.mu.Lock()
		enough := c.faults >= 3
		c.mu.Unlock()
		if enough {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("runs don't notice that their backends were ended")
		}
	}
	refusesAtOnce := func(what string, trouble func() error) {
		c.mu.Lock()
		faults := c.faults
		c.mu.Unlock()
		need(t, trouble())
		c.until(t, "a run is lost "+what, func() bool { return c.faults > faults })
		c.mu.Lock()
		refused := c.refused
		c.mu.Unlock()
		c.until(t, "refusals at once "+what, func() bool { return c.refused >= refused+3 })
	}
	refusesAtOnce("without a server", server.Kill)
	need(t, server.Restart())
	c.until(t, "numbers after a crash", c.another(100))
	refusesAtOnce("while the server hangs", server.Pause)
	need(t, server.Resume())
	c.until(t, "numbers after a hang", c.another(100))

	stop()
	counters.Wait()
	c.until(t, "nothing wrong", func() bool { return true })
	t.Logf("%d counted, %d runs fenced, %d lost", c.last, c.fenced, c.faults)
	last := openWith(t, Config{URL: server.URL(), Patience: backendtest.Patience})
	for fenced := true; fenced; { // by what the server was still at when its counter stopped
		r, err := last.OpenClaims(t.Context(), owner("c"))
		need(t, err)
		err = c.turn(t.Context(), r, "c", 1) // it must find all that was counted
		if fenced = errors.Is(err, backend.ErrFenced); !fenced {
			need(t, err)
		}
		need(t, r.Close())
	}
	c.until(t, "nothing wrong at the end", func() bool { return true })
}
