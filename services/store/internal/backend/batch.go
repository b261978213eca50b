package backend

import "errors"

// What a method of Writer or Backend may fail with; test with errors.Is.
var (
	// ErrNotCommitted: nothing was written; the same may be tried again.
	ErrNotCommitted = errors.New("not committed")
	// ErrUnknown: written or not, nobody knows yet.
	ErrUnknown = errors.New("outcome unknown")
	// ErrLost: this writer does not own the shard (any more); nothing was written.
	ErrLost = errors.New("ownership lost")
	// ErrNotFound: no such session, namespace.
	ErrNotFound = errors.New("not found")
	// ErrExists: what would be made is there already.
	ErrExists = errors.New("already exists")
	// ErrConflict: what is there forbids it.
	ErrConflict = errors.New("conflict")
)

// BatchID names a batch, so that its outcome can be asked for later. It is random.
type BatchID [16]byte

// Batch is one group commit. An append only inserts.
type Batch struct {
	ID BatchID
	// At is the time of the commit by the owner's clock, the same in every run.
	At uint64
	// Commits are the next commit numbers of the shards touched, one each.
	Commits []Commit
	Runs    []Run
	Keys    []Key
	// Marks move a producer's position where no record of Runs does: a message that was a duplicate
	// by its key.
	Marks []Mark
	// Scheduled are kept until a batch takes them away again by Removed.
	Scheduled []Scheduled
	Removed   []ScheduledID
	// Letters are dead letters that the batch publishes again, and removes.
	Letters []uint64
	// Copied are dead letters whose copies the batch appends.
	Copied []uint64
	// Kept take the place of what their topics kept, and Unkept are kept no longer.
	Kept   []Kept
	Unkept []Kept
}

// Commit numbers what is committed in one shard: 1, 2, 3, …
type Commit struct {
	Shard  int
	Number uint64
}

// Run is a contiguous piece of one topic's log, written by one batch. Several runs of a batch may
// be of one topic.
type Run struct {
	Shard  int
	Commit uint64
	Topic  string
	Epoch  uint64
	// First seq; the run ends with First + N - 1.
	First uint64
	N     int
	At    uint64
	Class Class
	// Packed records; see package run.
	Packed []byte
}

// Last seq of the run.
func (r *Run) Last() uint64 { return r.First + uint64(r.N) - 1 }

// KeyHash stands for a topic and a dedupe key.
type KeyHash [16]byte

// Key is a dedupe key that was used, and what came of it. The same hash may be committed again once
// the earlier one's Until has passed; the greatest Until counts.
type Key struct {
	Shard       int
	Hash        KeyHash
	Epoch, Seq  uint64
	MessageID   [16]byte
	PublishedAt uint64
	// Until says how long it is remembered; Class follows from the window (KeyClassFor).
	Until uint64
	Class KeyClass
}

// ProducerID of an ordered producer.
type ProducerID [16]byte

// Producer is the position of an ordered producer in one topic: the last number taken, and the seq
// that it got.
type Producer struct {
	Shard       int
	Topic       string
	ID          ProducerID
	ProducerSeq uint64
	Epoch, Seq  uint64
	At          uint64
}

// Mark is a Producer position written by a commit.
type Mark struct {
	Commit uint64
	Producer
}

// Shard is what is known of a shard: its base epoch, below which all is void; the epoch of topics
// that begin from now on, where topics were forgotten since the base epoch began (0: none was, and
// it is the base epoch); the last commit that the checkpoint covers; and the time from which on no
// position of a producer was forgotten (0: none ever was).
type Shard struct {
	Shard  int
	Epoch  uint64
	Born   uint64
	Commit uint64
	Forgot uint64
}

// Newest is the epoch of topics that begin from now on: none is later.
func (s *Shard) Newest() uint64 { return max(s.Epoch, s.Born) }

// Topic is what is known of a topic: its head, and the lowest seq that may be retained (never
// lowered under an epoch; at least 1). Topics nobody published to are not told. Head 0: it is
// forgotten, with all that was under earlier epochs.
type Topic struct {
	Shard        int
	Topic        string
	Epoch        uint64
	Head, Oldest uint64
}

// Kept is the message that a topic keeps beyond its retention, its newest one.
type Kept struct {
	Shard      int
	Topic      string
	Epoch, Seq uint64
	// At is the time of its commit; Until is when it expires, 0: never.
	At, Until uint64
	// Packed is a run of this one record; nil where it is not needed.
	Packed []byte
}

// SilentTopic is what is stored of a topic, and when that changed last.
type SilentTopic struct {
	Topic
	At uint64
}

// Checkpoint holds what changed since the last one. Shards.Commit is covered by Topics and
// Producers of this checkpoint and earlier ones, but for positions of producers whose At is before
// the shard's Forgot: those are not loaded again, and are deleted some time.
//
// One with topics of head 0 forgets them. It has their shard with a Born that is later than all
// epochs that they had, and is stored as a whole or not at all.
type Checkpoint struct {
	Shards    []Shard
	Topics    []Topic
	Producers []Producer
	// Unkept are kept no longer, unless their topics keep another message by now.
	Unkept []Kept
}
