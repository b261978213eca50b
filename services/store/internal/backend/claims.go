package backend

import (
	"context"
	"errors"
)

// ErrFenced is returned when another writer has taken shards of this one: nothing was done, and
// never will be.
var ErrFenced = errors.New("another store has taken over the claims")

// ErrShardTaken is returned when another writer owns the claims of a shard.
var ErrShardTaken = errors.New("another store owns the claims of the shard")

// ClaimNumbers is how many numbers a ClaimWriter has for a shard, from ClaimShard.Next on.
const ClaimNumbers = 1 << 32

// ClaimsLost is how many takes of a shard NewEpoch leaves room for: a database that was rewound
// doesn't know of its last ones, and no number may be given twice.
const ClaimsLost = 1 << 20

// Claims keeps the claims of resources; package claims decides about them.
type Claims interface {
	// OpenClaims makes a writer, without shards. Fence and NewEpoch end it as they end those of the
	// log.
	OpenClaims(ctx context.Context, owner Owner) (ClaimWriter, error)
}

// ClaimWriter is one store's right to change claims of the shards that it took. Exclusiveness is
// the database's: after another writer took any of its shards, every method returns ErrFenced. It
// has one user at a time. After any error but ErrShardTaken it cannot be used any more: what became
// of the last Commit is what the next writer of that shard loads, and never changes afterwards.
type ClaimWriter interface {
	// Take takes shards and calls visit with every place in them, shard by shard in the order of
	// Seq, once nobody else can change them. Without force it fails with ErrShardTaken where
	// another writer has one of them, and nothing is taken; with force that writer is fenced, with
	// all that it has. Shards that the writer has already are taken anew. taken is in the order of
	// shards.
	Take(ctx context.Context, shards []int, force bool, visit func(ClaimPlace)) (taken []ClaimShard, now uint64, err error)
	// Give releases shards.
	Give(ctx context.Context, shards []int) error
	// Commit does all changes in one transaction, durable when it returns nil. Without changes it
	// only proves that the writer is not fenced. now is the database's time, in Unix microseconds,
	// between the call and its return.
	Commit(ctx context.Context, c *ClaimChanges) (now uint64, err error)
	// Close ends the writer and releases everything.
	Close() error
}

// ClaimShard is a shard that was taken: numbers from Next to Next+ClaimNumbers-1 are the writer's,
// none of them was used before.
type ClaimShard struct {
	Shard int
	Next  uint64
}

// ClaimKey names a place. It is never used twice.
type ClaimKey struct {
	Shard int
	Seq   uint64
}

// ClaimPlace is an owner's place at a resource. Times are Unix microseconds of the database's
// clock, durations microseconds; 0 is none.
type ClaimPlace struct {
	ClaimKey
	Resource, Owner string
	Priority        uint8
	// Token of the hold; 0: it waits.
	Token uint64
	// TTL of the hold, as asked for.
	TTL uint64
	// JoinedAt and GrantedAt; ExpiresAt is the end of the hold, or of the wait.
	JoinedAt, GrantedAt, ExpiresAt uint64
	// OfferedUntil is when a grant passes on that nobody has taken up; 0: it is taken up.
	OfferedUntil uint64
	// Node, with its Incarnation, and Conn are where the owner is told; Node "": it polls, or
	// GoneAt is when its connection ended. Bound as in meshv1.ClaimOp.
	Node        string
	Incarnation uint64
	Conn        uint64
	Bound       bool
	GoneAt      uint64
}

// ClaimChanges of one transaction; a key is in one of them, once.
type ClaimChanges struct {
	// Put makes places, or replaces those with the same key.
	Put []ClaimPlace
	// Delete ends places.
	Delete []ClaimKey
}
