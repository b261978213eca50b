package ownership

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// looked is one look of a test.
type looked struct {
	begun, ended time.Time
	runs         map[string]backend.Pulse
}

// idleFor is how long a run certainly did nothing, by the looks since it was seen first with its
// mark: from the end of that look to at. Looks that took long, or came long after the one before,
// prove nothing about what was before them. False: the last look has not seen it.
func idleFor(looks []looked, id string, at time.Time) (time.Duration, bool) {
	last := looks[len(looks)-1]
	mark, here := last.runs[id]
	if !here {
		return 0, false
	}
	first := len(looks) - 1
	for i := first; i > 0; i-- {
		now, before := looks[i], looks[i-1]
		p, present := before.runs[id]
		if now.runs[id].Busy || !present || p.Mark != mark.Mark || now.begun.Sub(before.ended) > maxLookGap || now.ended.Sub(now.begun) > maxLookGap {
			break
		}
		first = i - 1
	}
	return at.Sub(looks[first].ended), true
}

// Whatever stores do and however long looks take: a run is fenced exactly if every look of the last
// two seconds has found it idle, and it holds something this store wants; and it takes part as long
// as it did something within that time.
func TestAWitnessFencesWhomItSawDoNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pause := rapid.SampledFrom([]float64{0, 0.1, 0.5, 0.5, 0.5, 1, 1.5, 1.6})
		names := []string{"a", "b", "me"}
		me := backend.RunID{StoreID: "me", Incarnation: 1}
		w, now, marks := observations{}, seconds(0), map[string]int{}
		if w.fresh(now) {
			t.Fatal("observations without a look are fresh")
		}
		var looks []looked
		for range rapid.IntRange(1, 12).Draw(t, "looks") {
			now = now.Add(time.Duration(pause.Draw(t, "pause") * float64(time.Second)))
			l := looked{begun: now, runs: map[string]backend.Pulse{}}
			now = now.Add(time.Duration(pause.Draw(t, "takes") / 4 * float64(time.Second)))
			l.ended = now
			v := backend.View{}
			mine := map[int]bool{}
			for shard, id := range names {
				if rapid.IntRange(0, 3).Draw(t, id+" works") == 0 {
					marks[id]++
				}
				p := pulse(id, fmt.Sprint(marks[id]))
				p.Busy = rapid.IntRange(0, 9).Draw(t, id+" is busy") == 0
				l.runs[id] = p
				v.Runs = append(v.Runs, p)
				v.Owners = append(v.Owners, backend.Ownership{Shard: shard, Owner: backend.Owner{StoreID: id, Incarnation: 1}},
					backend.Ownership{Shard: shard + 10, Owner: backend.Owner{StoreID: id, Incarnation: 1}})
				mine[shard], mine[shard+10] = rapid.Bool().Draw(t, "mine"), rapid.Bool().Draw(t, "mine")
			}
			looks = append(looks, l)
			w.note(v, l.begun, l.ended)

			var fence, live []string
			for shard, id := range names {
				idle, _ := idleFor(looks, id, l.begun)
				if idle >= silence && (mine[shard] || mine[shard+10]) && id != "me" {
					fence = append(fence, id)
				}
				if idle, _ := idleFor(looks, id, now); idle < silence {
					live = append(live, id)
				}
			}
			var over []string
			for _, s := range w.silent(me, mine) {
				over = append(over, s.StoreID)
				if s.mark != l.runs[s.StoreID].Mark {
					t.Fatalf("%s is fenced by the mark %s, it has %s", s.StoreID, s.mark, l.runs[s.StoreID].Mark)
				}
			}
			if !slices.Equal(over, fence) {
				t.Fatalf("silent: %v, want %v of %v", over, fence, looks)
			}
			living := w.living(now)
			if slices.Sort(living); !slices.Equal(living, live) {
				t.Fatalf("living: %v, want %v of %v", living, live, looks)
			}
			if !w.fresh(now) || !w.fresh(now.Add(silence-1)) || w.fresh(now.Add(silence)) {
				t.Fatal("what a look has seen counts for the time of silence, and no longer")
			}
		}
	})
}

// Connections that end for a moment start no new count: who comes back with the same mark has been
// silent since it was seen first, and who is away for longer than silence is gone.
func TestSilenceGoesOnWhileConnectionsAreAway(t *testing.T) {
	everything, here := map[int]bool{0: true}, view(pulse("a", "1"))
	away := here
	away.Runs = nil
	w := observations{}
	for i, v := range []backend.View{here, away, here, away, here} { // at 0, 0.5 … 2 s
		at := seconds(float64(i) / 2)
		w.note(v, at, at)
	}
	if over := w.silent(backend.RunID{}, everything); len(over) != 1 {
		t.Errorf("after two seconds with the same mark %v are silent", over)
	}
	w = observations{}
	for i, v := range []backend.View{here, away, away, away, away, here, here} {
		at := seconds(float64(i) / 2)
		w.note(v, at, at)
		if over := w.silent(backend.RunID{}, everything); over != nil {
			t.Errorf("look %d: one that came back after two seconds is fenced at once: %v", i, over)
		}
	}
}
