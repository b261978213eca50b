package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/log"
)

// point is the n-th time that a statement is sent.
type point struct {
	pgtest.Statement
	n int
}

// strike judges statements: it counts them, and has one meet its fate. The zero strike only counts.
type strike struct {
	at   point
	fate pgtest.Fate

	mu     sync.Mutex
	counts map[pgtest.Statement]int
	order  []pgtest.Statement
	struck bool
}

func (s *strike) judge(x pgtest.Statement) pgtest.Fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts[x]++; s.counts[x] == 1 {
		s.order = append(s.order, x)
	}
	if (point{x, s.counts[x]}) == s.at {
		s.struck = true
		return s.fate
	}
	return pgtest.Pass
}

// strikes are those at each point of a story that was counted: of statements that are repeated, the
// first time and the last.
func (s *strike) strikes() (all []*strike) {
	for _, fate := range pgtest.Fates {
		for _, x := range s.order {
			last := s.counts[x]
			switch parsed := strings.HasPrefix(x.SQL, "parse: "); {
			case parsed && fate != pgtest.Unsent:
				// what is only parsed has no effect that could be missed
				continue
			case x.SQL == "-- ping", fate == pgtest.Unheard:
				// as often as time allows; a wait of seconds each
				last = 1
			}
			for _, n := range slices.Compact([]int{1, last}) {
				all = append(all, &strike{at: point{x, n}, fate: fate, counts: map[pgtest.Statement]int{}})
			}
		}
	}
	return all
}

// story is what a store does with two shards of its own, while one statement fails: claims, loads,
// commits, checkpoints, a fold, and shards given back.
type story struct {
	url    string
	owner  backend.Owner
	shards []int
	topics []string
	// told is how many messages of each topic were acknowledged.
	told int
	d    *DB // its statements may fail
	log  *backendtest.Log
}

// Whatever statement of claims, loads, commits, checkpoints and folds fails, and however: all that
// was acknowledged is there, once and in order, whoever has the shards next; and while they are
// had, everybody can see by whom.
func TestWhateverStatementFails(t *testing.T) {
	t.Parallel()
	migrated := pgtest.URL(t)
	need(t, open(t, migrated).Close())
	count := &strike{counts: map[pgtest.Statement]int{}}
	// Nothing hangs here, and a slow machine is no fault: its consequences would be statements that
	// no other telling has.
	newTelling(t, pgtest.Copy(t, migrated)).tell(t, count, backendtest.Patience)
	strikes := count.strikes()
	if len(strikes) < 100 {
		t.Fatalf("%d strikes can't be all: %v", len(strikes), count.order)
	}
	strikes = sampled(t, strikes)
	const parts = 4 // side by side: they mostly wait
	for part := range parts {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			on, missed := newTelling(t, pgtest.Copy(t, migrated)), 0
			for i := part; i < len(strikes); i += parts {
				s := strikes[i]
				on.tell(t, s, 500*time.Millisecond) // what nobody hears of takes that long
				if !s.struck {
					missed++
					t.Logf("not met: %v the %d. time: %s on %s", s.fate, s.at.n, s.at.SQL, s.at.App)
				}
				if t.Failed() {
					t.Fatalf("%v the %d. time: %s on %s", s.fate, s.at.n, s.at.SQL, s.at.App)
				}
			}
			if missed > len(strikes)/parts/2 {
				// which statement comes how often is a matter of time, too
				t.Errorf("%d of %d statements were not met", missed, len(strikes)/parts)
			}
		})
	}
	t.Logf("%d faults", len(strikes))
}

// sampled is a third of all strikes, at random, so that a run takes a minute; PUSHMESH_WALK=all
// takes all, PUSHMESH_WALK=N those of a run that printed N.
func sampled(t *testing.T, all []*strike) []*strike {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	switch set := os.Getenv("PUSHMESH_WALK"); set {
	case "all":
		return all
	case "":
	default:
		var err error
		seed, err = strconv.ParseUint(set, 10, 64)
		need(t, err)
	}
	t.Logf("PUSHMESH_WALK=%d", seed)
	chosen := slices.Clone(all)
	// #nosec G404 -- repeatable
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	return chosen[:len(chosen)/3]
}

// telling is stories of one database, one after the other.
type telling struct {
	url     string
	healthy *DB
	topics  map[int][]string // names by shard
	next    int              // shard
}

func newTelling(t *testing.T, url string) *telling {
	t.Helper()
	d := open(t, url)
	clock := uint64(backendtest.NewClock().Now().UnixMicro())
	need(t, d.MakeSlices(t.Context(), clock))
	names := map[int][]string{}
	for i := range 16 * topic.Shards {
		name := fmt.Sprint("room/", i)
		names[topic.Shard(name)] = append(names[topic.Shard(name)], name)
	}
	return &telling{url: url, healthy: d, topics: names}
}

func (on *telling) tell(t *testing.T, fault *strike, patience time.Duration) {
	t.Helper()
	wire := &pgtest.Wire{}
	d := openWith(t, Config{URL: on.url, Dial: wire.Dial, Patience: patience})
	defer func() { need(t, d.Close()) }()
	shards := []int{on.next, on.next + 1}
	on.next += 2
	s := &story{
		url: on.url, owner: owner(fmt.Sprint("store-", shards[0])), shards: shards, d: d,
		topics: slices.Concat(on.topics[shards[0]][:2], on.topics[shards[1]][:2]),
	}
	wire.Judge(fault.judge)
	s.begin(t)
	wire.Judge(nil)
	// what the end left behind
	need(t, on.healthy.Fence(t.Context(), s.owner.StoreID, s.owner.Incarnation))
	s.check(t, on.healthy)
}

func (s *story) begin(t *testing.T) {
	t.Helper()
	s.log = backendtest.OpenLogOf(t, s.shards, s.d, s.owner, 1, backendtest.NewClock().Now)
	s.owned(t)
	s.publish(t, 3)
	s.log.Want(s.shards[:1]) // the other is given back, with a checkpoint
	tried(t, func() error {
		if owned := s.log.Owned(); !slices.Equal(owned, s.shards[:1]) {
			return fmt.Errorf("shards %v are owned, want %v", owned, s.shards[:1])
		}
		return nil
	})
	s.log.Want(s.shards)
	s.owned(t)
	s.publish(t, 2)
	need(t, s.fold(t.Context()))
	s.publish(t, 2)
	s.log.Close(t)
}

// fold goes on where one was cut off. One that hears nothing more waits for the end of its context.
func (s *story) fold(ctx context.Context) (err error) {
	for deadline := time.Now().Add(backendtest.Patience); time.Now().Before(deadline); {
		try, cancel := context.WithTimeout(ctx, 3*time.Second)
		err = s.d.FoldCheckpoints(try, backend.FoldAll)
		cancel()
		if err == nil {
			return nil
		}
		_ = s.d.Ping(ctx) // it finds out that the database is back
	}
	return err
}

// owned waits for the shards, and until the locks and the record both name this store, once for
// each shard. A fault right after the claim may come between.
func (s *story) owned(t *testing.T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.url)
	need(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	tried(t, func() error {
		s.log.WaitReady(t)
		var locked, recorded, both int
		need(t, conn.QueryRow(t.Context(), `
			WITH locked AS (SELECT objid::int AS shard, pid FROM pg_locks WHERE locktype = 'advisory' AND classid = $1 AND objsubid = 2 AND granted
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND objid::int = ANY($2)),
			recorded AS (SELECT shard, store_id, incarnation FROM pushmesh.owner WHERE shard = ANY($2) AND store_id = $3)
			SELECT (SELECT count(*) FROM locked), (SELECT count(*) FROM recorded),
				(SELECT count(*) FROM locked JOIN recorded USING (shard) JOIN pushmesh.writer AS w ON w.pid = locked.pid AND w.store_id = $3)`,
			uint32(log.LockClass), s.shards, s.owner.StoreID).Scan(&locked, &recorded, &both))
		if n := len(s.shards); locked != n || recorded != n || both != n {
			return fmt.Errorf("of %d shards owned, %d are locked, %d have their owner on record, %d both by the same store", n, locked, recorded, both)
		}
		return nil
	})
}

// tried again until it succeeds, for half a minute.
func tried(t *testing.T, f func() error) {
	t.Helper()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(backendtest.Patience / 4); ; <-again.C {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// publish has n messages acknowledged in each topic, in order, by an ordered producer in one topic
// of a shard and with dedupe keys in the other.
func (s *story) publish(t *testing.T, n int) {
	t.Helper()
	for range n {
		s.told++
		for i := range s.topics {
			item := s.item(i, s.told)
			tried(t, func() error {
				r := s.log.Append(t, item)[0]
				if r.GetCode() == wirev1.Code_CODE_OK && r.GetSeq() == uint64(s.told) {
					return nil
				}
				if !slices.Contains([]wirev1.Code{wirev1.Code_CODE_UNAVAILABLE, wirev1.Code_CODE_INTERNAL, wirev1.Code_CODE_CONFLICT}, r.GetCode()) {
					t.Fatalf("message %d of %s: %v", s.told, s.topics[i], r)
				}
				return fmt.Errorf("message %d of %s: %v", s.told, s.topics[i], r)
			})
		}
	}
}

func (s *story) item(topic, n int) *meshv1.AppendItem {
	item := backendtest.Item(s.topics[topic], fmt.Sprint(n))
	if topic%2 == 0 {
		item.ProducerId, item.ProducerSeq = bytes.Repeat([]byte{7}, 16), uint64(n)
	} else {
		item.DedupeKey = fmt.Sprint(n)
	}
	return item
}

// check reads everything through another store.
func (s *story) check(t *testing.T, d *DB) {
	t.Helper()
	log := backendtest.OpenLogOf(t, s.shards, d, owner("next"), 1, backendtest.NewClock().Now)
	defer log.Close(t)
	log.WaitReady(t)
	heads, err := log.Heads(t.Context(), s.topics, nil, 0)
	need(t, err)
	var want []string
	for n := range s.told {
		want = append(want, fmt.Sprint(n+1))
	}
	for i, h := range heads {
		if h.GetHead() != uint64(s.told) || h.GetOldest() != 1 {
			t.Errorf("%s has head %d and oldest %d, want %d and 1", h.GetTopic(), h.GetHead(), h.GetOldest(), s.told)
		}
		if got := log.Bodies(t, h.GetTopic()); !slices.Equal(got, want) {
			t.Errorf("%s holds %q, want %q", h.GetTopic(), got, want)
		}
		last, next := s.item(i, s.told), s.item(i, s.told+1)
		r := log.Append(t, last, next)
		if !r[0].GetDuplicate() || r[0].GetSeq() != uint64(s.told) || r[1].GetCode() != wirev1.Code_CODE_OK || r[1].GetSeq() != uint64(s.told+1) {
			t.Errorf("%s: the last message again, and the next: %v", h.GetTopic(), r)
		}
	}
}

// A claim that failed halfway leaves nothing: not a lock, and no writer that believes in it; also
// where the shard's data is moved away meanwhile.
func TestAClaimThatFailedHalfwayIsNotBelieved(t *testing.T) {
	wire := &pgtest.Wire{}
	url := pgtest.URL(t)
	d := openWith(t, Config{URL: url, Dial: wire.Dial, Patience: backendtest.Patience})
	for n, met := 1, true; met; n++ {
		pgtest.Exec(t, url, `UPDATE pushmesh.shard SET held = true WHERE shard = 3`)
		w, err := d.OpenWriter(t.Context(), owner("a"))
		need(t, err)
		var sent int
		var sql string
		met = false
		wire.Judge(func(s pgtest.Statement) pgtest.Fate {
			if sent++; sent != n {
				return pgtest.Pass
			}
			met, sql = true, s.SQL
			pgtest.Exec(t, url, `UPDATE pushmesh.shard SET held = false WHERE shard = 3`)
			return pgtest.Refused
		})
		got, err := w.TakeShards(t.Context(), []int{3})
		wire.Judge(nil)
		if !met {
			need(t, err)
			need(t, w.Close())
			t.Logf("a claim has %d statements", n-1)
			return
		}
		if !errors.Is(err, backend.ErrLost) {
			t.Errorf("a claim whose statement %d failed (%s): %v, %v, want ErrLost", n, sql, got, err)
		}
		if got, err := w.TakeShards(t.Context(), []int{3}); err == nil && len(got) > 0 {
			t.Errorf("the claim after one whose statement %d failed: %v, though the shard's data is in another database", n, got)
		}
		next, err := d.OpenWriter(t.Context(), owner("b"))
		need(t, err)
		if locks := pgtest.Exec(t, url, `SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = $1 AND objid = 3
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, uint32(log.LockClass)); locks > 0 {
			t.Errorf("%d locks are left of a claim whose statement %d failed", locks, n)
		}
		need(t, next.Close())
		need(t, w.Close())
	}
}
