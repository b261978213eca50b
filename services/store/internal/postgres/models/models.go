// Package models keeps models: what is known of each version, and its file in parts.
package models

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// Models of a database.
type Models struct{ server *server.Server }

// New is ready to be used.
func New(s *server.Server) *Models { return &Models{s} }

const modelColumns = `m.name, m.version, m.format, m.columns, m.trees, m.outputs, m.bytes, m.digest, m.created_at, m.comment`

// modelFields scans modelColumns; done fills in what has another type.
func modelFields(m *pushmeshv1.Model) (fields []any, done func()) {
	var version, size, at int64
	var format, trees, outputs int32
	fields = []any{&m.Name, &version, &format, &m.Columns, &trees, &outputs, &size, &m.Digest, &at, &m.Comment}
	return fields, func() {
		m.Version, m.Bytes, m.Format = uint64(version), uint64(size), pushmeshv1.ModelFormat(format)
		m.Trees, m.Outputs = uint32(trees), uint32(outputs)
		m.CreatedAt = timestamppb.New(time.UnixMicro(at))
	}
}

func scanModel(row pgx.CollectableRow) (*pushmeshv1.Model, error) {
	m := &pushmeshv1.Model{}
	fields, done := modelFields(m)
	err := row.Scan(fields...)
	done()
	return m, err
}

// PutModel takes the time that a large file needs.
func (d *Models) PutModel(ctx context.Context, m *pushmeshv1.Model, file []byte) (stored *pushmeshv1.Model, err error) {
	err = d.server.Do(ctx, func(_ context.Context, conn *pgxpool.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, server.BulkTimeout)
		defer cancel()
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			stored, err = putModel(ctx, tx, m, file)
			return err
		})
	})
	return stored, err
}

func putModel(ctx context.Context, tx pgx.Tx, m *pushmeshv1.Model, file []byte) (*pushmeshv1.Model, error) {
	// Puts and deletions come one after the other.
	if _, err := tx.Exec(ctx, `SELECT FROM pushmesh.model_revision FOR UPDATE`); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `SELECT `+modelColumns+` FROM pushmesh.model AS m WHERE name = $1 ORDER BY version DESC LIMIT 1`, m.GetName())
	if err != nil {
		return nil, err
	}
	newest, err := pgx.CollectRows(rows, scanModel)
	if err != nil {
		return nil, err
	}
	if len(newest) == 1 && backend.SameModel(m, newest[0]) {
		return newest[0], nil
	}
	stored := proto.CloneOf(m)
	err = tx.QueryRow(ctx, `INSERT INTO pushmesh.model_name AS n (name, last) VALUES ($1, 1)
		ON CONFLICT (name) DO UPDATE SET last = n.last + 1 RETURNING last`, m.GetName()).Scan(&stored.Version)
	if err != nil {
		return nil, err
	}
	var versions, described, names int
	err = tx.QueryRow(ctx, `SELECT count(*), coalesce(sum(described), 0), (SELECT count(*) FROM pushmesh.model_name) FROM pushmesh.model`).Scan(&versions, &described, &names)
	if err != nil {
		return nil, err
	}
	size := proto.Size(stored)
	if err := backend.RoomForModel(versions, described+size, names); err != nil {
		return nil, err
	}
	if err := insertModel(ctx, tx, stored, size); err != nil {
		return nil, err
	}
	part := 0
	for data := range slices.Chunk(file, backend.ModelPart) {
		if _, err := tx.Exec(ctx, `INSERT INTO pushmesh.model_part (name, version, part, data) VALUES ($1, $2, $3, $4)`,
			stored.GetName(), int64(stored.GetVersion()), part, data); err != nil {
			return nil, err
		}
		part++
	}
	return stored, changedModels(ctx, tx)
}

func insertModel(ctx context.Context, tx pgx.Tx, m *pushmeshv1.Model, described int) error {
	columns := m.GetColumns()
	if columns == nil {
		columns = []string{}
	}
	_, err := tx.Exec(ctx, `INSERT INTO pushmesh.model (name, version, format, columns, trees, outputs, bytes, digest, created_at, comment, described)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		m.GetName(), int64(m.GetVersion()), int32(m.GetFormat()), columns, int32(m.GetTrees()), int32(m.GetOutputs()), int64(m.GetBytes()), m.GetDigest(),
		m.GetCreatedAt().AsTime().UnixMicro(), m.GetComment(), described)
	return err
}

func changedModels(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `UPDATE pushmesh.model_revision SET revision = revision + 1`)
	return err
}

// ListModels reads the revision and the set in one statement, which sees one moment and waits for
// no file that is being put.
func (d *Models) ListModels(ctx context.Context, have uint64) (revision uint64, all []*pushmeshv1.Model, err error) {
	err = d.server.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var r int64
		if err := conn.QueryRow(ctx, `SELECT revision FROM pushmesh.model_revision`).Scan(&r); err != nil {
			return err
		}
		if revision = uint64(r); revision == have {
			return nil
		}
		all = nil // where it is done again
		rows, err := conn.Query(ctx, `SELECT r.revision, m.name IS NOT NULL, coalesce(m.name, ''), coalesce(m.version, 0), coalesce(m.format, 0), m.columns,
			coalesce(m.trees, 0), coalesce(m.outputs, 0), coalesce(m.bytes, 0), m.digest, coalesce(m.created_at, 0), coalesce(m.comment, '')
			FROM pushmesh.model_revision AS r LEFT JOIN pushmesh.model AS m ON true ORDER BY m.name, m.version DESC`)
		if err != nil {
			return err
		}
		for rows.Next() {
			m, there := &pushmeshv1.Model{}, false
			fields, done := modelFields(m)
			if err := rows.Scan(append([]any{&r, &there}, fields...)...); err != nil {
				rows.Close()
				return err
			}
			if done(); there {
				all = append(all, m)
			}
		}
		revision = uint64(r)
		return rows.Err()
	})
	return revision, all, err
}

// GetModel describes one.
func (d *Models) GetModel(ctx context.Context, name string, version uint64) (*pushmeshv1.Model, error) {
	found, err := server.Query(ctx, d.server, scanModel, `SELECT `+modelColumns+` FROM pushmesh.model AS m WHERE name = $1 AND version = $2`, name, int64(version))
	if err == nil && len(found) == 0 {
		return nil, noModel(name, version)
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// ReadModel reads a part.
func (d *Models) ReadModel(ctx context.Context, name string, version uint64, part int) ([]byte, error) {
	found, err := server.Query(ctx, d.server, pgx.RowTo[[]byte], `SELECT data FROM pushmesh.model_part WHERE name = $1 AND version = $2 AND part = $3`, name, int64(version), part)
	if err == nil && len(found) == 0 {
		return nil, noModel(name, version)
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// DeleteModel deletes its parts as well.
func (d *Models) DeleteModel(ctx context.Context, name string, version uint64) error {
	return d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := changedModels(ctx, tx); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `DELETE FROM pushmesh.model WHERE name = $1 AND version = $2 RETURNING name`, name, int64(version)).Scan(new(string))
		if errors.Is(err, pgx.ErrNoRows) {
			return noModel(name, version)
		}
		return err
	})
}

func noModel(name string, version uint64) error {
	return fmt.Errorf("%w: model %s, version %d", backend.ErrNotFound, name, version)
}
