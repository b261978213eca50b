package backend

import (
	"context"
	"time"
)

// scheduledWidth is how wide a slice of scheduled messages is: a year ahead is 54 slices.
const scheduledWidth = 7 * 24 * time.Hour

// ScheduledSlice is the slice in which messages lie that are due at a time.
func ScheduledSlice(due uint64) Slice { return sliceOf(due, scheduledWidth) }

// ScheduledID names a scheduled message, and orders them: by when they are due, then by message id.
type ScheduledID struct {
	Due       uint64
	MessageID [16]byte
}

// Scheduled is a message that waits until it is due. A batch brings it, and another one, of the
// owner of the same shard, takes it away: the batch that appends it to its topic's log, or that of
// its cancellation. So it is appended once, whoever crashes when.
type Scheduled struct {
	ScheduledID
	Shard       int
	Topic       string
	PublishedAt uint64
	// TTL in microseconds from the append on; 0: none.
	TTL         uint64
	Traceparent string
	Body        []byte
}

// Schedules reads what waits.
type Schedules interface {
	// ReadScheduled is the messages of shards that come after an id and are due at to at the
	// latest, in order, limit at most.
	ReadScheduled(ctx context.Context, shards []int, after ScheduledID, to uint64, limit int) ([]Scheduled, error)
	// FindScheduled by message id, without its body; ErrNotFound.
	FindScheduled(ctx context.Context, messageID [16]byte) (Scheduled, error)
}
