// Package backendtest is the suite that every backend.Backend passes.
package backendtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest/modeltest"
)

// Database opens one database, the same at every call. A test has it open once at a time. Run needs
// backends that are Formers, too.
type Database func(t *testing.T) backend.Backend

// suiteTest is one of the suite; docs/conformance.md says what it proves.
type suiteTest struct {
	name string
	run  func(t *testing.T, db Database)
}

// backendTests are those of the backend itself.
var backendTests = []suiteTest{
	{"Epochs", testEpochs},
	{"CommitAndLoad", testCommitAndLoad},
	{"CommitIsAtomic", testCommitIsAtomic},
	{"Committed", testCommitted},
	{"Checkpoint", testCheckpoint},
	{"CheckpointNeverLowers", testCheckpointNeverLowers},
	{"CheckpointHistory", testCheckpointHistory},
	{"FoldsBesideTakeovers", testFoldsBesideTakeovers},
	{"TopicsForgotten", testTopicsForgotten},
	{"SilentTopics", testSilentTopics},
	{"ReopenAfterAbruptClose", testReopen},
	{"ReadRuns", testReadRuns},
	{"ReadRunsAcrossSlices", testReadAcrossSlices},
	{"Keys", testKeys},
	{"Oldest", testOldest},
	{"DropSlices", testDropSlices},
	{"OwnershipIsExclusive", testOwnershipExclusive},
	{"Takeover", testTakeover},
	{"FenceOneIncarnation", testFenceIncarnation},
	{"ReleaseAndClose", testReleaseAndClose},
	{"Holds", testHolds},
	{"NewEpoch", testNewEpoch},
	{"SessionGenerations", testSessionGenerations},
	{"SessionCursors", testSessionCursors},
	{"CursorFolds", testCursorFolds},
	{"CursorsOfTheDeleted", testCursorsOfTheDeleted},
	{"CursorHistory", testCursorHistory},
	{"SessionLifetime", testSessionLifetime},
	{"SessionEdges", testSessionEdges},
	{"EdgeInSlices", testEdgeInSlices},
	{"SessionPages", testSessionPages},
	{"SessionQuota", testSessionQuota},
	{"SessionQuotaReborn", testSessionQuotaReborn},
	{"EmptySessions", testEmptySessions},
	{"SessionsOfAFormerStore", testSessionsOfAFormerStore},
	{"SilentEdge", testSilentEdge},
	{"SessionAdopted", testSessionAdopted},
	{"AdoptionsRefused", testAdoptionsRefused},
	{"AdoptionsRace", testAdoptionsRace},
	{"SessionSizes", testSessionSizes},
	{"DeadLettersOnce", testDeadLettersOnce},
	{"DeadLetterList", testDeadLetterList},
	{"UncopiedLetters", testUncopiedLetters},
	{"Namespaces", testNamespaces},
	{"Revocations", testRevocations},
	{"RevocationsFollowed", testRevocationsFollowed},
	{"RoomForRevocations", testRoomForRevocations},
	{"Teams", testTeams},
	{"TeamsOfAUser", testTeamsOfAUser},
	{"RemovedTeamsAreForgotten", testRemovedTeamsAreForgotten},
	{"TeamsFollowed", testTeamsFollowed},
	{"FollowedIntoANewEpoch", testFollowedIntoANewEpoch},
	{"Models", func(t *testing.T, db Database) { modeltest.Models(t, db) }},
	{"ModelsDeleted", func(t *testing.T, db Database) { modeltest.ModelsDeleted(t, db) }},
	{"ModelBounds", func(t *testing.T, db Database) { modeltest.ModelBounds(t, db) }},
	{"ModelsTogether", func(t *testing.T, db Database) { modeltest.ModelsTogether(t, db) }},
	{"Scheduled", testScheduled},
	{"ScheduledSlices", testScheduledSlices},
	{"ClaimPlaces", testClaimPlaces},
	{"ClaimsAreExclusive", testClaimsAreExclusive},
	{"ClaimsFenced", testClaimsFenced},
	{"ClaimsRace", testClaimsRace},
	{"ClaimsClock", testClaimsClock},
	{"ClaimsOfTheFenced", testClaimsOfTheFenced},
	{"ClaimsNewEpoch", testClaimsNewEpoch},
	{"Mesh", testMesh},
}

// Run runs the suite. fresh makes a new, migrated, empty database for each test; what Database
// returned was closed by the test, or is closed by t.Cleanup of fresh's own (closing twice must be
// allowed).
func Run(t *testing.T, fresh func(t *testing.T) Database) {
	runAll(t, slices.Concat(backendTests, logTests), fresh)
}

// RunLog runs those of the suite that are about the log above the backend.
func RunLog(t *testing.T, fresh func(t *testing.T) Database) { runAll(t, logTests, fresh) }

// runAll has tests wait beside each other for their databases, of which each has one of its own.
func runAll(t *testing.T, tests []suiteTest, fresh func(t *testing.T) Database) {
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, fresh(t))
		})
	}
}

// The tests' clock begins here; what the database's own clock says must not matter.
var begin = uint64(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMicro())

func after(d time.Duration) uint64 { return begin + uint64(d.Microseconds()) }

// Patience is how long a test waits for what must come, on a machine as busy as may be.
const Patience = 2 * time.Minute

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

func need(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func owner(id string) backend.Owner {
	return backend.Owner{StoreID: id, Incarnation: 7, Address: id + ":7403"}
}

func writer(t *testing.T, b backend.Backend, o backend.Owner, shards ...int) backend.Writer {
	t.Helper()
	ctx := within(t)
	w, err := b.OpenWriter(ctx, o)
	need(t, err)
	t.Cleanup(func() { _ = w.Close() })
	got, err := w.TakeShards(ctx, shards)
	need(t, err)
	if fmt.Sprint(got) != fmt.Sprint(shards) {
		t.Fatalf("claimed %v, want %v", got, shards)
	}
	return w
}

func closeNow(t *testing.T, c interface{ Close() error }) {
	t.Helper()
	need(t, c.Close())
}

func batchID() (id backend.BatchID) {
	_, _ = rand.Read(id[:])
	return id
}

// state is a Loader that keeps everything.
type state struct {
	shards    map[int]backend.Shard
	topics    map[string]backend.Topic
	producers map[string]backend.Producer
	runs      []backend.Run
	covered   []backend.Run
	kept      map[string]backend.Kept
}

func (s *state) LoadShard(x backend.Shard) { s.shards[x.Shard] = x }
func (s *state) LoadRun(x backend.Run)     { s.runs = append(s.runs, x) }
func (s *state) LoadMark(x backend.Mark)   { s.LoadProducer(x.Producer) }
func (s *state) LoadKept(x backend.Kept)   { s.kept[x.Topic] = x }
func (s *state) LoadCovered(x backend.Run) { s.covered = append(s.covered, x) }

// LoadTopic keeps the latest of what it is told of one topic.
func (s *state) LoadTopic(x backend.Topic) {
	x.Topic = strings.Clone(x.Topic)
	have := s.topics[x.Topic]
	switch {
	case have.Epoch > x.Epoch:
		return
	case have.Epoch == x.Epoch:
		x.Head, x.Oldest = max(x.Head, have.Head), max(x.Oldest, have.Oldest)
	}
	s.topics[x.Topic] = x
}

// forgotten takes away the topics that are.
func (s *state) forgotten() {
	maps.DeleteFunc(s.topics, func(_ string, x backend.Topic) bool { return x.Head == 0 })
}

func (s *state) LoadProducer(x backend.Producer) {
	key := producerKey(x)
	if have, ok := s.producers[key]; !ok || have.Epoch < x.Epoch || have.Epoch == x.Epoch && have.ProducerSeq < x.ProducerSeq {
		s.producers[key] = x
	}
}

func producerKey(x backend.Producer) string { return fmt.Sprintf("%s %x", x.Topic, x.ID) }

func load(t *testing.T, w backend.Writer, shards ...int) *state {
	t.Helper()
	s := &state{shards: map[int]backend.Shard{}, topics: map[string]backend.Topic{}, producers: map[string]backend.Producer{}, kept: map[string]backend.Kept{}}
	need(t, w.Load(within(t), shards, s))
	s.forgotten()
	for _, shard := range shards {
		if s.shards[shard].Epoch == 0 {
			t.Fatalf("shard %d was not told, or has no epoch", shard)
		}
	}
	return s
}

// oneRun makes a batch with one run of n records.
func oneRun(shard int, commit, epoch uint64, topic string, first uint64, n int, at uint64, class backend.Class) *backend.Batch {
	return &backend.Batch{
		ID: batchID(), At: at, Commits: []backend.Commit{{Shard: shard, Number: commit}},
		Runs: []backend.Run{{
			Shard: shard, Commit: commit, Topic: topic, Epoch: epoch, First: first, N: n, At: at, Class: class,
			Packed: []byte(fmt.Sprintf("%s/%d+%d", topic, first, n)),
		}},
	}
}
