// Package backend is what the store tier asks of a database. There are two: Postgres and SQLite;
// both pass the suite in backendtest.
//
// Times are Unix microseconds unless they are a time.Time. Every method is safe for concurrent use
// except those of a Writer, which has one owner at a time.
package backend

import "context"

// Backend is one database: the log, and the records that are kept beside it.
type Backend interface {
	Log
	Records
	Meshes

	// Time is the database's clock, in Unix microseconds.
	Time(ctx context.Context) (uint64, error)
	// Ping reports whether the database answers; and, where it could not be written to before,
	// whether it can again.
	Ping(ctx context.Context) error
	// Check names for people what is wrong with the database, as far as is known without asking it;
	// nil: nothing.
	Check() error
	// Close ends everything, open writers included.
	Close() error
}

// Records are what the log does not need to append and to be read.
type Records interface {
	Sessions
	Namespaces
	Models
	DeadLetters
	Schedules
	Claims
	Revocations
	Teams
}

// Log is the log of shards, and who owns them.
type Log interface {
	Finder
	Slices

	// OpenWriter makes a writer, with a connection of its own where the database has connections.
	// It owns no shard yet.
	OpenWriter(ctx context.Context, owner Owner) (Writer, error)
	// OpenWatch makes a watch over the stores that use this database.
	OpenWatch(ctx context.Context, owner Owner) (Watch, error)
	// Oldest answers each question, in order: the first run of the topic whose At is not before
	// NotBefore, of those that end at From or later.
	Oldest(ctx context.Context, questions []OldestQuestion) ([]OldestAnswer, error)
	// Silent looks at what is stored of topics of a shard, in order of their names behind one ("";
	// from the first on), and tells those of which it changed last before a time, by the database's
	// clock. It looks at SilentLook of them at most; next is where to go on, "" where there is
	// nothing more. What checkpoints have of them that is not folded yet it does not see.
	Silent(ctx context.Context, shard int, after string, before uint64) (silent []SilentTopic, next string, err error)
	// ForgetTopics is called before a store forgets its first topic: stores of versions that do not
	// know of topics which begin anew are refused from then on.
	ForgetTopics(ctx context.Context) error
	// Kept is the message that a topic keeps (ErrNotFound: none), under whatever epoch.
	Kept(ctx context.Context, topic string) (Kept, error)
	// Owners says which stores took shards last and have not released them (they may be dead
	// since).
	Owners(ctx context.Context) ([]Ownership, error)
	// Fence ends every Writer and ClaimWriter of one incarnation of a store: when it returns nil,
	// none of them can commit any more and their shards and claims can be taken. Those that are
	// gone are no error. It never touches another incarnation.
	Fence(ctx context.Context, storeID string, incarnation uint64) error
	// NewEpoch begins a new incarnation of every shard's log: heads fall back to 0 under the new
	// epoch, which must be greater than the present ones (ErrConflict). No shard may be owned
	// meanwhile (ErrConflict).
	NewEpoch(ctx context.Context, epoch uint64) error
	// Away says at once, without asking the database, why appends would be refused now (a
	// *code.Error with a time to come back); nil: it is tried.
	Away() error
}

// Owner is one incarnation of a store process.
type Owner struct {
	StoreID     string
	Incarnation uint64
	// Address of its gRPC server, as others reach it.
	Address string
}

// Ownership is one shard's owner.
type Ownership struct {
	Shard int
	Owner
}

// Writer appends to the shards that it owns. Exclusiveness is the database's: a shard is owned by
// one writer at a time, and what proves it (the connection that appends) is what loses it. After
// ErrUnknown or ErrLost from any method the writer is of no more use: Close it and open another.
type Writer interface {
	// TakeShards takes ownership of those shards that have no owner, records it, and returns them.
	// Shards that this writer owned before stay its own. It does not wait for shards of other
	// owners. With an empty list it checks whether the writer can still be used. Where it fails and
	// the writer is not lost, no shard was taken.
	TakeShards(ctx context.Context, shards []int) (got []int, err error)
	// Hold of a shard that this writer owns; "": it is not known, or the shard not owned. It asks
	// nobody.
	Hold(shard int) Hold
	// Load tells what is known of owned shards, all of it as of one moment: every shard, topic and
	// producer as of the shard's last checkpoint, then, per shard in the order of commits, the runs
	// of the last CoveredCommits that the checkpoint covers and those committed after it, then the
	// marks committed after it. Epochs that are gone are left out, and so are producers from before
	// their shard's Forgot; not those in runs and marks.
	Load(ctx context.Context, shards []int, into Loader) error
	// Commit writes a batch in one transaction, durable when it returns nil. Its errors are
	// ErrNotCommitted (the writer can still be used), ErrLost (not committed, and never will be),
	// ErrUnknown (ask Committed of a later writer that took the same shards).
	Commit(ctx context.Context, b *Batch) error
	// Committed reports whether a batch is in the database. The answer is final if this writer owns
	// a shard of that batch (the connection that sent it is gone then), for an hour after it was
	// sent.
	Committed(ctx context.Context, id BatchID) (bool, error)
	// Checkpoint stores states, so that Load need not look at commits up to theirs. It never lowers
	// what is stored.
	Checkpoint(ctx context.Context, c *Checkpoint) error
	// Finder answers what an append needs to know, on what the writer has of its own: neither
	// readers nor whoever else waits for the database hold an append up. It is asked about topics
	// of owned shards.
	Finder
	// ReleaseShards ends the ownership of shards.
	ReleaseShards(ctx context.Context, shards []int) error
	// Close releases every shard and ends the connection.
	Close() error
}

// Hold tells the times of owning a shard apart, for one Owner: where it has an equal one twice, no
// other owner can have changed anything of the shard in between, and the server is the one that it
// was, with the same history. Another epoch is another Hold.
type Hold string

// SilentLook is how many topics a question of Silent looks at.
const SilentLook = 2000

// CoveredCommits is how many commits that a shard's checkpoint covers are told, for comparison.
const CoveredCommits = 8

// Loader takes what Load tells. Slices are the loader's to keep.
type Loader interface {
	LoadShard(Shard)
	// LoadTopic is told topics in any order, and some several times: of those of the latest epoch
	// the greatest head and the greatest oldest hold. The name is the loader's only until it
	// returns.
	LoadTopic(Topic)
	LoadProducer(Producer)
	// LoadCovered is told runs that the checkpoint covers, without Packed: a topic whose head is
	// below one was not loaded as it was stored.
	LoadCovered(Run)
	// LoadRun is told runs after the checkpoint.
	LoadRun(Run)
	// LoadMark is told marks after the checkpoint. What they moved is in no checkpoint: the next
	// one has to have it before it covers them.
	LoadMark(Mark)
	// LoadKept is told, after all runs, what topics keep, without Packed.
	LoadKept(Kept)
}

// Finder finds what writers committed.
type Finder interface {
	// ReadRuns visits, in order of seq, the runs of a topic that hold any seq of from to to
	// (inclusive), until visit returns false. Runs whose slices were dropped are left out. Packed
	// is visit's to keep.
	ReadRuns(ctx context.Context, topic string, epoch, from, to uint64, visit func(Run) bool) error
	// Keys finds those of hashes that were committed and whose Until is after now.
	Keys(ctx context.Context, hashes []KeyHash, now uint64) ([]Key, error)
}

// OldestQuestion of Log.Oldest. From is what the answer was last: what is below was too old then
// already.
type OldestQuestion struct {
	Topic                  string
	Epoch, NotBefore, From uint64
}

// OldestAnswer is the first retained seq of a topic and the time of its run; 0 and 0: none.
type OldestAnswer struct{ Seq, At uint64 }

// Slices of time that log rows and dedupe keys lie in; see Class and KeyClass.
type Slices interface {
	// MakeSlices makes the slices that commits need now and until at least one slice's width later.
	// Commit never depends on it for correctness.
	MakeSlices(ctx context.Context, now uint64) error
	// DropSlices drops the slices whose End and Keep have passed, and old batch ids, and says how
	// many slices. It gives up soon rather than make appends wait; the next call goes on.
	DropSlices(ctx context.Context, now uint64) (dropped int, err error)
	// FoldCheckpoints puts checkpoints into an order in which they take little room and are loaded
	// quickly, as FoldCursors does with cursors.
	FoldCheckpoints(ctx context.Context, how Fold) error
}
