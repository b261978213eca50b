// Package log keeps the log of shards in Postgres, and who owns them: a writer has a connection of
// its own, whose backend holds an advisory lock for every shard that the writer owns.
package log

import (
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/postgres/partition"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// Log is what a database has of shards.
type Log struct {
	finder
	server     *server.Server
	partitions *partition.Partitions
	tally      partition.Rounds // over checkpoints; used under their advisory lock
}

// New is ready to be used.
func New(s *server.Server, p *partition.Partitions) *Log {
	return &Log{finder: finderOf(s), server: s, partitions: p, tally: partition.Rounds{Folded: time.Now()}}
}
