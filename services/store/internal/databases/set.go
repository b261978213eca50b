// Package databases makes one backend of several Postgres databases. The first, home, holds the map
// that says which shard lies where, and what belongs to no shard: sessions, dead letters,
// namespaces, the outbox. Everything of a shard (its log, heads, producers, dedupe keys and
// scheduled messages) is in the shard's database.
package databases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres"
)

// refreshEvery is how soon a change of the map is known.
const refreshEvery = 250 * time.Millisecond

// Set is a backend.Several, and a lifecycle.Part that follows the map. What it doesn't override is
// home's.
type Set struct {
	*postgres.DB // home
	names        []string
	all          []*postgres.DB
	bases        []backend.Log
	log          *slog.Logger
	group        *lifecycle.Group
	places       atomic.Pointer[[topic.Shards]int]
}

var (
	_ backend.Several    = (*Set)(nil)
	_ backend.Outboxes   = (*Set)(nil)
	_ backend.Promotable = (*Set)(nil)
)

// Open opens home and the others, by name.
func Open(ctx context.Context, home postgres.Config, others map[string]string) (*Set, error) {
	s := &Set{log: home.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	registry := home.Registry
	urls := maps.Clone(others)
	urls[postgres.Home] = home.URL
	names := append([]string{postgres.Home}, slices.Sorted(maps.Keys(others))...)
	for _, name := range names {
		cfg := home
		cfg.URL = urls[name]
		if name != postgres.Home {
			cfg.URLFile = ""
		}
		if registry != nil {
			cfg.Registry = prometheus.WrapRegistererWith(prometheus.Labels{"database": name}, registry)
		}
		db, err := postgres.Open(ctx, cfg)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("database %s: %w", name, err), s.Close())
		}
		s.names, s.all, s.bases = append(s.names, name), append(s.all, db), append(s.bases, db)
		if err := db.Register(ctx, name); err != nil {
			return nil, errors.Join(fmt.Errorf("database %s: %w", name, err), s.Close())
		}
	}
	s.DB = s.all[0]
	if err := s.refresh(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Start follows the map.
func (s *Set) Start(context.Context) error {
	s.group = lifecycle.NewGroup(context.Background())
	s.group.Go("placement", func(ctx context.Context) {
		lifecycle.Every(ctx, refreshEvery, func(time.Time) {
			if err := s.refresh(ctx); err != nil {
				// the last one holds
				s.log.Debug("reading the placement of shards failed", "error", err)
			}
		})
	})
	return nil
}

// Stop ends that.
func (s *Set) Stop(ctx context.Context) error { return s.group.Stop(ctx) }

func (s *Set) refresh(ctx context.Context) error {
	placed, err := s.all[0].Placements(ctx)
	if err != nil {
		return fmt.Errorf("placement of shards: %w", err)
	}
	var places [topic.Shards]int
	for _, p := range placed {
		places[p.Shard] = slices.Index(s.names, p.Database)
		if places[p.Shard] < 0 {
			s.log.Error("a shard is in a database that is not among this store's --shard-db settings", "shard", p.Shard, "database", p.Database)
		}
		if p.Moving {
			places[p.Shard] = -1
		}
	}
	s.places.Store(&places)
	return nil
}

// Ping asks home, without which nothing goes; and has those that could not be written to try again.
func (s *Set) Ping(ctx context.Context) error {
	err := s.all[0].Ping(ctx)
	for i, db := range s.all[1:] {
		if !db.Full() {
			continue
		}
		if err := db.Ping(ctx); err != nil {
			// Check names it
			s.log.Debug("a database is still full", "database", s.names[i+1], "error", err)
		}
	}
	return err
}

// Databases are home and the others.
func (s *Set) Databases() []backend.Log { return s.bases }

// Place of a shard.
func (s *Set) Place(shard int) int { return s.places.Load()[shard] }

// of is the database of a topic. While its shard is on the move nobody owns it; who reads then
// finds what home has.
func (s *Set) of(name string) *postgres.DB { return s.all[max(s.Place(topic.Shard(name)), 0)] }

// each asks every database, and joins what went wrong.
func (s *Set) each(f func(i int, db *postgres.DB) error) error {
	var errs []error
	for i, db := range s.all {
		if err := f(i, db); err != nil {
			errs = append(errs, fmt.Errorf("database %s: %w", s.names[i], err))
		}
	}
	return errors.Join(errs...)
}

// ReadRuns asks the topic's database.
func (s *Set) ReadRuns(ctx context.Context, name string, epoch, from, to uint64, visit func(backend.Run) bool) error {
	return s.of(name).ReadRuns(ctx, name, epoch, from, to, visit)
}

// Kept asks the topic's database.
func (s *Set) Kept(ctx context.Context, name string) (backend.Kept, error) {
	return s.of(name).Kept(ctx, name)
}

// Silent asks the shard's database.
func (s *Set) Silent(ctx context.Context, shard int, after string, before uint64) ([]backend.SilentTopic, string, error) {
	return s.all[max(s.Place(shard), 0)].Silent(ctx, shard, after, before)
}

// ForgetTopics tells all.
func (s *Set) ForgetTopics(ctx context.Context) error {
	return s.each(func(_ int, db *postgres.DB) error { return db.ForgetTopics(ctx) })
}

// Oldest asks each database about its topics.
func (s *Set) Oldest(ctx context.Context, questions []backend.OldestQuestion) ([]backend.OldestAnswer, error) {
	answers := make([]backend.OldestAnswer, len(questions))
	err := s.each(func(_ int, db *postgres.DB) error {
		var mine []backend.OldestQuestion
		var at []int
		for i, q := range questions {
			if s.of(q.Topic) == db {
				mine, at = append(mine, q), append(at, i)
			}
		}
		if len(mine) == 0 {
			return nil
		}
		found, err := db.Oldest(ctx, mine)
		for i, a := range found {
			answers[at[i]] = a
		}
		return err
	})
	return answers, err
}

// Keys asks all.
func (s *Set) Keys(ctx context.Context, hashes []backend.KeyHash, now uint64) (found []backend.Key, err error) {
	err = s.each(func(_ int, db *postgres.DB) error {
		some, err := db.Keys(ctx, hashes, now)
		found = append(found, some...)
		return err
	})
	return found, err
}

// ReadScheduled asks each database about its shards.
func (s *Set) ReadScheduled(ctx context.Context, shards []int, after backend.ScheduledID, to uint64, limit int) (all []backend.Scheduled, err error) {
	err = s.each(func(i int, db *postgres.DB) error {
		mine := slices.DeleteFunc(slices.Clone(shards), func(shard int) bool { return s.Place(shard) != i })
		if len(mine) == 0 {
			return nil
		}
		some, err := db.ReadScheduled(ctx, mine, after, to, limit)
		all = append(all, some...)
		return err
	})
	slices.SortFunc(all, func(a, b backend.Scheduled) int {
		return cmp.Or(cmp.Compare(a.Due, b.Due), slices.Compare(a.MessageID[:], b.MessageID[:]))
	})
	return all[:min(len(all), limit)], err
}

// FindScheduled asks one after the other.
func (s *Set) FindScheduled(ctx context.Context, messageID [16]byte) (found backend.Scheduled, err error) {
	for _, db := range s.all {
		if found, err = db.FindScheduled(ctx, messageID); !errors.Is(err, backend.ErrNotFound) {
			return found, err
		}
	}
	return found, err
}

// Close closes all.
func (s *Set) Close() error { return s.each(func(_ int, db *postgres.DB) error { return db.Close() }) }
