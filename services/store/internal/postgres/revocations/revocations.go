// Package revocations keeps what tokens are void before they end.
package revocations

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// Revocations of a database.
type Revocations struct{ server *server.Server }

// New is ready to be used.
func New(s *server.Server) *Revocations { return &Revocations{s} }

// nextVersion locks the row of the version: changes are committed in the order of their versions.
func nextVersion(ctx context.Context, tx pgx.Tx) (version int64, err error) {
	err = tx.QueryRow(ctx, `UPDATE pushmesh.revocation_version SET version = version + 1 RETURNING version`).Scan(&version)
	return version, err
}

const columns = `user_id, issuer, token_id, reason, at, until, restored, version`

func scan(row pgx.CollectableRow) (k backend.KeptRevocation, err error) {
	r := &pushmeshv1.Revocation{}
	var at, until, version int64
	err = row.Scan(&r.User, &r.Issuer, &r.TokenId, &r.Reason, &at, &until, &k.Restored, &version)
	r.At, r.Until, r.Version, k.Revocation = uint64(at), uint64(until), uint64(version), r
	return k, err
}

// Revoke deletes those whose time is over first.
func (d *Revocations) Revoke(ctx context.Context, r *pushmeshv1.Revocation, now uint64) (kept *pushmeshv1.Revocation, err error) {
	err = d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		version, err := nextVersion(ctx, tx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM pushmesh.revocation WHERE until <= $1`, int64(now)); err != nil {
			return err
		}
		var others int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM pushmesh.revocation WHERE NOT (user_id = $1 AND issuer = $2 AND token_id = $3)`,
			r.GetUser(), r.GetIssuer(), r.GetTokenId()).Scan(&others); err != nil {
			return err
		}
		if err := backend.RoomForRevocation(others); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `INSERT INTO pushmesh.revocation AS r (`+columns+`) VALUES ($1, $2, $3, $4, $5, $6, false, $7)
			ON CONFLICT (user_id, issuer, token_id) DO UPDATE SET reason = excluded.reason, at = greatest(r.at, excluded.at),
				until = greatest(r.until, excluded.until), restored = false, version = excluded.version
			RETURNING `+columns, r.GetUser(), r.GetIssuer(), r.GetTokenId(), r.GetReason(), int64(now), int64(r.GetUntil()), version)
		if err != nil {
			return err
		}
		one, err := pgx.CollectExactlyOneRow(rows, scan)
		kept = one.Revocation
		return err
	})
	return kept, err
}

// Restore keeps the row.
func (d *Revocations) Restore(ctx context.Context, r *pushmeshv1.Revocation, now uint64) (version uint64, err error) {
	err = d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		v, err := nextVersion(ctx, tx)
		if err != nil {
			return err
		}
		version = uint64(v)
		tag, err := tx.Exec(ctx, `UPDATE pushmesh.revocation SET restored = true, version = $1
			WHERE user_id = $2 AND issuer = $3 AND token_id = $4 AND NOT restored AND until > $5`, v, r.GetUser(), r.GetIssuer(), r.GetTokenId(), int64(now))
		if err == nil && tag.RowsAffected() == 0 {
			return fmt.Errorf("revocation %w", backend.ErrNotFound)
		}
		return err
	})
	return version, err
}

// ListRevocations reads the version first: what it names is in the database by then.
func (d *Revocations) ListRevocations(ctx context.Context, have uint64, limit int, now uint64) (page backend.RevocationPage, err error) {
	err = d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var v int64
		if err := tx.QueryRow(ctx, `SELECT version FROM pushmesh.revocation_version`).Scan(&v); err != nil {
			return err
		}
		if uint64(v) == have {
			page = backend.RevocationPage{Version: have}
			return nil
		}
		anew := have > uint64(v)
		if anew {
			have = 0
		}
		rows, err := tx.Query(ctx, `SELECT `+columns+` FROM pushmesh.revocation WHERE version > $1 AND until > $2 ORDER BY version LIMIT $3`,
			int64(have), int64(now), limit+1)
		if err != nil {
			return err
		}
		all, err := pgx.CollectRows(rows, scan)
		page = backend.PageOfRevocations(uint64(v), anew, all, limit)
		return err
	})
	return page, err
}

// ExpireRevocations leaves those to others that they are at.
func (d *Revocations) ExpireRevocations(ctx context.Context, now uint64, limit int) (deleted int, err error) {
	err = d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM pushmesh.revocation WHERE (user_id, issuer, token_id) IN (
			SELECT user_id, issuer, token_id FROM pushmesh.revocation WHERE until <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)`, int64(now), limit)
		deleted = int(tag.RowsAffected())
		return err
	})
	return deleted, err
}
