package schedule

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// database is a schedule in memory: what is there, and what was appended.
type database struct {
	mu       sync.Mutex
	rows     map[[16]byte]backend.Scheduled
	appended map[[16]byte]int
	away     bool
	refuse   func() bool // of an append
}

func (d *database) ReadScheduled(_ context.Context, shards []int, after backend.ScheduledID, to uint64, limit int) (page []backend.Scheduled, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.away {
		return nil, errors.New("away")
	}
	for _, s := range d.rows {
		if slices.Contains(shards, s.Shard) && order(s.ScheduledID, after) > 0 && s.Due <= to {
			page = append(page, s)
		}
	}
	slices.SortFunc(page, func(a, b backend.Scheduled) int { return order(a.ScheduledID, b.ScheduledID) })
	return page[:min(limit, len(page))], nil
}

func (d *database) FindScheduled(context.Context, [16]byte) (backend.Scheduled, error) {
	return backend.Scheduled{}, backend.ErrNotFound
}

// append is a log that appends, refuses, or answers that it was appended before.
func (d *database) append(items []*meshv1.AppendItem, sink shardlog.Sink) {
	d.mu.Lock()
	var rs []*meshv1.AppendResult
	for _, it := range items {
		id, r := [16]byte(it.GetMessageId()), &meshv1.AppendResult{Ref: it.GetRef()}
		switch {
		case d.refuse != nil && d.refuse():
			r.Code = wirev1.Code_CODE_UNAVAILABLE
		case d.appended[id] > 0:
			r.Duplicate = true
		default:
			d.appended[id]++
			delete(d.rows, id)
		}
		rs = append(rs, r)
	}
	d.mu.Unlock()
	sink.Results(rs)
}

// Whatever order messages come in, shards change hands, the database fails and appends are refused:
// what is due is appended once, and never before its time, as soon as nothing stands in the way.
func TestWhatIsDueIsAppended(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		db := &database{rows: map[[16]byte]backend.Scheduled{}, appended: map[[16]byte]int{}}
		now := time.Unix(1_000_000, 0)
		claims := make([]uint64, 4)
		s := New(Config{
			Backend: db, Append: db.append, Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler),
			Ownerships: func(dst []uint64) { copy(dst, claims) },
		})
		dues, claim := map[[16]byte]uint64{}, uint64(0)
		turn := func() {
			for s.turn(t.Context()) {
			}
			for id, n := range db.appended {
				if n != 1 || dues[id] > uint64(now.UnixMicro()) {
					t.Fatalf("appended %d times, due in %d µs", n, int64(dues[id])-now.UnixMicro())
				}
			}
		}
		step := map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				shard := rapid.IntRange(0, 3).Draw(t, "shard")
				if claims[shard] == 0 {
					return
				}
				m := backend.Scheduled{Shard: shard, Body: make([]byte, rapid.SampledFrom([]int{0, 9, smallPage}).Draw(t, "size"))}
				m.Due = uint64(now.Add(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 50 * time.Second, time.Hour}).Draw(t, "in")).UnixMicro())
				m.MessageID = [16]byte{byte(len(dues)), byte(len(dues) >> 8), byte(rapid.IntRange(0, 3).Draw(t, "id"))}
				dues[m.MessageID] = m.Due
				db.rows[m.MessageID] = m
				s.Added([]backend.Scheduled{m})
			},
			"claim": func(t *rapid.T) {
				claim++
				claims[rapid.IntRange(0, 3).Draw(t, "shard")] = claim
			},
			"lose":   func(t *rapid.T) { claims[rapid.IntRange(0, 3).Draw(t, "shard")] = 0 },
			"away":   func(t *rapid.T) { db.away = rapid.Bool().Draw(t, "away") },
			"refuse": func(t *rapid.T) { yes := rapid.Bool().Draw(t, "yes"); db.refuse = func() bool { return yes } },
			"wait": func(t *rapid.T) {
				now = now.Add(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 40 * time.Second, time.Hour}).Draw(t, "for"))
			},
			"": func(*rapid.T) { turn() },
		}
		t.Repeat(step)
		db.away, db.refuse = false, nil
		for i := range claims {
			claim++
			claims[i] = claim
		}
		for range 4 { // reads, appends, and what had to be tried again
			turn()
			now = now.Add(lastRetry)
		}
		turn()
		for id, due := range dues {
			if due <= uint64(now.Add(-2*lastRetry).UnixMicro()) && db.appended[id] == 0 {
				t.Fatalf("a message that was due %d µs ago is not appended", now.UnixMicro()-int64(due))
			}
		}
	})
}

// More than may be held is left in the database, the latest first, and read when there is room
// again.
func TestShelfIsBounded(t *testing.T) {
	s := newShelf()
	s.add(nil, 1, 1<<40)
	for i := range uint64(mostHeld + 100) {
		m := backend.Scheduled{ScheduledID: backend.ScheduledID{Due: (i * 7919) % 100_003, MessageID: [16]byte{byte(i), byte(i >> 8), byte(i >> 16)}}}
		s.put(&m)
		s.trim()
		if s.size() > mostHeld {
			t.Fatalf("%d are held", s.size())
		}
	}
	if s.completeUntil.Due >= 100_003 || len(s.queue) != s.size() || s.size() < mostHeld/2-1 {
		t.Fatalf("%d held, through %d", s.size(), s.completeUntil.Due)
	}
	later := s.completeUntil
	later.Due++
	s.put(&backend.Scheduled{ScheduledID: later})
	if s.known[later.MessageID] != nil && s.known[later.MessageID].Due == later.Due {
		t.Error("what is to be read later is held")
	}
	var last uint64
	for w := s.due(1 << 40); w != nil; w = s.due(1 << 40) {
		if cmp.Compare(w.Due, last) < 0 {
			t.Fatalf("due %d after %d", w.Due, last)
		}
		last = w.Due
		s.drop(w)
	}
	if s.size() != 0 || s.bytes != 0 || last > s.completeUntil.Due {
		t.Errorf("%d held, %d bytes, last %d", s.size(), s.bytes, last)
	}
}

// A body comes in a request with many others, and stays until it is due: it alone, for the bound
// counts no more.
func TestABodyThatIsKeptIsNoPartOfItsRequest(t *testing.T) {
	request := []byte("a request with a body in it")
	body := request[17:21:21]
	s := New(Config{Now: time.Now, Registry: prometheus.NewRegistry()})
	soon := backend.ScheduledID{Due: uint64(time.Now().Add(horizon / 2).UnixMicro())}
	s.Added([]backend.Scheduled{{ScheduledID: soon, Body: body}})
	clear(request)
	if got := string(s.fresh[0].Body); got != "body" {
		t.Fatalf("what is kept is a part of the request: %q", got)
	}
}
