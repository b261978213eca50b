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
	var was *bool
	var is bool
	err = conn.QueryRow(ctx, `SELECT t.system, t.timeline, t.system = s.system AND t.timeline = s.timeline, t.system = s.system AND t.timeline > s.timeline,
		s.synchronous, `+synchronous+` FROM pushmesh.server AS s, pushmesh.this_server() AS t`).Scan(&system, &timeline, &known, &promoted, &was, &is)
	name = fmt.Sprintf("%d/%d", system, timeline)
	if err != nil {
		return "", fmt.Errorf("postgres: which server: %w", err)
	}
	// What this store saw itself may be newer than what the standby was told.
	waited := was != nil && *was && !s.asynchronous.Load()
	if known {
		s.asynchronous.Store(!is)
	}
	switch {
	case known && was != nil && *was == is:
		return name, nil
	case known:
		return name, s.NoteSynchronous(ctx, conn)
	case promoted && s.Config.TrustPromotion && waited:
		s.Config.Log.Warn("a promoted standby is trusted to have everything", "timeline", timeline)
		return name, accept(ctx, conn)
	case promoted && s.Config.TrustPromotion && was != nil:
		err = errAsynchronous
	case promoted && s.Config.TrustPromotion:
		err = errNeverLooked
	}
	if err != nil {
		return "", fmt.Errorf("%w (system %d, timeline %d). %w", ErrRewound, system, timeline, err)
	}
	return "", fmt.Errorf("%w (system %d, timeline %d)", ErrRewound, system, timeline)
}

// Why a promotion is not trusted.
var (
	errAsynchronous = errors.New("--trust-promotion does not hold for this promotion: the server that was written on last waited for no standby " +
		"(synchronous_standby_names was empty when a store looked last), so that the standby may lack commits")
	errNeverLooked = errors.New("--trust-promotion does not hold for this promotion: no store of this version has seen whether the server that was written on last waited for a standby")
)

// synchronous says in SQL whether commits wait for a standby.
const synchronous = `btrim(current_setting('synchronous_standby_names')) <> ''`

// NoteSynchronous keeps whether commits wait for a standby, in the table that a promoted standby
// has, too. It waits for none itself, which may be away: whatever is acknowledged after it has it
// before.
func (s *Server) NoteSynchronous(ctx context.Context, on Querier) error {
	if _, err := on.Exec(ctx, `SET LOCAL synchronous_commit = off; UPDATE pushmesh.server AS s SET synchronous = `+synchronous+` FROM pushmesh.this_server() AS t
		WHERE t.system = s.system AND t.timeline = s.timeline`, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("postgres: note whether commits wait for a standby: %w", err)
	}
	return nil
}

// CheckPromotion is a health check: nil while a promotion of the server could be trusted as the
// configuration says.
func (s *Server) CheckPromotion() error {
	if s.Config.TrustPromotion && s.asynchronous.Load() {
		return errors.New("--trust-promotion is set, and synchronous_standby_names is empty: commits wait for no standby, and its promotion is not going to be trusted")
	}
	return nil
}

// accept makes this server the one that the log is written on.
func accept(ctx context.Context, on Querier) error {
	if _, err := on.Exec(ctx, AcceptServer); err != nil {
		return fmt.Errorf("postgres: accept the server: %w", err)
	}
	return nil
}

// AcceptServer makes this server the one that the log is written on.
const AcceptServer = `UPDATE pushmesh.server AS s SET system = t.system, timeline = t.timeline, synchronous = ` + synchronous + ` FROM pushmesh.this_server() AS t`

// SameEpoch is an operator's word that nothing is missing on this server.
func (s *Server) SameEpoch(ctx context.Context) error {
	return s.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error { return accept(ctx, conn) })
}
