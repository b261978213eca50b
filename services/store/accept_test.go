package store

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	sameEpoch = pushmeshv1.AcceptServerRequest_EPOCH_SAME
	newEpoch  = pushmeshv1.AcceptServerRequest_EPOCH_NEW
)

func accept(t *testing.T, c meshv1.StoreServiceClient, epoch pushmeshv1.AcceptServerRequest_Epoch, database string) (*pushmeshv1.AcceptServerResponse, error) {
	t.Helper()
	resp, err := c.AcceptServer(within(t), &meshv1.StoreServiceAcceptServerRequest{Request: &pushmeshv1.AcceptServerRequest{Epoch: epoch, Database: database}})
	return resp.GetResponse(), err
}

// refused waits until a store says that it does not trust the server.
func refused(t *testing.T, st *Store) {
	t.Helper()
	eventually(t, "the store says what is to be done", func() bool { return strings.Contains(readyz(t, st), "accept-server") })
}

// backedUp copies a server's files, and returns what puts the copy in their place.
func backedUp(t *testing.T, s *pgserver.Server) (restore func()) {
	t.Helper()
	data := filepath.Join(s.Dir(), "data")
	copied := data + ".copy"
	need(t, s.Stop())
	// #nosec G204 -- all of it is ours
	if out, err := exec.CommandContext(within(t), "cp", "-a", data, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	need(t, s.Restart())
	return func() {
		t.Helper()
		need(t, errors.Join(s.Stop(), os.RemoveAll(data), os.Rename(copied, data)))
		need(t, s.Promote()) // as every restore ends
	}
}

// A store that runs is told that its promoted server has everything, says what it did, and goes on
// where it stood.
func TestARunningStoreAcceptsAPromotedServer(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	st, c := alone(t, server.URL())
	first, _ := taken(t, c, item(1, "room/1", "a"))
	if _, err := accept(t, c, sameEpoch, ""); code.Of(err) != wirev1.Code_CODE_CONFLICT || !strings.Contains(err.Error(), "nothing to accept") {
		t.Errorf("where nothing is to be accepted: %v", err)
	}
	need(t, server.Promote())
	refused(t, st)
	if _, err := accept(t, c, sameEpoch, "b"); code.Of(err) != wirev1.Code_CODE_NOT_FOUND || !strings.Contains(err.Error(), "home") {
		t.Errorf("a database that is not there: %v", err)
	}
	if _, err := accept(t, c, 0, ""); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("without a word about what is missing: %v", err)
	}
	done, err := accept(t, c, sameEpoch, "home")
	need(t, err)
	if done.GetDatabase() != "home" || done.GetStoreId() != "s1" || done.GetBefore().GetSystem() == 0 || done.GetBefore().GetSystem() != done.GetAfter().GetSystem() ||
		done.GetBefore().GetTimeline() != 1 || done.GetAfter().GetTimeline() != 2 || done.GetEpoch() != 0 || done.GetShards() != 0 {
		t.Errorf("it says %v", done)
	}
	next, _ := taken(t, c, item(2, "room/1", "b"))
	if next.GetSeq() != 2 || next.GetEpoch() != first.GetEpoch() {
		t.Errorf("the log goes on with %v after %v", next, first)
	}
}

// floorOf is how far a session's cursor of a topic is.
func floorOf(t *testing.T, c meshv1.StoreServiceClient, user, name string) (floor, epoch uint64) {
	t.Helper()
	got, err := c.GetSession(within(t), &meshv1.GetSessionRequest{User: user, Name: "s"})
	need(t, err)
	for _, cursor := range got.GetSession().GetCursors() {
		if cursor.GetTopic() == name {
			floor, epoch = cursor.GetFloor(), cursor.GetEpoch()
		}
	}
	return floor, epoch
}

// A store that runs while its database is put back to an earlier time goes on with a new epoch, and
// by nothing that it remembers of what was lost: neither numbers of messages nor pages of cursors,
// whose ids come again.
func TestARunningStoreForgetsWhatWasLost(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	st, c := alone(t, server.URL())
	const topicName = "room/1"
	attach := func(user string) uint64 {
		t.Helper()
		a, err := c.AttachSession(within(t), &meshv1.AttachSessionRequest{User: user, Name: "s", EdgeId: "e"})
		need(t, err)
		return a.GetGeneration()
	}
	ack := func(user string, generation, epoch, floor uint64) {
		t.Helper()
		w, err := c.WriteCursors(within(t), &meshv1.WriteCursorsRequest{Writes: []*meshv1.SessionWrite{
			{User: user, Name: "s", Generation: generation, Cursors: []*meshv1.SessionCursor{{Topic: topicName, Epoch: epoch, Floor: floor}}},
		}})
		need(t, err)
		if w.GetCodes()[0] != wirev1.Code_CODE_OK {
			t.Fatalf("a cursor of %s: %v", user, w.GetCodes())
		}
	}
	old, _ := taken(t, c, item(1, topicName, "kept"))
	restore := backedUp(t, server)
	users := []string{"ann", "bob", "cat", "dan"}
	for i, user := range users {
		r, _ := taken(t, c, item(uint64(i+2), topicName, "lost"))
		ack(user, attach(user), old.GetEpoch(), r.GetSeq())
		if floor, _ := floorOf(t, c, user, topicName); floor != r.GetSeq() { // which reads the page
			t.Fatalf("%s is at %d, want %d", user, floor, r.GetSeq())
		}
	}
	restore()
	refused(t, st)
	done, err := accept(t, c, newEpoch, "")
	need(t, err)
	if done.GetShards() != topic.Shards || done.GetEpoch() <= old.GetEpoch() || done.GetAfter().GetTimeline() != 2 {
		t.Errorf("it says %v", done)
	}
	again, _ := taken(t, c, item(100, topicName, "new"))
	if again.GetSeq() != 1 || again.GetEpoch() != done.GetEpoch() {
		t.Errorf("the new log begins with %v, want epoch %d", again, done.GetEpoch())
	}
	for _, user := range users {
		ack(user, attach(user), again.GetEpoch(), 1)
		if floor, epoch := floorOf(t, c, user, topicName); floor != 1 || epoch != again.GetEpoch() {
			t.Errorf("%s is at %d of epoch %d, want 1 of %d", user, floor, epoch, again.GetEpoch())
		}
	}
}

// Of several databases one is named, and the others are left as they are.
func TestOneOfSeveralDatabasesIsAccepted(t *testing.T) {
	t.Parallel()
	home, other := pgtest.New(t), pgtest.New(t)
	others := map[string]string{"b": other.URL()}
	const there = "room/there"
	here := ""
	for i := range topic.Shards {
		if here = fmt.Sprint("room/", i); topic.Shard(here) != topic.Shard(there) {
			break
		}
	}
	moveShard(t, home.URL(), others, there, "b")
	st := serving(t, Settings{ID: "s1", DB: home.URL(), ShardDBs: others, Standalone: true, LogLevel: "error"})
	c := dial(t, st.Addr())
	away, _ := taken(t, c, item(1, there, "a"))
	stays, _ := taken(t, c, item(2, here, "a"))
	need(t, other.Promote())
	refused(t, st)
	for database, want := range map[string]wirev1.Code{"": wirev1.Code_CODE_NOT_FOUND, "c": wirev1.Code_CODE_NOT_FOUND, "home": wirev1.Code_CODE_CONFLICT} {
		if _, err := accept(t, c, newEpoch, database); code.Of(err) != want || !strings.Contains(err.Error(), "home") {
			t.Errorf("database %q: %v, want %v", database, err, want)
		}
	}
	done, err := accept(t, c, newEpoch, "b")
	need(t, err)
	if done.GetDatabase() != "b" {
		t.Errorf("it says %v", done)
	}
	if r, _ := taken(t, c, item(3, there, "b")); r.GetSeq() != 1 || r.GetEpoch() <= away.GetEpoch() {
		t.Errorf("there the log begins with %v", r)
	}
	if r, _ := taken(t, c, item(4, here, "b")); r.GetSeq() != 2 || r.GetEpoch() != stays.GetEpoch() {
		t.Errorf("here the log goes on with %v", r)
	}
}

// A server that is set, while stores run, to lose what it has acknowledged gets no further appends
// until that is undone.
func TestAServerThatTurnsUnsafeGetsNoAppends(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	st, c := alone(t, server.URL())
	set := func(sql string) {
		t.Helper()
		pgtest.Exec(t, server.Superuser(), sql)
		pgtest.Exec(t, server.Superuser(), `SELECT pg_reload_conf()`)
	}
	ref := uint64(0)
	for _, setting := range []string{"synchronous_commit", "fsync", "full_page_writes"} {
		ref++
		taken(t, c, item(ref, "room/1", "x"))
		set("ALTER SYSTEM SET " + setting + " = off")
		eventually(t, "appends are refused", func() bool {
			ref++
			r := appendAll(t, c, item(ref, "room/1", "x"))[ref]
			return r.GetCode() == wirev1.Code_CODE_UNAVAILABLE && r.GetRetryAfterMs() > 0 && strings.Contains(r.GetError(), setting)
		})
		if ready := readyz(t, st); !strings.Contains(ready, setting) {
			t.Errorf("readiness says\n%s", ready)
		}
		set("ALTER SYSTEM RESET " + setting)
	}
	ref++
	taken(t, c, item(ref, "room/1", "x"))
}
