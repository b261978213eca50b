package ownership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// dbWatch watches the stores in one database, through a backend.Watch that it owns. Its goroutine
// is the manager's.
type dbWatch struct {
	manager  *Manager
	place    int
	database Watched
	kick     chan struct{}
	watch    backend.Watch // the goroutine's own; nil: there is none now

	mu          sync.Mutex
	observed    observations
	unfenceable map[string]string // stores that could not be fenced at the last look, and why
}

// lookAndFence looks once, updates this store's share, and fences stores that are silent and own a
// part of it.
func (e *dbWatch) lookAndFence(ctx context.Context) {
	m := e.manager
	begun := m.cfg.Now()
	view, err := e.look(ctx)
	if err != nil {
		if ctx.Err() == nil {
			// readiness names a database that is away
			m.cfg.Log.Debug("watching other stores in a database failed", "database", e.place, "error", err)
		}
		e.close()
	} else {
		e.mu.Lock()
		e.observed.note(view, begun, m.cfg.Now())
		e.mu.Unlock()
		e.noteUnfenceable(view)
	}
	share, leaving := m.updateShare()
	if err == nil && !leaving {
		e.fence(ctx, share)
	}
}

func (e *dbWatch) look(ctx context.Context) (v backend.View, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if e.watch == nil {
		if e.watch, err = e.database.OpenWatch(ctx, e.manager.cfg.Owner); err != nil {
			e.watch = nil
			return v, err
		}
	}
	return e.watch.Look(ctx)
}

func (e *dbWatch) close() {
	if e.watch == nil {
		return
	}
	if err := e.watch.Close(); err != nil {
		e.manager.cfg.Log.Debug("closing the watch of other stores failed", "error", err)
	}
	e.watch = nil
}

// fence ends the connections of silent stores that own shards of this store's share.
func (e *dbWatch) fence(ctx context.Context, share []int) {
	m := e.manager
	mine := map[int]bool{}
	for _, s := range share {
		if m.cfg.Place(s) == e.place {
			mine[s] = true
		}
	}
	e.mu.Lock()
	over := slices.DeleteFunc(e.observed.silent(m.cfg.Owner.Run(), mine), func(s suspect) bool { return e.unfenceable[s.StoreID] != "" })
	e.mu.Unlock()
	for _, s := range over {
		if e.watch == nil {
			return
		}
		m.cfg.Log.Warn("a store is silent and is fenced", "store", s.StoreID, "incarnation", s.Incarnation)
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		err := e.watch.Fence(ctx, s.RunID, s.mark)
		cancel()
		switch {
		case err == nil:
			m.fences.Inc()
		case errors.Is(err, backend.ErrAlive): // the next look sees it
		default:
			m.cfg.Log.Warn("fencing a store failed", "store", s.StoreID, "error", err)
			e.close()
		}
	}
}

// noteUnfenceable notes which stores could not be fenced, and logs each once for as long as that is
// so.
func (e *dbWatch) noteUnfenceable(v backend.View) {
	now := map[string]string{}
	for _, p := range v.Runs {
		if p.Unfenceable != "" {
			now[p.StoreID] = p.Unfenceable
		}
	}
	e.mu.Lock()
	before := e.unfenceable
	e.unfenceable = now
	e.mu.Unlock()
	for id, why := range now {
		if before[id] != why {
			e.manager.cfg.Log.Error("a store can't be fenced: if it hangs, no other store takes its shards", "store", id, "database", e.place, "why", why)
		}
	}
}

// unfenced returns which stores could not be fenced here, and why.
func (e *dbWatch) unfenced() (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(e.unfenceable)) {
		all = append(all, fmt.Sprintf("store %s can't be fenced, and if it hangs nobody takes its shards: %s", id, e.unfenceable[id]))
	}
	return all
}

// living returns the ids of the stores that live here; fresh: by a recent look.
func (e *dbWatch) living(now time.Time) (ids []string, fresh bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.observed.living(now), e.observed.fresh(now)
}

// owners adds the owners of this database's shards that live.
func (e *dbWatch) owners(now time.Time, all map[int]backend.Owner) {
	m := e.manager
	e.mu.Lock()
	defer e.mu.Unlock()
	// what is this store's it knows better
	lives := map[backend.RunID]bool{m.cfg.Owner.Run(): false}
	for _, o := range e.observed.owners {
		if m.cfg.Place(o.Shard) != e.place {
			continue
		}
		id := o.Run()
		yes, asked := lives[id]
		if !asked {
			yes = e.observed.alive(id, now) || m.heardLately(id, now)
			lives[id] = yes
		}
		if yes {
			all[o.Shard] = o.Owner
		}
	}
}
