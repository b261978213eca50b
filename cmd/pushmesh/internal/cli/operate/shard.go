package operate

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/services/store"
)

type Shard struct {
	Move shardMoveCmd `cmd:"" help:"Move shards to another database."`
}

type shardMoveCmd struct {
	Shards  string            `required:"" placeholder:"N[-M]" help:"Shards to move, 0 to 1023: one, or the first and the last."`
	To      string            `required:"" placeholder:"NAME" help:"Database to move the shards to: home, or the name of a --shard-db."`
	DB      string            `name:"db" required:"" env:"PUSHMESH_DB" placeholder:"URL" help:"Value of the stores' --db."`
	ShardDB map[string]string `name:"shard-db" required:"" placeholder:"NAME=URL" help:"Value of each of the stores' --shard-db."`
}

func (shardMoveCmd) Help() string {
	return `Every store must know the database (--shard-db) before anything is moved there. Stores may run: a shard's messages are refused, with a time to try again
back, while it is copied and compared. A move that was interrupted is done again.

  pushmesh shard move --db postgres://db1/pushmesh --shard-db b=postgres://db2/pushmesh --shards 512-1023 --to b`
}

// Run moves one shard after the other.
func (c *shardMoveCmd) Run(ctx context.Context, stdio cmdline.IO) error {
	from, until, several := strings.Cut(c.Shards, "-")
	if !several {
		until = from
	}
	first, err := strconv.Atoi(from)
	if err != nil {
		return &settings.UsageError{Err: fmt.Errorf("--shards %q must be a number, like 7, or two, like 512-1023", c.Shards)}
	}
	last, err := strconv.Atoi(until)
	if err != nil {
		return &settings.UsageError{Err: fmt.Errorf("--shards %q must be a number, like 7, or two, like 512-1023", c.Shards)}
	}
	return store.MoveShard(ctx, c.DB, c.ShardDB, first, last, c.To, slog.New(slog.NewTextHandler(stdio.Err, nil)))
}
