package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
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
	tx, err := b.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, nil, fmt.Errorf("sqlite: namespaces: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // it only read
	if err := tx.QueryRowContext(ctx, "SELECT version FROM namespace_version").Scan(&version); err != nil {
		return 0, nil, fmt.Errorf("sqlite: namespaces: %w", err)
	}
	if version == have {
		return version, nil, nil
	}
	rows, err := tx.QueryContext(ctx, "SELECT prefix, policy, builtin, version FROM namespace ORDER BY prefix")
	if err != nil {
		return 0, nil, fmt.Errorf("sqlite: namespaces: %w", err)
	}
	err = scan(rows, func() error {
		ns := &pushmeshv1.Namespace{Policy: &pushmeshv1.Policy{}}
		var policy sql.RawBytes
		if err := rows.Scan(&ns.Prefix, &policy, &ns.Builtin, &ns.Version); err != nil {
			return err
		}
		all = append(all, ns)
		return proto.Unmarshal(policy, ns.Policy)
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

// ListDeadLetters whose topic matches a filter. It walks through the ids, so that a filter that matches little costs time, not memory.
func (b *Backend) ListDeadLetters(ctx context.Context, filter string, after uint64, limit int) (found []*meshv1.DeadLetter, err error) {
	const page = 500
	for {
		rows, err := b.read.QueryContext(ctx, "SELECT id, topic, epoch, seq, body, reason, attempts, user, session, at FROM dead_letter WHERE id > ? ORDER BY id LIMIT ?", int64(after), page)
		if err != nil {
			return nil, fmt.Errorf("sqlite: dead letters: %w", err)
		}
		seen := 0
		if err := scan(rows, func() error {
			d := &meshv1.DeadLetter{}
			var reason int32
			if err := rows.Scan(&d.Id, &d.Topic, &d.Epoch, &d.Seq, &d.Body, &reason, &d.Attempts, &d.User, &d.Session, &d.At); err != nil {
				return err
			}
			d.Reason = wirev1.Code(reason)
			seen, after = seen+1, d.GetId()
			if len(found) < limit && (filter == "" || topic.Match(filter, d.GetTopic())) {
				found = append(found, d)
			}
			return nil
		}); err != nil {
			return nil, err
		}
		if seen < page || len(found) >= limit {
			return found, nil
		}
	}
}

// DiscardDeadLetters deletes.
func (b *Backend) DiscardDeadLetters(ctx context.Context, ids []uint64) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = int64(id)
	}
	res, err := b.write.ExecContext(ctx, "DELETE FROM dead_letter WHERE id IN (?"+strings.Repeat(",?", len(ids)-1)+")", args...)
	if err != nil {
		return 0, fmt.Errorf("sqlite: discard: %w", err)
	}
	n, err := res.RowsAffected()
	return int(n), err
}
