package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrRewound says that the server is not the one that the log was last written on, or is it no
// more: what was acknowledged may be missing.
var ErrRewound = errors.New("postgres: the database was restored or promoted: what was acknowledged may be missing. " +
	"Tell the stores by pushmesh store accept-server --new-epoch, or --same-epoch if nothing was lost")

// familiar compares the server with the one that the log was last written on, and names it: its
// system and timeline.
func (s *Server) familiar(ctx context.Context, conn *pgx.Conn) (name string, err error) {
	var system, timeline int64
	var known, promoted bool
	err = conn.QueryRow(ctx, `SELECT t.system, t.timeline, t.system = s.system AND t.timeline = s.timeline, t.system = s.system AND t.timeline > s.timeline
		FROM pushmesh.server AS s, pushmesh.this_server() AS t`).Scan(&system, &timeline, &known, &promoted)
	name = fmt.Sprintf("%d/%d", system, timeline)
	switch {
	case err != nil:
		return "", fmt.Errorf("postgres: which server: %w", err)
	case known:
		return name, nil
	case promoted && s.Config.TrustPromotion:
		s.Config.Log.Warn("a promoted standby is trusted to have everything", "timeline", timeline)
		return name, accept(ctx, conn)
	}
	return "", fmt.Errorf("%w (system %d, timeline %d)", ErrRewound, system, timeline)
}

// accept makes this server the one that the log is written on.
func accept(ctx context.Context, on Querier) error {
	if _, err := on.Exec(ctx, AcceptServer); err != nil {
		return fmt.Errorf("postgres: accept the server: %w", err)
	}
	return nil
}

// AcceptServer makes this server the one that the log is written on.
const AcceptServer = `UPDATE pushmesh.server AS s SET system = t.system, timeline = t.timeline FROM pushmesh.this_server() AS t`

// SameEpoch is an operator's word that nothing is missing on this server.
func (s *Server) SameEpoch(ctx context.Context) error {
	return s.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error { return accept(ctx, conn) })
}
