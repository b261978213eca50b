package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/store/internal/databases"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres"
)

// reachedWithin is how long a database may take to be reached, before whoever moves shards is told.
const reachedWithin = 15 * time.Second

// MoveShard moves shards first to last to the database named to, one after the other. db and
// shardDBs are what the stores were given as well. Stores may run: the messages of a shard are
// refused, with a time to come back, while it is on the move. A move that was interrupted is done
// again.
func MoveShard(ctx context.Context, db string, shardDBs map[string]string, first, last int, to string, log *slog.Logger) (err error) {
	s := Settings{DB: db, ShardDBs: shardDBs}
	if errs := s.checkShardDBs(); len(errs) > 0 {
		return errors.Join(errs...)
	}
	if first < 0 || last < first || last >= topic.Shards {
		return fmt.Errorf("shards %d to %d: shards are numbered 0 to %d", first, last, topic.Shards-1)
	}
	if _, known := shardDBs[to]; !known && to != postgres.Home {
		return fmt.Errorf("there is no database %q: the names are home and those of --shard-db", to)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// opening one that is away would go on trying
	impatient := time.AfterFunc(reachedWithin, cancel)
	set, err := databases.Open(ctx, postgres.Config{URL: db, Log: log}, shardDBs)
	if !impatient.Stop() {
		if err == nil {
			err = set.Close()
		}
		// not wrapped: nobody cancelled anything
		return fmt.Errorf("not all databases could be reached within %s: %s", reachedWithin, fmt.Sprint(err))
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	if _, err := set.Mesh(ctx, meshid.Mesh{}); err != nil {
		return err
	}
	for shard := first; shard <= last; shard++ {
		if err := set.Move(ctx, shard, to); err != nil {
			return fmt.Errorf("shard %d: %w", shard, err)
		}
		log.Info("shard moved", "shard", shard, "to", to)
	}
	return nil
}
