package databases

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres"
)

// OpenWriter is not for a set: a writer is of one database, which Databases names.
func (s *Set) OpenWriter(context.Context, backend.Owner) (backend.Writer, error) {
	return nil, errors.New("databases: a writer is of one database")
}

// OpenWatch is not for a set: stores are watched in each database, where one may be silent and
// another not.
func (s *Set) OpenWatch(context.Context, backend.Owner) (backend.Watch, error) {
	return nil, errors.New("databases: a watch is of one database")
}

// Owners are those of each database's shards. One that is away is left out: its shards' owners
// can't be known, nor changed.
func (s *Set) Owners(ctx context.Context) (all []backend.Ownership, err error) {
	err = s.each(func(i int, db *postgres.DB) error {
		some, err := db.Owners(ctx)
		if err != nil && i > 0 {
			s.log.Debug("reading the owners of shards failed", "database", s.names[i], "error", err)
			return nil
		}
		for _, o := range some {
			if s.Place(o.Shard) == i {
				all = append(all, o)
			}
		}
		return err
	})
	return all, err
}

// Fence fences in all.
func (s *Set) Fence(ctx context.Context, storeID string, incarnation uint64) error {
	return s.each(func(_ int, db *postgres.DB) error { return db.Fence(ctx, storeID, incarnation) })
}

// NewEpoch begins it in all: each has heads of its own.
func (s *Set) NewEpoch(ctx context.Context, epoch uint64) error {
	return s.each(func(_ int, db *postgres.DB) error { return db.NewEpoch(ctx, epoch) })
}

// SameEpoch is for all.
func (s *Set) SameEpoch(ctx context.Context) error {
	return s.each(func(_ int, db *postgres.DB) error { return db.SameEpoch(ctx) })
}

// CheckPromotion names those that are not set up for it.
func (s *Set) CheckPromotion() error {
	return s.each(func(_ int, db *postgres.DB) error { return db.CheckPromotion() })
}

// AcceptServer is for the one that is named.
func (s *Set) AcceptServer(ctx context.Context, database string, epoch uint64) (backend.Accepted, error) {
	if database == "" {
		return backend.Accepted{}, fmt.Errorf("%w: there are several databases: name one of %s", backend.ErrNotFound, strings.Join(s.names, ", "))
	}
	i := slices.Index(s.names, database)
	if i < 0 {
		return backend.Accepted{}, fmt.Errorf("%w: there is no database %q: name one of %s", backend.ErrNotFound, database, strings.Join(s.names, ", "))
	}
	a, err := s.all[i].Log.AcceptServer(ctx, epoch)
	if err != nil {
		err = fmt.Errorf("database %s: %w", database, err)
	}
	a.Database = database
	return a, err
}

// Measure measures each.
func (s *Set) Measure(ctx context.Context) error {
	return s.each(func(_ int, db *postgres.DB) error { return db.Measure(ctx) })
}

// MakeSlices makes them in all.
func (s *Set) MakeSlices(ctx context.Context, now uint64) error {
	return s.each(func(_ int, db *postgres.DB) error { return db.MakeSlices(ctx, now) })
}

// DropSlices drops them in all.
func (s *Set) DropSlices(ctx context.Context, now uint64) (dropped int, err error) {
	err = s.each(func(_ int, db *postgres.DB) error {
		n, err := db.DropSlices(ctx, now)
		dropped += n
		return err
	})
	return dropped, err
}

// FoldCheckpoints folds those of each.
func (s *Set) FoldCheckpoints(ctx context.Context, how backend.Fold) error {
	return s.each(func(_ int, db *postgres.DB) error { return db.FoldCheckpoints(ctx, how) })
}

// Check names what is wrong with any.
func (s *Set) Check() error { return s.each(func(_ int, db *postgres.DB) error { return db.Check() }) }

// Move moves a shard to the database of that name. Stores may run: they give the shard back, and
// its messages are refused, with a time to come back, until it is where it shall be. A move that
// was interrupted is done again, to the same database or to another one.
func (s *Set) Move(ctx context.Context, shard int, to string) error {
	at := -1
	for i, name := range s.names {
		if name == to {
			at = i
		}
	}
	if at < 0 {
		return fmt.Errorf("there is no database %q among --db and --shard-db", to)
	}
	from, err := s.holder(ctx, shard)
	if err != nil {
		return err
	}
	home := s.all[0]
	if err := home.Place(ctx, postgres.Placement{Shard: shard, Database: s.names[from], Moving: true}); err != nil {
		return err
	}
	if from != at {
		if err := s.all[from].Move(ctx, s.all[at].Log, shard); err != nil {
			return err
		}
	}
	if err := home.Place(ctx, postgres.Placement{Shard: shard, Database: to}); err != nil {
		return err
	}
	// What an interrupted move left behind.
	return s.each(func(i int, db *postgres.DB) error {
		if i == at {
			return nil
		}
		return db.Forget(ctx, shard)
	})
}

// holder is the database that has a shard's data: the one that says so, or, where a move was
// interrupted before it was done, the one that the map names.
func (s *Set) holder(ctx context.Context, shard int) (int, error) {
	at := -1
	err := s.each(func(i int, db *postgres.DB) error {
		held, err := db.Holds(ctx, shard)
		if held && at < 0 {
			at = i
		} else if held {
			return fmt.Errorf("shard %d is in two databases", shard)
		}
		return err
	})
	if err != nil || at >= 0 {
		return at, err
	}
	placed, err := s.all[0].Placements(ctx)
	if err != nil {
		return -1, err
	}
	at = 0
	for _, p := range placed {
		if p.Shard == shard {
			for i, name := range s.names {
				if name == p.Database {
					at = i
				}
			}
		}
	}
	return at, nil
}
