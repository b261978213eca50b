package ownership

import (
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// maxLookGap bounds the time between two looks, and the time that one takes: after a longer one
// nothing that was seen before counts, for this process may have been frozen, or the database may
// have stopped for everybody.
const maxLookGap = 3 * beatEvery

// observations decide which stores are silent in one database. A store process is silent when its
// mark stays the same in looks that follow each other closely, for as long as silence by this
// process's monotonic clock. No wall clock takes part, and neither does NATS.
type observations struct {
	owners []backend.Ownership
	// begun and ended are of the last look; zero: there was none.
	begun, ended time.Time
	runs         map[backend.RunID]observation
}

// observation of a store process: its last mark, and since when it has it.
type observation struct {
	mark  string
	since time.Time
}

// note records what a look saw that began and ended at these times. A mark was read somewhere
// between the two, so silence is counted from the end of the first look that saw it to the begin of
// the last.
func (w *observations) note(v backend.View, begun, ended time.Time) {
	if begun.Sub(w.ended) > maxLookGap || ended.Sub(begun) > maxLookGap {
		w.runs = map[backend.RunID]observation{}
	}
	w.owners, w.begun, w.ended = v.Owners, begun, ended
	before := w.runs
	w.runs = map[backend.RunID]observation{}
	for _, p := range v.Runs {
		s, known := before[p.RunID]
		if !known || s.mark != p.Mark || p.Busy {
			s = observation{mark: p.Mark, since: ended}
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

// fresh reports whether the last look is recent enough to be used.
func (w *observations) fresh(now time.Time) bool {
	return !w.ended.IsZero() && now.Sub(w.ended) < silence
}

// alive reports whether a store process did anything within silence.
func (w *observations) alive(id backend.RunID, now time.Time) bool {
	s, known := w.runs[id]
	return known && now.Sub(s.since) < silence
}

// living returns the ids of the stores of which a process did anything within silence.
func (w *observations) living(now time.Time) (ids []string) {
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

// silent returns the store processes that keep shards which this store wants: they own them by the
// record, have connections, and did nothing for silence. mine are the shards wanted in this
// database.
func (w *observations) silent(me backend.RunID, mine map[int]bool) (over []suspect) {
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
