package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// PutModel keeps a file. Appends wait meanwhile: there is one connection that writes.
func (b *Backend) PutModel(ctx context.Context, m *pushmeshv1.Model, file []byte) (stored *pushmeshv1.Model, err error) {
	err = inTx(ctx, b.write, func(tx *sql.Tx) error {
		stored, err = putModel(ctx, tx, m, file)
		return err
	})
	return stored, err
}

func putModel(ctx context.Context, tx *sql.Tx, m *pushmeshv1.Model, file []byte) (*pushmeshv1.Model, error) {
	newest, err := modelAt(tx.QueryRowContext(ctx, "SELECT about FROM model WHERE name = ? ORDER BY version DESC LIMIT 1", m.GetName()))
	if err == nil && backend.SameModel(m, newest) {
		return newest, nil
	}
	if err != nil && !errors.Is(err, backend.ErrNotFound) {
		return nil, err
	}
	stored := proto.CloneOf(m)
	const next = "INSERT INTO model_name (name, last) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET last = last + 1 RETURNING last"
	if err := tx.QueryRowContext(ctx, next, m.GetName()).Scan(&stored.Version); err != nil {
		return nil, fmt.Errorf("sqlite: model: %w", err)
	}
	about, err := proto.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("sqlite: model: %w", err)
	}
	var versions, described, names int
	const counts = "SELECT count(*), coalesce(sum(length(about)), 0), (SELECT count(*) FROM model_name) FROM model"
	if err := tx.QueryRowContext(ctx, counts).Scan(&versions, &described, &names); err != nil {
		return nil, fmt.Errorf("sqlite: model: %w", err)
	}
	if err := backend.RoomForModel(versions, described+len(about), names); err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO model (name, version, about) VALUES (?, ?, ?)", stored.GetName(), int64(stored.GetVersion()), about); err != nil {
		return nil, fmt.Errorf("sqlite: model: %w", err)
	}
	part := 0
	for data := range slices.Chunk(file, backend.ModelPart) {
		if _, err := tx.ExecContext(ctx, "INSERT INTO model_part (name, version, part, data) VALUES (?, ?, ?, ?)",
			stored.GetName(), int64(stored.GetVersion()), part, data); err != nil {
			return nil, fmt.Errorf("sqlite: model: %w", err)
		}
		part++
	}
	return stored, changedModels(ctx, tx)
}

func changedModels(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, "UPDATE model_revision SET revision = revision + 1"); err != nil {
		return fmt.Errorf("sqlite: models: %w", err)
	}
	return nil
}

func modelAt(row *sql.Row) (*pushmeshv1.Model, error) {
	var about []byte
	err := row.Scan(&about)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("%w: no such version of the model", backend.ErrNotFound)
	}
	m := &pushmeshv1.Model{}
	if err == nil {
		err = proto.Unmarshal(about, m)
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: model: %w", err)
	}
	return m, nil
}

// ListModels reads one snapshot.
func (b *Backend) ListModels(ctx context.Context, have uint64) (revision uint64, all []*pushmeshv1.Model, err error) {
	err = inSnapshot(ctx, b.read, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, "SELECT revision FROM model_revision").Scan(&revision); err != nil {
			return fmt.Errorf("sqlite: models: %w", err)
		}
		if revision == have {
			return nil
		}
		all, err = collect(ctx, tx, func(rows *sql.Rows) (*pushmeshv1.Model, error) {
			var about sql.RawBytes
			m := &pushmeshv1.Model{}
			if err := rows.Scan(&about); err != nil {
				return nil, err
			}
			return m, proto.Unmarshal(about, m)
		}, "SELECT about FROM model ORDER BY name, version DESC")
		return err
	})
	return revision, all, err
}

// GetModel describes one.
func (b *Backend) GetModel(ctx context.Context, name string, version uint64) (*pushmeshv1.Model, error) {
	return modelAt(b.read.QueryRowContext(ctx, "SELECT about FROM model WHERE name = ? AND version = ?", name, int64(version)))
}

// ReadModel reads a part.
func (b *Backend) ReadModel(ctx context.Context, name string, version uint64, part int) (data []byte, err error) {
	err = b.read.QueryRowContext(ctx, "SELECT data FROM model_part WHERE name = ? AND version = ? AND part = ?", name, int64(version), part).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("%w: no such part of the model", backend.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: model: %w", err)
	}
	return data, nil
}

// DeleteModel deletes its parts as well.
func (b *Backend) DeleteModel(ctx context.Context, name string, version uint64) error {
	return inTx(ctx, b.write, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "DELETE FROM model WHERE name = ? AND version = ?", name, int64(version))
		if err != nil {
			return fmt.Errorf("sqlite: model: %w", err)
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, fmt.Errorf("%w: no such version of the model", backend.ErrNotFound))
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM model_part WHERE name = ? AND version = ?", name, int64(version)); err != nil {
			return fmt.Errorf("sqlite: model: %w", err)
		}
		return changedModels(ctx, tx)
	})
}
