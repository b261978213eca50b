package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// SeedNamespaces puts those that are not there.
func (b *Backend) SeedNamespaces(ctx context.Context, builtin []*pushmeshv1.Namespace) error {
	return inTx(ctx, b.write, func(tx *sql.Tx) error {
		for _, ns := range builtin {
			var n int
			if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM namespace WHERE prefix = ?", ns.GetPrefix()).Scan(&n); err != nil {
				return fmt.Errorf("sqlite: namespace: %w", err)
			}
			if n > 0 {
				continue
			}
			if _, err := putNamespace(ctx, tx, ns, true); err != nil {
				return err
			}
		}
		return nil
	})
}

// PutNamespace sets a policy.
func (b *Backend) PutNamespace(ctx context.Context, ns *pushmeshv1.Namespace) (stored *pushmeshv1.Namespace, err error) {
	err = inTx(ctx, b.write, func(tx *sql.Tx) error {
		var builtin bool
		err := tx.QueryRowContext(ctx, "SELECT builtin FROM namespace WHERE prefix = ?", ns.GetPrefix()).Scan(&builtin)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("sqlite: namespace: %w", err)
		}
		stored, err = putNamespace(ctx, tx, ns, builtin)
		return err
	})
	return stored, err
}

func putNamespace(ctx context.Context, tx *sql.Tx, ns *pushmeshv1.Namespace, builtin bool) (*pushmeshv1.Namespace, error) {
	version, err := nextVersion(ctx, tx)
	if err != nil {
		return nil, err
	}
	policy, err := proto.Marshal(ns.GetPolicy())
	if err != nil {
		return nil, fmt.Errorf("sqlite: namespace: %w", err)
	}
	if policy == nil {
		policy = []byte{}
	}
	if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO namespace (prefix, policy, builtin, version) VALUES (?, ?, ?, ?)",
		ns.GetPrefix(), policy, builtin, int64(version)); err != nil {
		return nil, fmt.Errorf("sqlite: namespace: %w", err)
	}
	return &pushmeshv1.Namespace{Prefix: ns.GetPrefix(), Policy: ns.GetPolicy(), Builtin: builtin, Version: version}, nil
}

func nextVersion(ctx context.Context, tx *sql.Tx) (version uint64, err error) {
	if err := tx.QueryRowContext(ctx, "UPDATE namespace_version SET version = version + 1 RETURNING version").Scan(&version); err != nil {
		return 0, fmt.Errorf("sqlite: namespace version: %w", err)
	}
	return version, nil
}

// ListNamespaces ordered by prefix.
func (b *Backend) ListNamespaces(ctx context.Context, have uint64) (version uint64, all []*pushmeshv1.Namespace, err error) {
	err = inSnapshot(ctx, b.read, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, "SELECT version FROM namespace_version").Scan(&version); err != nil {
			return fmt.Errorf("sqlite: namespaces: %w", err)
		}
		if version == have {
			return nil
		}
		all, err = collect(ctx, tx, func(rows *sql.Rows) (*pushmeshv1.Namespace, error) {
			ns := &pushmeshv1.Namespace{}
			var policy sql.RawBytes
			err := rows.Scan(&ns.Prefix, &policy, &ns.Builtin, &ns.Version)
			if err == nil {
				backend.ReadPolicy(ns, func(to proto.Message) error { return proto.Unmarshal(policy, to) })
			}
			return ns, err
		}, "SELECT prefix, policy, builtin, version FROM namespace ORDER BY prefix")
		return err
	})
	return version, all, err
}

// DeleteNamespace deletes one that did not come with the mesh.
func (b *Backend) DeleteNamespace(ctx context.Context, prefix string) error {
	return inTx(ctx, b.write, func(tx *sql.Tx) error {
		var builtin bool
		err := tx.QueryRowContext(ctx, "SELECT builtin FROM namespace WHERE prefix = ?", prefix).Scan(&builtin)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("namespace %w", backend.ErrNotFound)
		case err != nil:
			return fmt.Errorf("sqlite: namespace: %w", err)
		case builtin:
			return fmt.Errorf("%w: the namespace is built in", backend.ErrConflict)
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM namespace WHERE prefix = ?", prefix); err != nil {
			return fmt.Errorf("sqlite: namespace: %w", err)
		}
		_, err = nextVersion(ctx, tx)
		return err
	})
}
