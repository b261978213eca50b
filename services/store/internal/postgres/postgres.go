// Package postgres is the store's backend for production: backend.Backend on PostgreSQL 15
// to 18, through pgx. It puts together what the packages below it keep: server is how all of them
// reach the database, partition makes and drops its tables' slices, and each other one is a
// feature.
//
// Reads and sessions go through a pool behind a dbgate.Gate. Each Writer has a connection of its
// own, whose backend holds an advisory lock for every shard that the writer owns: when that
// connection is gone, so is the right to append.
package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/claims"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/deadletters"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/growth"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/log"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/models"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/namespaces"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/outbox"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/partition"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/revocations"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/sessions"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/teams"
)

// Home is the name of a mesh's first database.
const Home = server.Home

type (
	// Config of a database.
	Config = server.Config
	// Pool of a Config.
	Pool = server.Pool
	// Placement is where a shard's data is.
	Placement = log.Placement
)

// DB is one Postgres database.
type DB struct {
	*server.Server
	*partition.Partitions
	*log.Log
	*sessions.Sessions
	*deadletters.Letters
	*namespaces.Namespaces
	*models.Models
	*claims.Claims
	*outbox.Outboxes
	*revocations.Revocations
	*teams.Teams
	growth *growth.Growth
}

var (
	_ backend.Backend    = (*DB)(nil)
	_ backend.Outboxes   = (*DB)(nil)
	_ backend.Promotable = (*DB)(nil)
)

// Open connects, applies the migrations and checks that commits will be durable. Where no server
// answers it tries until ctx ends; a server that must not be used is an error at once.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	s, err := server.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	p := partition.New(s)
	held, err := sessions.New(s, p)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	grows, err := growth.New(s, p)
	if err != nil {
		return nil, errors.Join(err, held.Close(), s.Close())
	}
	return &DB{
		Server: s, Partitions: p, Log: log.New(s, p), Sessions: held, Letters: deadletters.New(s), Namespaces: namespaces.New(s),
		Models: models.New(s), Claims: claims.New(s), Outboxes: outbox.New(s), Revocations: revocations.New(s), Teams: teams.New(s), growth: grows,
	}, nil
}

// AcceptServer is for home alone, which has no need of a name.
func (d *DB) AcceptServer(ctx context.Context, database string, epoch uint64) (backend.Accepted, error) {
	if database != "" && database != Home {
		return backend.Accepted{}, fmt.Errorf("%w: there is no database %q: the only one is %s", backend.ErrNotFound, database, Home)
	}
	a, err := d.Log.AcceptServer(ctx, epoch)
	a.Database = Home
	return a, err
}

// Measure has the metrics of growth tell what is there now.
func (d *DB) Measure(ctx context.Context) error { return d.growth.Measure(ctx) }

// Migrate is server.Migrate.
func Migrate(ctx context.Context, cfg Config) error { return server.Migrate(ctx, cfg) }

// Close ends every writer and the pool.
func (d *DB) Close() error {
	return errors.Join(d.growth.Close(), d.Sessions.Close(), d.Server.Close())
}
