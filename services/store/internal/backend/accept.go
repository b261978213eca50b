package backend

import "context"

// Promotable is a backend that notices that a database was restored, or its server promoted, and
// appends nothing there until an operator has accepted the server.
type Promotable interface {
	// SameEpoch accepts the servers of all databases: nothing is missing on them.
	SameEpoch(ctx context.Context) error
	// AcceptServer accepts the server of one database, by its name ("": the only one). With an
	// epoch above 0 the logs of its shards begin anew under it, as by NewEpoch. ErrConflict: there
	// is nothing to accept, or a shard is owned, or the epoch is not after the present ones.
	// ErrNotFound: no database has this name, or it has to be named.
	AcceptServer(ctx context.Context, database string, epoch uint64) (Accepted, error)
	// CheckPromotion says why a promotion would not be trusted although the store was told to; nil:
	// it would, or was not.
	CheckPromotion() error
}

// Accepted is what AcceptServer did.
type Accepted struct {
	// Database that it was, by its name.
	Database string
	// Before is the server that the log was written on last, After the one that it is written on
	// from now on.
	Before, After Server
	// Shards whose logs begin anew.
	Shards int
}

// Server is a server as it names itself: the identifier of its data, and its timeline.
type Server struct {
	System   uint64
	Timeline uint32
}
