package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// table is an outbox whose rows are there from the beginning.
type table struct {
	mu      sync.Mutex
	rows    []backend.OutboxRow
	through int64
	last    bool
	refused []backend.OutboxRefusal
	lost    error
	parked  []backend.OutboxWaiting
	under   bool // a batch is under way
}

func (o *table) Pending(_ context.Context, limit int) (all []backend.OutboxEntry, repeated bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.rows {
		if r.ID > o.through && len(all) < limit {
			all = append(all, backend.OutboxEntry{ID: r.ID, Size: len(r.Payload) + 512})
		}
	}
	defer func() { o.under = len(all) > 0 }()
	return all, o.under, o.lost
}

func (o *table) Park(_ context.Context, ids []int64, shards []int) (added []backend.OutboxWaiting, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, id := range ids {
		w := backend.OutboxWaiting{Shard: shards[i], OutboxEntry: backend.OutboxEntry{ID: id, Size: len(o.rows[id-1].Payload) + 512}}
		if !slices.Contains(o.parked, w) {
			added = append(added, w)
		}
	}
	o.parked = append(o.parked, added...)
	slices.SortFunc(o.parked, func(a, b backend.OutboxWaiting) int { return cmp.Compare(a.ID, b.ID) })
	return added, o.lost
}

func (o *table) Waiting(context.Context) ([]backend.OutboxWaiting, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.parked), o.lost
}

func (o *table) WaitingRows(_ context.Context, shards []int, each, most, _ int) (all []backend.OutboxRow, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := map[int]int{}
	for _, w := range o.parked {
		if slices.Contains(shards, w.Shard) && of[w.Shard] < each && len(all) < most {
			of[w.Shard]++
			all = append(all, o.rows[w.ID-1])
		}
	}
	return all, o.lost
}

func (o *table) Unpark(_ context.Context, ids []int64, _ []int, refused []backend.OutboxRefusal) (gone []backend.OutboxWaiting, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused = append(o.refused, refused...)
	o.parked = slices.DeleteFunc(o.parked, func(w backend.OutboxWaiting) bool {
		if slices.Contains(ids, w.ID) {
			gone = append(gone, w)
			return true
		}
		return false
	})
	return gone, o.lost
}

// one is a database with that outbox.
type one struct{ *table }

func (d one) OpenOutbox(context.Context, backend.Owner) (backend.Outbox, error) { return d.table, nil }

func (o *table) Rows(_ context.Context, ids []int64) (all []backend.OutboxRow, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range ids {
		all = append(all, o.rows[id-1])
	}
	return all, o.lost
}

func (o *table) Settle(_ context.Context, through int64, last bool, refused []backend.OutboxRefusal) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.through, o.last, o.under, o.refused = through, last, !last, append(o.refused, refused...)
	return o.lost
}

func (o *table) Rotate(context.Context, time.Duration, int64) (backend.OutboxState, error) {
	return backend.OutboxState{}, o.lost
}

func (o *table) Close() error { return nil }

// mesh is a router with its stores, as far as the order and the keys of messages go, with faults
// that are drawn.
type mesh struct {
	t      *rapid.T
	mu     sync.Mutex // a reader has several requests under way
	faults []string   // in their order
	away   func(topic string) bool

	log   map[string][]string
	keys  map[string]bool
	seqs  map[string]uint64
	fresh map[string]bool // sent before, and not known to be refused
}

// fault reports whether the next fault is that one; "" is none.
func (m *mesh) fault(name string) bool {
	if len(m.faults) > 0 && (m.faults[0] == name || m.faults[0] == "") {
		defer func() { m.faults = m.faults[1:] }()
		return m.faults[0] != ""
	}
	return false
}

func (m *mesh) request(_ context.Context, subject string, data []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var in meshv1.OutboxPublish
	if subject != bus.OutboxPublish || proto.Unmarshal(data, &in) != nil {
		m.t.Errorf("a request on %s", subject)
	}
	if m.fault("nobody") {
		return nil, bus.ErrNobody
	}
	out := &meshv1.ClientPublishReply{}
	for _, it := range in.GetItems() {
		out.Results = append(out.Results, &meshv1.ClientPublishReply_Result{Code: m.publish(in.GetProducerId(), it)})
	}
	if m.fault("lost answer") {
		return nil, errors.New("timeout")
	}
	return proto.Marshal(out)
}

func (m *mesh) publish(producer []byte, it *meshv1.OutboxPublish_Item) wirev1.Code {
	position := string(producer) + it.GetTopic()
	if m.fresh[it.GetDedupeKey()] && !it.GetRepeated() {
		m.t.Errorf("%s was sent before, and is not marked", it.GetPayload())
	}
	if seq := it.GetProducerSeq(); seq > 0 && seq != m.seqs[position]+1 {
		return wirev1.Code_CODE_OUT_OF_ORDER
	}
	if m.away(it.GetTopic()) {
		return wirev1.Code_CODE_UNAVAILABLE
	}
	if m.fault("overloaded") {
		return wirev1.Code_CODE_OVERLOADED
	}
	if string(it.GetPayload()) == "bad" {
		return wirev1.Code_CODE_PAYLOAD_TOO_LARGE
	}
	if it.GetProducerSeq() > 0 {
		m.seqs[position]++
	}
	m.fresh[it.GetDedupeKey()] = true
	if !m.keys[it.GetDedupeKey()] {
		m.keys[it.GetDedupeKey()] = true
		m.log[it.GetTopic()] = append(m.log[it.GetTopic()], string(it.GetPayload()))
	}
	return wirev1.Code_CODE_OK
}

// Whatever a router refuses, and whichever answers are lost: each message is in its topic's log
// once, in order; what can't be published is noted as refused.
func TestEachIsPublishedOnceInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := &table{}
		want := map[string][]string{}
		bad := 0
		for i := range rapid.IntRange(1, 30).Draw(rt, "rows") {
			r := backend.OutboxRow{ID: int64(i + 1), Topic: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "topic"), Payload: []byte(fmt.Sprint(i))}
			r.MessageID[0] = byte(i + 1)
			if rapid.IntRange(0, 9).Draw(rt, "bad") == 0 {
				r.Payload = []byte("bad")
				bad++
			} else {
				want[r.Topic] = append(want[r.Topic], string(r.Payload))
			}
			o.rows = append(o.rows, r)
		}
		m := newMesh(rt, rapid.SliceOfN(rapid.SampledFrom([]string{"", "nobody", "overloaded", "lost answer"}), 0, 40).Draw(rt, "faults"))
		back := map[string]time.Duration{}
		for _, name := range []string{"a", "b", "c"} {
			back[name] = time.Duration(rapid.IntRange(0, 5000).Draw(rt, "away")) * time.Millisecond
		}
		most := rapid.IntRange(1, 30).Draw(rt, "most")
		ends := time.Duration(rapid.IntRange(1, 5000).Draw(rt, "ends")) * time.Millisecond
		synctest.Test(t, func(*testing.T) {
			began := time.Now()
			m.away = func(topic string) bool { return time.Since(began) < back[topic] }
			for try := 0; try < 2 || len(o.parked) > 0 || !o.last; try++ {
				ctx, cancel := context.WithTimeout(context.Background(), ends)
				if try > 0 {
					ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
				}
				r := New(Config{Database: one{o}, Log: slog.New(slog.DiscardHandler), Request: m.request, Mine: func() bool { return true }, MaxWaiting: most})
				for began := time.Now(); ctx.Err() == nil && (len(o.parked) > 0 || !o.last || time.Since(began) < time.Second); {
					_ = wait(ctx, r.readRound(ctx))
					if len(o.parked) > most {
						rt.Fatalf("%d rows wait, at most %d may", len(o.parked), most)
					}
				}
				r.close(nil)
				cancel()
				if try > 2 {
					rt.Fatalf("published %v, want %v; %v wait", m.log, want, o.parked)
				}
			}
		})
		if fmt.Sprint(m.log) != fmt.Sprint(want) {
			rt.Fatalf("published %v, want %v", m.log, want)
		}
		refused := map[int64]bool{}
		for _, r := range o.refused {
			refused[r.ID] = true
		}
		if len(refused) != bad || o.through != int64(len(o.rows)) {
			rt.Fatalf("%d of %d bad ones refused; settled to %d of %d", len(refused), bad, o.through, len(o.rows))
		}
	})
}

func newMesh(t *rapid.T, faults []string) *mesh {
	return &mesh{t: t, faults: faults, log: map[string][]string{}, keys: map[string]bool{}, seqs: map[string]uint64{}, fresh: map[string]bool{}}
}

// While a shard is away, others' messages are published within seconds, those before it in the
// outbox and those behind; its own wait, also over a change of the reader, and come in order when
// it is back.
func TestAShardThatIsAwayHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, m, gone := &table{}, newMesh(nil, nil), atomic.Bool{}
		gone.Store(true)
		m.away = func(topic string) bool { return topic == "a" && gone.Load() }
		add := func(name string) {
			r := backend.OutboxRow{ID: int64(len(o.rows) + 1), Topic: name, Payload: []byte(fmt.Sprint(len(o.rows) + 1))}
			r.MessageID[0] = byte(r.ID)
			o.mu.Lock()
			defer o.mu.Unlock()
			o.rows = append(o.rows, r)
		}
		open := func() *Reader {
			r := New(Config{Database: one{o}, Log: slog.New(slog.DiscardHandler), Request: m.request, Mine: func() bool { return true }, MaxWaiting: 3})
			if err := r.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			return r
		}
		stop := func(r *Reader) {
			if err := r.Stop(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		check := func(when, a, b string, parked int) {
			t.Helper()
			m.mu.Lock()
			defer m.mu.Unlock()
			o.mu.Lock()
			defer o.mu.Unlock()
			if fmt.Sprint(m.log["a"]) != a || fmt.Sprint(m.log["b"]) != b || len(o.parked) != parked {
				t.Errorf("%s: %v and %v published, %d wait; want %s, %s, %d", when, m.log["a"], m.log["b"], len(o.parked), a, b, parked)
			}
		}
		r := open()
		add("a")
		add("b")
		<-time.After(3 * time.Second)
		check("away", "[]", "[2]", 1)
		add("b")
		add("a")
		<-time.After(100 * time.Millisecond)
		check("once it is known", "[]", "[2 3]", 2)
		stop(r)
		r = open()
		add("b")
		add("a")
		<-time.After(300 * time.Millisecond)
		check("another reader", "[]", "[2 3 5]", 3)
		if got := gauge(r.metrics.full); got != 0 {
			t.Errorf("full %v with as many waiting as may", got)
		}
		add("a")
		add("b")
		<-time.After(3 * time.Second)
		check("beyond what may wait", "[]", "[2 3 5 8]", 3)
		add("b")
		<-time.After(3 * time.Second)
		check("behind that", "[]", "[2 3 5 8]", 3)
		stop(r)
		r = open()
		<-time.After(3 * time.Second)
		if full, parked := gauge(r.metrics.full), gauge(r.metrics.parked); full != 1 || parked != 3 {
			t.Errorf("metrics: %v wait, full %v", parked, full)
		}
		gone.Store(false)
		<-time.After(3 * time.Second)
		check("back", "[1 4 6 7]", "[2 3 5 8 9]", 0)
		if full, parked, bytes := gauge(r.metrics.full), gauge(r.metrics.parked), gauge(r.metrics.parkedBytes); full != 0 || parked != 0 || bytes != 0 {
			t.Errorf("metrics: %v wait, %v bytes, full %v", parked, bytes, full)
		}
		stop(r)
	})
}

func gauge(g prometheus.Gauge) float64 { return testutil.ToFloat64(g) }

// A store that lost the right stops sending.
func TestALostRightEndsSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &table{rows: []backend.OutboxRow{{ID: 1, Topic: "a"}}}
		asked := 0
		request := func(context.Context, string, []byte) ([]byte, error) {
			asked++
			o.lost = errors.New("the connection is gone")
			return nil, errors.New("timeout")
		}
		r := New(Config{Database: one{o}, Log: slog.New(slog.DiscardHandler), Request: request, Mine: func() bool { return true }})
		if !r.becomeReader(t.Context()) {
			t.Fatal("no right")
		}
		defer r.close(nil)
		if _, err := r.sender.send(t.Context(), []int64{1}, false); !errors.Is(err, o.lost) || asked != 1 {
			t.Errorf("%v after %d requests", err, asked)
		}
	})
}

func TestPiecesKeepTheirBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var rows []backend.OutboxEntry
		for i, size := range rapid.SliceOfN(rapid.IntRange(0, pieceBytes*3/2), 0, 50).Draw(rt, "sizes") {
			rows = append(rows, backend.OutboxEntry{ID: int64(i), Size: size})
		}
		next := int64(0)
		for _, piece := range pieces(rows) {
			size := 0
			for _, id := range piece {
				if id != next {
					rt.Fatalf("row %d where %d was expected", id, next)
				}
				next++
				size += rows[id].Size
			}
			if len(piece) > pieceRows || size > pieceBytes && len(piece) > 1 {
				rt.Fatalf("a piece of %d rows, %d bytes", len(piece), size)
			}
		}
		if int(next) != len(rows) {
			rt.Fatalf("%d of %d rows", next, len(rows))
		}
	})
}

// rights is a database whose outbox one reader holds at a time.
type rights struct {
	mu     sync.Mutex
	held   bool
	shared *table // nil: a table of its own for each
}

func (d *rights) OpenOutbox(context.Context, backend.Owner) (backend.Outbox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held {
		return nil, backend.ErrOtherReader
	}
	d.held = true
	return &right{cmp.Or(d.shared, &table{}), d}, nil
}

type right struct {
	*table
	of *rights
}

func (r *right) Close() error {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.of.held = false
	return nil
}

// The store that should read the outbox reaches no router: another one reads it within seconds, and
// gives it back when the first can again.
func TestAnotherStoreReadsWhileTheFirstReachesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, able := &rights{}, true
		reader := func(mine bool, able func() bool) *Reader {
			return New(Config{Database: db, Log: slog.New(slog.DiscardHandler), Mine: func() bool { return mine }, Able: able})
		}
		first, second := reader(true, func() bool { return able }), reader(false, nil)
		after := func(when string, d time.Duration, wantFirst, wantSecond bool) {
			t.Helper()
			for end := time.Now().Add(d); time.Now().Before(end); <-time.After(openEvery) {
				first.readRound(t.Context())
				second.readRound(t.Context())
			}
			if (first.outbox != nil) != wantFirst || (second.outbox != nil) != wantSecond {
				t.Errorf("%s: the first reads %v, the second %v", when, first.outbox != nil, second.outbox != nil)
			}
		}
		after("at first", time.Minute, true, false)
		able = false
		after("the first reaches no router", standInEvery+openEvery, false, true)
		after("for long", standIn-2*standInEvery, false, true)
		able = true
		after("and can again", standIn, true, false)
	})
}

// The store that reads loses NATS while it sends, or is in a half of it without routers: what it
// has begun does not keep it, another store goes on with it within seconds, and each message is
// published once.
func TestABatchUnderWayGoesToWhoReachesARouter(t *testing.T) {
	for name, first := range map[string]struct{ mine, able bool }{
		"NATS is away from the store that should read":   {mine: true},
		"a store that stands in finds no router in time": {able: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, m, db := &table{}, newMesh(nil, nil), &rights{}
				m.away = func(string) bool { return false }
				for i := range 3 {
					r := backend.OutboxRow{ID: int64(i + 1), Topic: "a", Payload: []byte(fmt.Sprint(i + 1))}
					r.MessageID[0] = byte(i + 1)
					o.rows = append(o.rows, r)
				}
				db.shared = o
				var cut atomic.Bool
				nobody := func(context.Context, string, []byte) ([]byte, error) {
					cut.Store(true)
					return nil, errors.New("no answer")
				}
				start := func(request func(context.Context, string, []byte) ([]byte, error), mine, able func() bool) {
					r := New(Config{Database: db, Log: slog.New(slog.DiscardHandler), Request: request, Mine: mine, Able: able})
					if err := r.Start(t.Context()); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() {
						if err := r.Stop(context.Background()); err != nil {
							t.Error(err)
						}
					})
				}
				start(nobody, func() bool { return first.mine }, func() bool { return first.able || !cut.Load() })
				<-time.After(2 * openEvery)
				if !cut.Load() {
					t.Fatal("the first has not begun to send")
				}
				start(m.request, func() bool { return !first.mine }, nil)
				<-time.After(standIn + standInEvery + 2*maxPause)
				m.mu.Lock()
				defer m.mu.Unlock()
				if got := fmt.Sprint(m.log["a"]); got != "[1 2 3]" {
					t.Errorf("%s published, want [1 2 3]", got)
				}
			})
		})
	}
}
