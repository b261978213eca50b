package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres"
)

// Migrate brings the schema of a database up to date, as the role of DBOwner if that is set, which
// then grants the role of DB what a store needs. Stores may run. Where no server answers it tries
// until ctx ends.
func Migrate(ctx context.Context, s Settings) (err error) {
	if err := s.Check(); err != nil {
		return fmt.Errorf("store settings: %w", err)
	}
	s = s.withDefaults()
	tel, err := telemetry.New(ctx, telemetry.Config{Service: "store", Instance: s.ID, Version: s.Version, SampleRatio: s.TraceRatio, LogLevel: s.LogLevel})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tel.Stop(context.WithoutCancel(ctx))) }()
	if err := postgres.Migrate(ctx, postgres.Config{URL: s.DB, OwnerURL: s.DBOwner, AllowNoFsync: s.AllowNoFsync, Patience: s.DBPatience, Log: tel.Log}); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	tel.Log.Info("the database's schema is up to date")
	return nil
}
