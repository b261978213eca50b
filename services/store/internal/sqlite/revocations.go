package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

func nextRevocation(ctx context.Context, tx *sql.Tx) (version uint64, err error) {
	if err := tx.QueryRowContext(ctx, "UPDATE revocation_version SET version = version + 1 RETURNING version").Scan(&version); err != nil {
		return 0, fmt.Errorf("sqlite: revocation version: %w", err)
	}
	return version, nil
}

const revocationColumns = "user, issuer, token_id, reason, at, until, restored, version"

func revocationFields(k *backend.KeptRevocation) []any {
	k.Revocation = &pushmeshv1.Revocation{}
	return []any{&k.User, &k.Issuer, &k.TokenId, &k.Reason, &k.At, &k.Until, &k.Restored, &k.Version}
}

// Revoke deletes those whose time is over first.
func (b *Backend) Revoke(ctx context.Context, r *pushmeshv1.Revocation, now uint64) (*pushmeshv1.Revocation, error) {
	var kept backend.KeptRevocation
	err := inTx(ctx, b.write, func(tx *sql.Tx) error {
		version, err := nextRevocation(ctx, tx)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM revocation WHERE until <= ?", int64(now)); err != nil {
			return fmt.Errorf("sqlite: revocation: %w", err)
		}
		var others int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM revocation WHERE NOT (user = ? AND issuer = ? AND token_id = ?)",
			r.GetUser(), r.GetIssuer(), r.GetTokenId()).Scan(&others); err != nil {
			return fmt.Errorf("sqlite: revocation: %w", err)
		}
		if err := backend.RoomForRevocation(others); err != nil {
			return err
		}
		err = tx.QueryRowContext(ctx, "INSERT INTO revocation AS r ("+revocationColumns+") VALUES (?, ?, ?, ?, ?, ?, 0, ?) "+
			"ON CONFLICT (user, issuer, token_id) DO UPDATE SET reason = excluded.reason, at = max(r.at, excluded.at), "+
			"until = max(r.until, excluded.until), restored = 0, version = excluded.version RETURNING "+revocationColumns,
			r.GetUser(), r.GetIssuer(), r.GetTokenId(), r.GetReason(), int64(now), int64(r.GetUntil()), int64(version)).Scan(revocationFields(&kept)...)
		if err != nil {
			return fmt.Errorf("sqlite: revocation: %w", err)
		}
		return nil
	})
	return kept.Revocation, err
}

// Restore keeps the row.
func (b *Backend) Restore(ctx context.Context, r *pushmeshv1.Revocation, now uint64) (version uint64, err error) {
	err = inTx(ctx, b.write, func(tx *sql.Tx) error {
		if version, err = nextRevocation(ctx, tx); err != nil {
			return err
		}
		done, err := tx.ExecContext(ctx, "UPDATE revocation SET restored = 1, version = ? WHERE user = ? AND issuer = ? AND token_id = ? AND NOT restored AND until > ?",
			int64(version), r.GetUser(), r.GetIssuer(), r.GetTokenId(), int64(now))
		if err != nil {
			return fmt.Errorf("sqlite: revocation: %w", err)
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 {
			return fmt.Errorf("revocation %w", backend.ErrNotFound)
		}
		return nil
	})
	return version, err
}

// ListRevocations reads version and page from one snapshot.
func (b *Backend) ListRevocations(ctx context.Context, have uint64, limit int, now uint64) (page backend.RevocationPage, err error) {
	err = inSnapshot(ctx, b.read, func(tx *sql.Tx) error {
		var version uint64
		if err := tx.QueryRowContext(ctx, "SELECT version FROM revocation_version").Scan(&version); err != nil {
			return fmt.Errorf("sqlite: revocations: %w", err)
		}
		if version == have {
			page = backend.RevocationPage{Version: have}
			return nil
		}
		anew := have > version
		if anew {
			have = 0
		}
		all, err := collect(ctx, tx, func(rows *sql.Rows) (k backend.KeptRevocation, err error) {
			err = rows.Scan(revocationFields(&k)...)
			return k, err
		}, "SELECT "+revocationColumns+" FROM revocation WHERE version > ? AND until > ? ORDER BY version LIMIT ?", int64(have), int64(now), limit+1)
		page = backend.PageOfRevocations(version, anew, all, limit)
		return err
	})
	return page, err
}

// ExpireRevocations deletes some whose time is over.
func (b *Backend) ExpireRevocations(ctx context.Context, now uint64, limit int) (deleted int, err error) {
	err = inTx(ctx, b.write, func(tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, "DELETE FROM revocation WHERE (user, issuer, token_id) IN (SELECT user, issuer, token_id FROM revocation WHERE until <= ? LIMIT ?)", int64(now), limit)
		if err != nil {
			return fmt.Errorf("sqlite: revocations: %w", err)
		}
		n, err := done.RowsAffected()
		deleted = int(n)
		return err
	})
	return deleted, err
}
