package store

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// inDatabase asks a database for one number.
func inDatabase(t *testing.T, url, sql string, args ...any) (n int) {
	t.Helper()
	conn, err := pgx.Connect(within(t), url)
	need(t, err)
	defer func() { need(t, conn.Close(context.Background())) }()
	need(t, conn.QueryRow(within(t), sql, args...).Scan(&n))
	return n
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

const rowsOf = `SELECT (SELECT count(*) FROM pushmesh.log WHERE shard = $1) + (SELECT count(*) FROM pushmesh.topic WHERE shard = $1)
	+ (SELECT count(*) FROM pushmesh.key_short WHERE shard = $1) + (SELECT count(*) FROM pushmesh.scheduled WHERE shard = $1)`

// ordered is a message of an ordered producer, with a dedupe key.
func ordered(ref uint64, name, body string) *meshv1.AppendItem {
	it := item(ref, name, body)
	it.ProducerId, it.ProducerSeq, it.DedupeKey = []byte("the only producer")[:16], ref, fmt.Sprint("key ", ref)
	return it
}

// taken appends one message, as often as it is refused with a time to come back.
func taken(t *testing.T, c meshv1.StoreServiceClient, it *meshv1.AppendItem) (r *meshv1.AppendResult, refusals int) {
	t.Helper()
	eventually(t, "the message is taken", func() bool {
		r = appendAll(t, c, it)[it.GetRef()]
		switch r.GetCode() {
		case wirev1.Code_CODE_OK:
			return true
		case wirev1.Code_CODE_UNAVAILABLE, wirev1.Code_CODE_CONFLICT: // the owner is changing
			refusals++
			return false
		}
		t.Fatalf("%v", r)
		return false
	})
	return r, refusals
}

// A shard moves to another server while its store runs and is published to; its log, heads, keys,
// producers and scheduled messages are there afterwards, and at home no more. It moves back, too.
func TestAShardMovesToAnotherServer(t *testing.T) {
	t.Parallel()
	home, other := pgtest.URL(t), pgtest.New(t).URL()
	others := map[string]string{"b": other}
	st := serving(t, Settings{ID: "s1", DB: home, ShardDBs: others, Standalone: true, LogLevel: "error"})
	c := dial(t, st.Addr())
	const name = "room/moved"
	shard := topic.Shard(name)
	next := uint64(1)
	publish := func() (refusals int) {
		r, refusals := taken(t, c, ordered(next, name, fmt.Sprint(next)))
		if r.GetSeq() != next || r.GetDuplicate() {
			t.Fatalf("message %d: %v after %d refusals", next, r, refusals)
		}
		next++
		return refusals
	}
	for range 50 {
		publish()
	}
	later := item(1000, name, "scheduled")
	later.DeliverAt = uint64(time.Now().Add(365 * 24 * time.Hour).UnixMicro())
	if r, _ := taken(t, c, later); !r.GetScheduled() {
		t.Fatalf("scheduled: %v", r)
	}
	for round, move := range []struct{ to, at, from string }{{"b", other, home}, {"home", home, other}, {"b", other, home}} {
		moved := make(chan error, 1)
		go func() {
			err := MoveShard(within(t), home, others, shard, shard, move.to, quiet())
			for late(err) {
				err = MoveShard(within(t), home, others, shard, shard, move.to, quiet())
			}
			moved <- err
		}()
		refusals, ended := 0, false
		for !ended {
			select {
			case err := <-moved:
				need(t, err)
				ended = true
			default:
				refusals += publish()
			}
		}
		for range 10 {
			refusals += publish()
		}
		t.Logf("to %s: %d messages in the log, %d refusals on the way", move.to, next-1, refusals)
		if n := inDatabase(t, move.from, rowsOf, shard); n != 0 {
			t.Errorf("round %d: %d rows stayed behind", round, n)
		}
		if n := inDatabase(t, move.at, `SELECT coalesce(max(last_seq), 0) FROM pushmesh.log WHERE shard = $1`, shard); n != int(next-1) {
			t.Errorf("round %d: the log in %s ends at %d of %d", round, move.to, n, next-1)
		}
		if n := inDatabase(t, move.at, `SELECT count(*) FROM pushmesh.scheduled WHERE shard = $1`, shard); n != 1 {
			t.Errorf("round %d: %d scheduled messages", round, n)
		}
		all, _, _ := readAll(t, c, &meshv1.ReadLogRequest{Topic: name})
		for i, rec := range all {
			if rec.GetSeq() != uint64(i+1) || string(rec.GetBody()) != fmt.Sprint(i+1) {
				t.Fatalf("round %d: record %d is %d %s", round, i+1, rec.GetSeq(), rec.GetBody())
			}
		}
		if len(all) != int(next-1) {
			t.Errorf("round %d: %d records of %d", round, len(all), next-1)
		}
		again := item(2000, name, "again")
		again.DedupeKey = "key 7"
		if r, _ := taken(t, c, again); !r.GetDuplicate() || r.GetSeq() != 7 {
			t.Errorf("round %d: a key from before the move: %v", round, r)
		}
		if r, _ := taken(t, c, ordered(9, name, "again")); !r.GetDuplicate() {
			t.Errorf("round %d: a producer's number from before the move: %v", round, r)
		}
	}
	if r, _ := taken(t, c, item(1, "room/stayed", "x")); r.GetSeq() != 1 {
		t.Errorf("another shard: %v", r)
	}
	if n := inDatabase(t, home, `SELECT count(*) FROM pushmesh.log WHERE topic = 'room/stayed'`); n != 1 {
		t.Errorf("another shard's log: %d rows at home", n)
	}
}

// Wherever a move was cut off, doing it again ends it, and nobody takes the shard in between.
func TestAnInterruptedMoveIsDoneAgain(t *testing.T) {
	t.Parallel()
	home, other := pgtest.URL(t), pgtest.URL(t)
	others := map[string]string{"b": other}
	const name = "room/moved"
	shard := topic.Shard(name)
	start := func() (*Store, meshv1.StoreServiceClient) {
		st := started(t, Settings{ID: "s1", DB: home, ShardDBs: others, Standalone: true, LogLevel: "error"})
		return st, dial(t, st.Addr())
	}
	st, c := start()
	taken(t, c, item(1, name, "1"))
	need(t, st.Stop(within(t)))
	moving := `INSERT INTO pushmesh.placement VALUES ($1, 'home', true) ON CONFLICT (shard) DO UPDATE SET database = 'home', moving = true`
	for i, cut := range []func(){
		func() { pgtest.Exec(t, home, moving, shard) }, // before anything
		func() { // after home gave it up
			pgtest.Exec(t, home, moving, shard)
			pgtest.Exec(t, home, `UPDATE pushmesh.shard SET held = false WHERE shard = $1`, shard)
		},
		func() { // after the copy, before the map
			moveShard(t, home, others, name, "b")
			pgtest.Exec(t, home, moving, shard)
			pgtest.Exec(t, home, `INSERT INTO pushmesh.topic VALUES ($1, 'room/left', 1, 1, 1)`, shard)
		},
	} {
		moveShard(t, home, others, name, "home")
		cut()
		st, c := start()
		if r := appendAll(t, c, item(2, name, "no"))[2]; r.GetCode() != wirev1.Code_CODE_CONFLICT && r.GetCode() != wirev1.Code_CODE_UNAVAILABLE {
			t.Errorf("cut %d: a shard on the move takes %v", i, r)
		}
		moveShard(t, home, others, name, "b")
		r, _ := taken(t, c, item(3, name, fmt.Sprint(i+2)))
		if r.GetSeq() != uint64(i+2) {
			t.Errorf("cut %d: %v", i, r)
		}
		need(t, st.Stop(within(t)))
		if n := inDatabase(t, home, rowsOf, shard); n != 0 {
			t.Errorf("cut %d: %d rows stayed behind", i, n)
		}
	}
	// An old map does no harm: the database knows what it holds.
	pgtest.Exec(t, home, `DELETE FROM pushmesh.placement`)
	st, c = start()
	if r := appendAll(t, c, item(9, name, "no"))[9]; r.GetCode() == wirev1.Code_CODE_OK {
		t.Errorf("home took a message of a shard that it does not hold: %v", r)
	}
	need(t, st.Stop(within(t)))
}

// A store that starts while one of its databases is slow waits for it.
func TestAStartWaitsForEveryDatabase(t *testing.T) {
	t.Parallel()
	home, other := pgtest.URL(t), pgtest.URL(t)
	others := map[string]string{"b": other}
	moveShard(t, home, others, "room/there", "b")
	conn, err := pgx.Connect(within(t), other)
	need(t, err)
	defer func() { need(t, conn.Close(context.Background())) }()
	_, err = conn.Exec(within(t), `BEGIN; LOCK TABLE pushmesh.database`)
	need(t, err)
	st := make(chan *Store, 1)
	go func() {
		defer close(st) // also where it did not start
		st <- started(t, Settings{ID: "s1", DB: home, ShardDBs: others, Standalone: true, LogLevel: "error"})
	}()
	waiting := map[int]bool{}
	eventually(t, "the store has asked twice", func() bool {
		waiting[inDatabase(t, other, `SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)] = true
		return len(waiting) > 2 // and nobody
	})
	_, err = conn.Exec(within(t), `ROLLBACK`)
	need(t, err)
	begun := <-st
	if begun == nil {
		t.Fatal("it did not wait")
	}
	taken(t, dial(t, begun.Addr()), item(1, "room/there", "x"))
	need(t, begun.Stop(within(t)))
}

func TestMixedUpDatabasesAreRefused(t *testing.T) {
	home, other := pgtest.URL(t), pgtest.URL(t)
	move := func(db, b string) (err error) {
		err = MoveShard(within(t), db, map[string]string{"b": b}, 1, 1, "b", quiet())
		for late(err) {
			err = MoveShard(within(t), db, map[string]string{"b": b}, 1, 1, "b", quiet())
		}
		return err
	}
	need(t, move(home, other))
	for _, tt := range []struct{ db, b, want string }{
		{other, home, `is the mesh's database "b", not "home"`},
		{home, home, `is the mesh's database "home", not "b"`},
	} {
		if err := move(tt.db, tt.b); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
	if err := MoveShard(within(t), home, map[string]string{"b": other}, 1, 1, "c", quiet()); err == nil {
		t.Error("a database that nobody named")
	}
	if err := MoveShard(within(t), home, map[string]string{"b": other}, 1000, 1024, "b", quiet()); err == nil {
		t.Error("a shard that is none")
	}
}

// Two stores share the shards of two servers; one dies, and the other one takes all of them; a
// server dies, and what lies on the other one goes on.
func TestTwoStoresOnTwoServers(t *testing.T) {
	t.Parallel()
	nats, home, server := natsServer(t), pgtest.URL(t), pgtest.New(t)
	others := map[string]string{"b": server.URL()}
	const here, there = "room/here", "room/there"
	moveShard(t, home, others, there, "b")
	process, first := firstStore(t, nats.ClientURL(), home+" "+server.URL())
	for _, name := range []string{here, there} {
		if r, _ := taken(t, first, item(1, name, "x")); r.GetSeq() != 1 {
			t.Fatalf("%s: %v", name, r)
		}
	}
	st := serving(t, Settings{ID: "second", DB: home, ShardDBs: others, NATS: nats.ClientURL(), LogLevel: "error"})
	second := dial(t, st.Addr())
	eventually(t, "the shards are divided", func() bool {
		return shares(t, second)["first"] == topic.Shards/2 && shares(t, second)["second"] == topic.Shards/2
	})
	need(t, process.Process.Kill())
	_ = process.Wait() // it was killed
	eventually(t, "the second store owns everything", func() bool { return shares(t, second)["second"] == topic.Shards })
	for _, name := range []string{here, there} {
		if r, _ := taken(t, second, item(1, name, "x")); r.GetSeq() != 2 {
			t.Errorf("%s after the takeover: %v", name, r)
		}
	}
	need(t, server.Kill())
	eventually(t, "the other server's shards are refused", func() bool { return one(t, second, there).GetCode() == wirev1.Code_CODE_UNAVAILABLE })
	for want := uint64(3); want < 6; want++ {
		if r, _ := taken(t, second, item(1, here, "x")); r.GetSeq() != want {
			t.Errorf("with the other server away: %v", r)
		}
	}
	need(t, server.Restart())
	r, _ := taken(t, second, item(1, there, "3"))
	if r.GetSeq() != 3 {
		t.Errorf("with the other server back: %v", r)
	}
}

// Letters are in one database, home, wherever their topics are: an id is one letter's. Their copies
// and replays lie where the topics do, and are appended once.
func TestDeadLettersOfSeveralDatabases(t *testing.T) {
	t.Parallel()
	home, other := pgtest.URL(t), pgtest.New(t).URL()
	others := map[string]string{"b": other}
	const here, there = "room/here", "user/there"
	for _, name := range []string{there, "$dead/user"} {
		moveShard(t, home, others, name, "b")
	}
	for _, name := range []string{here, "$dead/room"} {
		if shard := topic.Shard(name); shard == topic.Shard(there) || shard == topic.Shard("$dead/user") {
			t.Fatalf("%s has moved as well", name)
		}
	}
	st := serving(t, Settings{ID: "s1", DB: home, ShardDBs: others, Standalone: true, LogLevel: "error"})
	c := dial(t, st.Addr())
	a, err := c.AttachSession(within(t), &meshv1.AttachSessionRequest{User: "u", Name: "s", EdgeId: "e1", ConnectionId: 1})
	need(t, err)
	var letters []*meshv1.DeadLetter
	for seq := uint64(1); seq <= 3; seq++ {
		for _, name := range []string{here, there} {
			letters = append(letters, &meshv1.DeadLetter{Topic: name, Epoch: 1, Seq: seq, Reason: wirev1.Code_CODE_EXPIRED, At: 7})
		}
	}
	w, err := c.WriteCursors(within(t), &meshv1.WriteCursorsRequest{Writes: []*meshv1.SessionWrite{{User: "u", Name: "s", Generation: a.GetGeneration(), DeadLetters: letters}}})
	need(t, err)
	if w.GetCodes()[0] != wirev1.Code_CODE_OK {
		t.Fatalf("letters: %v", w)
	}
	eventually(t, "all are copied", func() bool {
		return inDatabase(t, home, `SELECT count(*) FROM pushmesh.dead_letter WHERE copied`) == len(letters)
	})
	for _, name := range []string{"$dead/room", "$dead/user"} {
		if all, _, _ := readAll(t, c, &meshv1.ReadLogRequest{Topic: name}); len(all) != 3 {
			t.Errorf("%d copies in %s, want 3", len(all), name)
		}
	}
	if n := inDatabase(t, other, `SELECT count(*) FROM pushmesh.dead_letter`); n != 0 {
		t.Errorf("%d letters elsewhere than at home", n)
	}
	list := func() map[uint64]string {
		t.Helper()
		resp, err := c.ListDeadLetters(within(t), &meshv1.ListDeadLettersRequest{})
		need(t, err)
		all := map[uint64]string{}
		for _, l := range resp.GetDeadLetters() {
			all[l.GetId()] = fmt.Sprint(l.GetTopic(), " ", l.GetSeq())
		}
		return all
	}
	all := list()
	if len(all) != len(letters) {
		t.Fatalf("letters by id: %v", all)
	}
	// As a router replays and discards: what an append elsewhere names is not removed by it, and no
	// other letter is.
	replay, discard := uint64(0), uint64(0)
	for id, name := range all {
		switch name {
		case there + " 2":
			replay = id
		case here + " 3":
			discard = id
		}
	}
	it := item(1, there, "again")
	it.DeadLetter = replay
	it.DedupeKey, it.DedupeWindowS = "replay", 3600
	for range 2 {
		r, _ := taken(t, c, it)
		if r.GetSeq() != 1 {
			t.Errorf("replay: %v", r)
		}
	}
	n, err := c.DiscardDeadLetters(within(t), &meshv1.DiscardDeadLettersRequest{Ids: []uint64{replay, discard}})
	need(t, err)
	delete(all, replay)
	delete(all, discard)
	if left := list(); n.GetDiscarded() != 2 || !maps.Equal(left, all) {
		t.Errorf("discarded %d, left %v, want %v", n.GetDiscarded(), left, all)
	}
}
