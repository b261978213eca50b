package ownership

import (
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// blind is how long the pause between two looks, or a look, may be: after a longer one nothing that
// was seen before counts, for this process may have been frozen, or the database stood still for
// everybody.
const blind = 3 * beatEvery

// witness judges who is silent in one database. A run is silent when its mark stays the same in
// looks that follow each other closely, for as long as silence by this process's monotonic clock.
// Nobody's clock of the day takes part, and neither does NATS.
type witness struct {
	owners []backend.Ownership
	// begun and ended are of the last look; zero: there was none.
	begun, ended time.Time
	runs         map[backend.RunID]sight
}

// sight of a run: its last mark, and since when.
type sight struct {
	mark  string
	since time.Time
}

// note takes what a look saw that began and ended then. A mark was read somewhere between the two,
// so silence is counted from the end of the first look that saw it to the begin of the last.
func (w *witness) note(v backend.View, begun, ended time.Time) {
	if begun.Sub(w.ended) > blind || ended.Sub(begun) > blind {
		w.runs = map[backend.RunID]sight{}
	}
	w.owners, w.begun, w.ended = v.Owners, begun, ended
	before := w.runs
	w.runs = map[backend.RunID]sight{}
	for _, p := range v.Runs {
		s, known := before[p.RunID]
		if !known || s.mark != p.Mark || p.Busy {
			s = sight{mark: p.Mark, since: ended}
		}
		w.runs[p.RunID] = s
	}
	for id, s := range before {
		// its connections are gone: it may be back at once. Nobody is found silent by that: silence
		// ends it
		if _, here := w.runs[id]; !here && ended.Sub(s.since) < silence {
			w.runs[id] = s
		}
	}
}

// fresh reports whether the last look is recent enough to go by.
func (w *witness) fresh(now time.Time) bool { return !w.ended.IsZero() && now.Sub(w.ended) < silence }

// alive reports whether a run did anything within silence.
func (w *witness) alive(id backend.RunID, now time.Time) bool {
	s, known := w.runs[id]
	return known && now.Sub(s.since) < silence
}

// living names the stores of which a run did anything within silence.
func (w *witness) living(now time.Time) (ids []string) {
	for id := range w.runs {
		if w.alive(id, now) {
			ids = append(ids, id.StoreID)
		}
	}
	return ids
}

// suspect is a silent run, with the mark by which it was found silent.
type suspect struct {
	backend.RunID
	mark string
}

// silent names the runs that hold up shards this store wants: they own them by the record, have
// connections, and did nothing for silence. mine are the shards wanted in this database.
func (w *witness) silent(me backend.RunID, mine map[int]bool) (over []suspect) {
	named := map[backend.RunID]bool{me: true}
	for _, o := range w.owners {
		id := o.Run()
		if named[id] || !mine[o.Shard] {
			continue
		}
		named[id] = true
		if s, known := w.runs[id]; known && w.begun.Sub(s.since) >= silence {
			over = append(over, suspect{id, s.mark})
		}
	}
	return over
}
