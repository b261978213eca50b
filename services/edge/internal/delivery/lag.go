package delivery

import (
	"math"
	"time"
)

// Who is behind is listed, and looked at every second, some at a time: so the lag of subscriptions
// that wait shows too, and others cost nothing.

const (
	lagEvery = time.Second
	// lagSlice is how many tracks are looked at in one go.
	lagSlice = 256
)

// lagging are the tracks that are behind.
type lagging struct {
	hub    *Hub
	tracks []trackRef // behind, or were when they were looked at last
	lookAt int64      // when they are looked at next
}

// add lists a track that is behind.
func (l *lagging) add(t *track) {
	if !t.lags && t.behind {
		t.lags = true
		l.tracks = append(l.tracks, t.ref())
	}
}

// look begins to look at them, where it is time.
func (l *lagging) look() {
	if l.hub.now < l.lookAt {
		return
	}
	l.lookAt = l.hub.now + int64(lagEvery)
	l.hub.forgetWarned()
	if len(l.tracks) == 0 {
		return
	}
	l.lookAt = math.MaxInt64
	l.hub.jobs.Push(&census{})
}

// census is a walk over the tracks that are behind. It forgets those that are not any more.
type census struct {
	at, kept      int
	lag, furthest int64
	standing      int64
}

func (j *census) step(h *Hub) bool {
	for end := min(j.at+lagSlice, len(h.lagging.tracks)); j.at < end; j.at++ {
		r := h.lagging.tracks[j.at]
		t := r.get()
		if t == nil {
			continue
		}
		if !t.behind {
			t.lags = false
			continue
		}
		if h.replay.stands(t) {
			j.standing++
		}
		lag := t.lag()
		j.lag, j.furthest = j.lag+lag, max(j.furthest, lag)
		h.lagging.tracks[j.kept] = r
		j.kept++
	}
	if j.at < len(h.lagging.tracks) {
		return false
	}
	clear(h.lagging.tracks[j.kept:])
	h.lagging.tracks = h.lagging.tracks[:j.kept]
	h.stats.BehindNow, h.stats.Lag, h.stats.LongestLag, h.stats.StandingNow = int64(j.kept), j.lag, j.furthest, j.standing
	h.lagging.lookAt = h.now + int64(lagEvery)
	return true
}

// lag is how many messages lie between the track and the head of its topic, as far as that is
// known.
func (t *track) lag() int64 {
	head := t.pos
	if t.topic.epoch == t.epoch {
		head = max(head, t.topic.last)
	}
	if t.rng != nil && t.rng.Epoch == t.epoch {
		head = max(head, t.rng.Head)
	}
	return int64(head - t.pos)
}
