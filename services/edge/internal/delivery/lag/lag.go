// Package lag lists who is behind, and looks at all of them every second, some at a time: so the
// lag of subscriptions that wait shows too, and others cost nothing.
package lag

import (
	"math"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

const (
	// Every is how long after a census the next one begins.
	Every = time.Second
	// Slice is how many tracks are looked at in one go.
	Slice = 256
)

// Delivery is what the list needs of the loop.
type Delivery interface {
	// Now is the loop's time, in nanoseconds.
	Now() int64
	// Stands reports whether a track stands still behind a message that is not ACKed.
	Stands(t *state.Track) bool
}

// Figures are what the last census found: how many tracks are behind and how many of those stand
// still, and by how many messages they are behind, all together and the furthest of them.
type Figures struct{ Behind, Standing, Lag, Longest int64 }

// List is the tracks of a loop that are behind.
type List struct {
	delivery Delivery
	jobs     *walk.Jobs
	tracks   []state.TrackRef // behind, or were when they were looked at last
	lookAt   int64            // when they are looked at next
	figures  Figures
}

// New makes an empty list, whose censuses are among the jobs.
func New(d Delivery, jobs *walk.Jobs) List { return List{delivery: d, jobs: jobs} }

// Add lists a track that is behind.
func (l *List) Add(t *state.Track) {
	if !t.Lags && t.Behind {
		t.Lags = true
		l.tracks = append(l.tracks, t.Ref())
	}
}

// Tracks are those that are listed, good until the list is used again.
func (l *List) Tracks() []state.TrackRef { return l.tracks }

// Figures are those of the last census.
func (l *List) Figures() Figures { return l.figures }

// Look begins a census, where it is time; it reports whether that is so.
func (l *List) Look(now int64) (due bool) {
	if now < l.lookAt {
		return false
	}
	l.lookAt = now + int64(Every)
	if len(l.tracks) > 0 {
		l.lookAt = math.MaxInt64
		l.jobs.Push(&census{list: l})
	}
	return true
}

// census is a walk over the tracks that are behind. It forgets those that are not any more.
type census struct {
	list     *List
	at, kept int
	found    Figures
}

// Step implements walk.Job.
func (j *census) Step() bool {
	l := j.list
	for end := min(j.at+Slice, len(l.tracks)); j.at < end; j.at++ {
		r := l.tracks[j.at]
		t := r.Get()
		if t == nil {
			continue
		}
		if !t.Behind {
			t.Lags = false
			continue
		}
		if l.delivery.Stands(t) {
			j.found.Standing++
		}
		lag := t.Lag()
		j.found.Lag, j.found.Longest = j.found.Lag+lag, max(j.found.Longest, lag)
		l.tracks[j.kept] = r
		j.kept++
	}
	if j.at < len(l.tracks) {
		return false
	}
	clear(l.tracks[j.kept:])
	l.tracks = l.tracks[:j.kept]
	j.found.Behind = int64(j.kept)
	l.figures = j.found
	l.lookAt = l.delivery.Now() + int64(Every)
	return true
}
