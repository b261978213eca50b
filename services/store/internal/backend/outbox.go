package backend

import (
	"context"
	"errors"
	"time"
)

// ErrOtherReader is returned when another store reads the outbox.
var ErrOtherReader = errors.New("another store reads the outbox")

// Outboxes is what a database may have besides: an outbox that applications write inside their own
// transactions. SQLite has none.
type Outboxes interface {
	// OpenOutbox takes the right to read the outbox, with a connection of its own that holds it;
	// ErrHeld where another one does.
	OpenOutbox(ctx context.Context, owner Owner) (Outbox, error)
}

// Outbox is the right to read, one at a time. It has one user. After any error it is of no more
// use: Close it and open another.
type Outbox interface {
	// Pending lists, in the order in which they are to be published, at most limit rows of the
	// batch under way; where there is none, it begins one with everything that was committed since
	// the last. repeated says that an earlier holder began it: what became of its rows is not
	// known.
	Pending(ctx context.Context, limit int) (rows []OutboxEntry, repeated bool, err error)
	// Rows in the order of ids, which Pending listed.
	Rows(ctx context.Context, ids []int64) ([]OutboxRow, error)
	// Settle notes that every row of the batch up to the id through is done with, some of them by a
	// refusal; last ends the batch.
	Settle(ctx context.Context, through int64, last bool, refused []OutboxRefusal) error
	// Park copies rows that Rows gave into a table of those that wait, each with its shard, and
	// answers those that were not there yet.
	Park(ctx context.Context, ids []int64, shards []int) (added []OutboxWaiting, err error)
	// Waiting lists all that is parked.
	Waiting(ctx context.Context) ([]OutboxWaiting, error)
	// WaitingRows are the first rows of each of the shards, in the order of ids: at most each of
	// one shard, and at most most rows and bytes of all, but for a row that is larger alone.
	WaitingRows(ctx context.Context, shards []int, each, most, bytes int) ([]OutboxRow, error)
	// Unpark notes that parked rows, each with its shard, are done with, some of them by a refusal,
	// and answers them.
	Unpark(ctx context.Context, ids []int64, shards []int, refused []OutboxRefusal) (gone []OutboxWaiting, err error)
	// Rotate begins the next table once the present one is old or large, if what lies in the next
	// is settled and nobody uses it.
	Rotate(ctx context.Context, older time.Duration, larger int64) (OutboxState, error)
	// Close gives the right back.
	Close() error
}

// OutboxEntry is a row in a list; Size is about its bytes.
type OutboxEntry struct {
	ID   int64
	Size int
}

// OutboxWaiting is a row that is parked until its shard takes messages again.
type OutboxWaiting struct {
	Shard int
	OutboxEntry
}

// OutboxRow is a message that a transaction wrote.
type OutboxRow struct {
	ID        int64
	MessageID [16]byte
	// At is when it was written, by the database's clock.
	At uint64
	// TTL counts from At, or from DeliverAt; 0: none.
	TTL time.Duration
	// DeliverAt 0: now.
	DeliverAt   uint64
	Priority    uint32
	Topic       string
	DedupeKey   string
	Traceparent string
	Headers     map[string]string
	Payload     []byte
}

// OutboxRefusal is a row that was refused for good.
type OutboxRefusal struct {
	ID    int64
	Code  string
	Error string
}

// OutboxState is what lies in the outbox's tables.
type OutboxState struct {
	Bytes int64
	// Since the present table took its turn.
	Age time.Duration
	// Blocked says that a rotation was due, and someone still uses the next table.
	Blocked bool
}
