package claims

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const (
	// firstGroup shards are taken at once, then as many as have about groupPlaces, judged by those
	// before: everything else waits while they are read.
	firstGroup  = 16
	mostGroup   = 256
	groupPlaces = 20_000
	// polite is how long another store may take to give a shard back that this one owns now.
	polite = 500 * time.Millisecond
	// fewNumbers left of a shard's: it is taken anew, with others.
	fewNumbers = 1 << 20
	// again stands for the number of a shard that has to be taken anew.
	again = math.MaxUint64
	// sureTimeout bounds the question whether a shard is this store's for certain; it is asked
	// again.
	sureTimeout = 20 * time.Millisecond
)

// shards is what the lane knows of them.
type shards struct {
	owned [topic.Shards]uint64 // numbers of the log
	taken [topic.Shards]uint64 // number under which the book has it; 0: not
	had   [topic.Shards]bool   // it was taken before by this writer
	// since is when another store was first found to have it, tried in this round.
	since  [topic.Shards]time.Time
	tried  [topic.Shards]bool
	looked time.Time
	size   int
	news   bool // parked operations should be looked at
}

// wanted reports whether a shard is the log's and not yet the book's.
func (s *shards) wanted(n int) bool { return s.owned[n] != 0 && s.taken[n] != s.owned[n] }

// group is what to take next, all of them politely or all by force.
func (s *shards) group(now time.Time) (shards []int, force bool) {
	for n := range s.owned {
		if !s.wanted(n) || s.tried[n] {
			continue
		}
		f := !s.since[n].IsZero() && now.Sub(s.since[n]) >= polite
		if len(shards) == 0 {
			force = f
		}
		if f == force {
			shards = append(shards, n)
		}
		if len(shards) >= s.size {
			break
		}
	}
	return shards, force
}

// follow gives back shards that the log has lost, and takes those that it has got, a group at a
// time; more: there is another.
func (l *Lane) follow(ctx context.Context) (more bool, err error) {
	s := &l.shards
	if now := time.Now(); now.Sub(s.looked) >= look {
		s.looked, s.news = now, true
		clear(s.tried[:])
		l.cfg.Owned(s.owned[:])
		for _, n := range l.book.Low(fewNumbers) {
			s.taken[n] = again
		}
		if err := l.give(ctx); err != nil {
			return false, err
		}
		l.state()
	}
	group, force := s.group(time.Now())
	if len(group) == 0 {
		return false, nil
	}
	if force && !l.sure(ctx, group) {
		return true, nil
	}
	err = l.take(ctx, group, force)
	l.state()
	return true, err
}

// state says how it stands.
func (l *Lane) state() {
	missing := 0
	for n := range l.shards.owned {
		if l.shards.wanted(n) {
			missing++
		}
	}
	if missing > 0 {
		l.is(fmt.Errorf("claims of %d shards have not been loaded yet", missing))
	} else {
		l.is(nil)
	}
	l.metrics.state(l.book.Stats())
}

func (l *Lane) give(ctx context.Context) error {
	var lost []int
	for n, taken := range l.shards.taken {
		if taken != 0 && l.shards.owned[n] == 0 {
			l.book.Drop(n)
			l.shards.taken[n] = 0
			lost = append(lost, n)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
	defer cancel()
	return l.writer.Give(ctx, lost)
}

// sure reports whether the log is sure of shards that are to be taken from another store. A store
// that hung finds out last that it lost them.
func (l *Lane) sure(ctx context.Context, group []int) bool {
	ctx, cancel := context.WithTimeout(ctx, sureTimeout)
	defer cancel()
	for _, n := range group {
		if err := l.cfg.Sure(ctx, n); err != nil {
			for _, n := range group {
				l.shards.tried[n] = true
			}
			return false
		}
	}
	return true
}

func (l *Lane) take(ctx context.Context, group []int, force bool) error {
	s, had := &l.shards, false
	for _, n := range group {
		if s.taken[n] != 0 {
			l.book.Drop(n)
			s.taken[n] = 0
		}
		had = had || s.had[n]
	}
	if had { // it may have been another's in between, and nodes don't know
		l.endStreams()
	}
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	begun := time.Now()
	places, loaded := map[int][]backend.ClaimPlace{}, 0
	got, now, err := l.writer.Take(ctx, group, force, func(p backend.ClaimPlace) {
		places[p.Shard] = append(places[p.Shard], p)
		loaded++
	})
	switch {
	case errors.Is(err, backend.ErrShardTaken):
		for _, n := range group {
			if s.tried[n] = true; s.since[n].IsZero() {
				s.since[n] = begun
			}
		}
		return nil
	case err != nil:
		return err
	}
	if err := l.clock.note(begun, time.Now(), now); err != nil {
		return err
	}
	now = l.clock.now(time.Now())
	for _, g := range got {
		l.book.Load(now, g, slices.Values(places[g.Shard]))
		s.taken[g.Shard], s.had[g.Shard], s.since[g.Shard] = s.owned[g.Shard], true, time.Time{}
	}
	s.news = true
	s.size = max(1, min(mostGroup, groupPlaces*len(group)/max(1, loaded)))
	return nil
}
