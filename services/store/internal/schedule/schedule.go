// Package schedule appends messages when they fall due: those of the shards that this store owns,
// by this store's clock.
package schedule

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

const (
	// horizon is how far ahead messages are read; half of it before the end they are read on.
	horizon = time.Minute
	// tick bounds how late a shard that was taken again is noticed.
	tick = 50 * time.Millisecond
	// readRetry is when to read again after the database failed.
	readRetry = 250 * time.Millisecond
)

// Ownerships writes for each shard a number that is 0 where it is not owned and differs each time
// it is taken (shardlog.Log.Ownerships).
type Ownerships func(dst []uint64)

// Config of a Schedule.
type Config struct {
	Backend    backend.Schedules
	Ownerships Ownerships
	// Append appends and has the messages routed (dispatch.Dispatcher).
	Append   func(items []*meshv1.AppendItem, sink shardlog.Sink)
	Now      func() time.Time
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Schedule is a lifecycle.Part. One goroutine owns what waits: a heap of the messages due next,
// read from the database in the order in which they are due, within bounds of number and bytes. A
// message leaves the database with the commit that appends it, so whatever is forgotten here (a
// crash, a shard lost) is found there again, by whoever owns the shard then.
type Schedule struct {
	cfg     Config
	metrics *metrics
	group   *lifecycle.Group
	kick    chan struct{}

	mu       sync.Mutex
	fresh    []backend.Scheduled // committed since the goroutine looked
	freshFor int                 // bytes
	missed   bool                // there were more than could be kept
	results  []result

	shelf            shelf // the goroutine's own, as is all below
	ownerships       []uint64
	ownershipsBefore []uint64
	nextRead         time.Time
}

// New makes a schedule; what Added is told before Start counts.
func New(cfg Config) *Schedule {
	return &Schedule{
		cfg: cfg, metrics: newMetrics(cfg.Registry), kick: make(chan struct{}, 1), shelf: newShelf(),
		ownerships: make([]uint64, topic.Shards), ownershipsBefore: make([]uint64, topic.Shards),
	}
}

// Start begins.
func (s *Schedule) Start(context.Context) error {
	s.group = lifecycle.NewGroup(context.Background())
	s.group.Go("schedule", s.run)
	return nil
}

// Stop ends it. Appends under way go on; what waits stays in the database.
func (s *Schedule) Stop(ctx context.Context) error { return s.group.Stop(ctx) }

// Added tells of messages that this store has committed to the schedule. It never blocks. Bodies
// are the caller's: what is kept of them is copied, since each may lie in a request that is far
// larger.
func (s *Schedule) Added(all []backend.Scheduled) {
	soon := s.micros(s.cfg.Now().Add(horizon))
	s.mu.Lock()
	for _, m := range all {
		switch {
		case m.Due > soon: // it is not read before it is nearer
		case len(s.fresh) >= mostHeld/2 || s.freshFor+len(m.Body) > mostBytes/2:
			s.missed = true
		default:
			m.Body = bytes.Clone(m.Body)
			s.fresh = append(s.fresh, m)
			s.freshFor += len(m.Body)
		}
	}
	s.mu.Unlock()
	s.wake()
}

func (s *Schedule) wake() {
	select {
	case s.kick <- struct{}{}:
	default: // it wakes up anyway
	}
}

func (s *Schedule) micros(t time.Time) uint64 { return uint64(t.UnixMicro()) }

func (s *Schedule) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.kick:
		}
		more := s.turn(ctx)
		wait := tick
		if next, any := s.shelf.next(); any {
			wait = min(tick, time.Duration(int64(next)-s.cfg.Now().UnixMicro())*time.Microsecond)
		}
		if more {
			wait = 0
		}
		timer.Reset(max(wait, 0))
	}
}

// turn does what there is to do now; true: there is more to read at once.
func (s *Schedule) turn(ctx context.Context) (more bool) {
	s.updateOwnerships()
	s.takeResults()
	s.fire()
	more = s.read(ctx)
	s.take()
	s.metrics.waiting.Set(float64(s.shelf.size()))
	return more
}

// updateOwnerships looks which shards are this store's. Where one was taken, everything is read
// from the beginning: another store may have brought or taken messages meanwhile.
func (s *Schedule) updateOwnerships() {
	s.ownershipsBefore, s.ownerships = s.ownerships, s.ownershipsBefore
	s.cfg.Ownerships(s.ownerships)
	for n, claim := range s.ownerships {
		if claim != 0 && claim != s.ownershipsBefore[n] {
			s.shelf.forget()
			s.nextRead = time.Time{}
			return
		}
	}
}

func (s *Schedule) owned() (shards []int) {
	for n, claim := range s.ownerships {
		if claim != 0 {
			shards = append(shards, n)
		}
	}
	return shards
}

// read reads a page, if what is known does not reach far enough; true: there is another.
func (s *Schedule) read(ctx context.Context) (more bool) {
	now := s.cfg.Now()
	if now.Before(s.nextRead) || !s.shelf.wants(s.micros(now.Add(horizon/2))) {
		return false
	}
	shards := s.owned()
	if len(shards) == 0 {
		return false
	}
	to, limit := s.micros(now.Add(horizon)), s.shelf.page
	page, err := s.cfg.Backend.ReadScheduled(ctx, shards, s.shelf.completeUntil, to, limit)
	if err != nil {
		if ctx.Err() == nil {
			s.cfg.Logger.Warn("reading scheduled messages failed", "error", err)
		}
		s.nextRead = now.Add(readRetry)
		return false
	}
	s.shelf.add(page, limit, to)
	return s.shelf.wants(s.micros(now.Add(horizon / 2)))
}

// take puts what was committed meanwhile on the shelf. It comes after read: what a read saw too
// late to see is told by Added, and what both tell is held once.
func (s *Schedule) take() {
	s.mu.Lock()
	fresh, missed := s.fresh, s.missed
	s.fresh, s.freshFor, s.missed = nil, 0, false
	s.mu.Unlock()
	if missed {
		s.shelf.forget()
		return
	}
	for i := range fresh {
		if s.ownerships[fresh[i].Shard] != 0 {
			s.shelf.put(&fresh[i])
		}
	}
	s.shelf.trim()
}
