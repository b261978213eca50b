package groups

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

var fleets = flag.Int("fleets", 8, "how many fleets TestWhateverDies plays")

// Whatever dies, freezes or is out of reach, and however long, every message is ACKed soon after
// that is over, no dispatcher takes anything for assigned that no member has, and no member is
// ended for newcomers who want another key.
func TestWhateverDies(t *testing.T) {
	for seed := range uint64(*fleets) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { trouble(t, newFleet(t, seed, "a", "b", "c")) })
		})
	}
}

func trouble(t *testing.T, f *fleet) {
	defer f.stop()
	edges := []string{"a", "b", "c"}
	began := time.Now()
	joinAt, faultAt := began, began.Add(time.Second)
	for n := 0; time.Since(began) < 30*time.Second; n++ {
		f.publish(fmt.Sprint("room/", int(f.upTo(2))), !f.chance(0.02))
		pass(f.upTo(40 * time.Millisecond))
		if now := time.Now(); now.After(joinAt) {
			key := ""
			if f.chance(0.2) {
				key = "topic"
			}
			f.process(edges[f.upTo(2)]).loop.joinKey(f.upTo(3*time.Second), key)
			joinAt = now.Add(f.upTo(500 * time.Millisecond))
		}
		if now := time.Now(); now.After(faultAt) {
			f.fault(edges[f.upTo(2)])
			faultAt = now.Add(f.upTo(1500 * time.Millisecond))
		}
	}
	pass(6 * time.Second) // all that was broken is mended
	f.mu.Lock()
	f.loss = 0
	f.mu.Unlock()
	for _, id := range edges {
		c := f.process(id).loop
		c.do(func() {
			c.ordered = true
			for conn, m := range c.all {
				if m.key != "" {
					c.leave(conn)
				}
			}
		})
	}
	pass(5 * time.Second)
	for _, id := range edges {
		f.process(id).loop.join(0)
	}
	pass(5 * time.Second)
	for i := range 3 { // shows what was lost live
		f.publish(fmt.Sprint("room/", i), true)
	}
	pass(15 * time.Second)
	missing := f.missing()
	if len(missing) > 0 {
		t.Errorf("%d messages are not ACKed, such as %v", len(missing), missing[0])
	}
	f.agree()
	if t.Failed() {
		f.tale(missing)
	}
}

// fault breaks something for a while.
func (f *fleet) fault(edge string) {
	down := f.upTo(4 * time.Second)
	set := func(what func(on bool)) {
		f.mu.Lock()
		what(true)
		f.mu.Unlock()
		time.AfterFunc(down, func() {
			f.mu.Lock()
			what(false)
			f.mu.Unlock()
		})
	}
	switch p := f.process(edge); f.upTo(9) {
	case 0, 1, 2, 3:
		if !p.over() {
			p.kill()
			time.AfterFunc(down/2, func() { f.start(edge) })
		}
		if f.chance(0.5) { // with the store
			set(func(on bool) { f.storeAway = on })
		}
	case 4, 5:
		p.freeze()
		time.AfterFunc(down, p.wake)
	case 6, 7:
		set(func(on bool) { f.storeAway = on })
	case 8:
		set(func(on bool) { f.busAway = on })
	case 9:
		set(func(on bool) {
			if f.loss = 0; on {
				f.loss = 0.3
			}
		})
	}
}

// agree checks that each dispatcher's members, and what they have, are those that their edges know.
func (f *fleet) agree() {
	known := map[MemberDescription]bool{}
	var taken []MemberDescription
	for id := range f.procs {
		for _, d := range f.process(id).Describe(context.Background(), "") {
			for _, m := range d.Members {
				known[m] = true
			}
			if d.Dispatcher != nil {
				taken = append(taken, d.Dispatcher.Members...)
			}
		}
	}
	for _, m := range taken {
		if !known[m] {
			f.t.Errorf("a dispatcher's member is none, or has something else: %+v", m)
		}
	}
	if len(taken) != len(known) || len(known) < len(f.procs) {
		f.t.Errorf("dispatchers have %d members, edges %d", len(taken), len(known))
	}
}
