// Package namespaces keeps namespaces and their policies.
package namespaces

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// Namespaces of a database.
type Namespaces struct{ server *server.Server }

// New is ready to be used.
func New(s *server.Server) *Namespaces { return &Namespaces{s} }

// nextVersion locks the row of the version: changes of namespaces come one after the other.
func nextVersion(ctx context.Context, tx pgx.Tx) (version int64, err error) {
	err = tx.QueryRow(ctx, `UPDATE pushmesh.namespace_version SET version = version + 1 RETURNING version`).Scan(&version)
	return version, err
}

// SeedNamespaces puts the missing ones.
func (d *Namespaces) SeedNamespaces(ctx context.Context, builtin []*pushmeshv1.Namespace) error {
	return d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT FROM pushmesh.namespace_version FOR UPDATE`); err != nil {
			return err
		}
		for _, ns := range builtin {
			var there bool
			if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pushmesh.namespace WHERE prefix = $1)`, ns.GetPrefix()).Scan(&there); err != nil {
				return err
			}
			if there {
				continue
			}
			if _, err := put(ctx, tx, ns, true); err != nil {
				return err
			}
		}
		return nil
	})
}

// PutNamespace keeps builtin as it is.
func (d *Namespaces) PutNamespace(ctx context.Context, ns *pushmeshv1.Namespace) (stored *pushmeshv1.Namespace, err error) {
	err = d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		stored, err = put(ctx, tx, ns, false)
		return err
	})
	return stored, err
}

func put(ctx context.Context, tx pgx.Tx, ns *pushmeshv1.Namespace, builtin bool) (*pushmeshv1.Namespace, error) {
	policy, err := protojson.Marshal(ns.GetPolicy())
	if err != nil {
		return nil, fmt.Errorf("postgres: policy: %w", err)
	}
	version, err := nextVersion(ctx, tx)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `
		INSERT INTO pushmesh.namespace AS n (prefix, version, builtin, policy) VALUES ($1, $2, $3, $4)
		ON CONFLICT (prefix) DO UPDATE SET version = excluded.version, policy = excluded.policy
		RETURNING prefix, version, builtin, policy`, ns.GetPrefix(), version, builtin, string(policy))
	if err != nil {
		return nil, err
	}
	return pgx.CollectExactlyOneRow(rows, scanNamespace)
}

func scanNamespace(row pgx.CollectableRow) (*pushmeshv1.Namespace, error) {
	ns := &pushmeshv1.Namespace{}
	var version int64
	var policy []byte
	if err := row.Scan(&ns.Prefix, &version, &ns.Builtin, &policy); err != nil {
		return nil, err
	}
	ns.Version = uint64(version)
	backend.ReadPolicy(ns, func(to proto.Message) error { return protojson.Unmarshal(policy, to) })
	return ns, nil
}

// ListNamespaces reads the version and the set from one snapshot.
func (d *Namespaces) ListNamespaces(ctx context.Context, have uint64) (version uint64, all []*pushmeshv1.Namespace, err error) {
	err = d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var v int64
		// Asked all the time, and mostly in vain: without the lock, which would be a write.
		if err := tx.QueryRow(ctx, `SELECT version FROM pushmesh.namespace_version`).Scan(&v); err != nil {
			return err
		}
		if version = uint64(v); version == have {
			return nil
		}
		// The lock keeps changes out until the set has been read.
		if err := tx.QueryRow(ctx, `SELECT version FROM pushmesh.namespace_version FOR SHARE`).Scan(&v); err != nil {
			return err
		}
		version = uint64(v)
		rows, err := tx.Query(ctx, `SELECT prefix, version, builtin, policy FROM pushmesh.namespace ORDER BY prefix`)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, scanNamespace)
		return err
	})
	return version, all, err
}

// DeleteNamespace refuses built-in ones.
func (d *Namespaces) DeleteNamespace(ctx context.Context, prefix string) error {
	return d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := nextVersion(ctx, tx); err != nil {
			return err
		}
		var builtin bool
		err := tx.QueryRow(ctx, `DELETE FROM pushmesh.namespace WHERE prefix = $1 RETURNING builtin`, prefix).Scan(&builtin)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return fmt.Errorf("%w: namespace %q", backend.ErrNotFound, prefix)
		case err == nil && builtin:
			return fmt.Errorf("%w: namespace %q is built in", backend.ErrConflict, prefix)
		}
		return err
	})
}
