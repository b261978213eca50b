package ownership

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// patience bounds what a test waits for.
const patience = time.Minute

// among is rig's manager with a bus that nobody else is at: a test speaks for the others.
func among(t *testing.T, dbs ...*fakeWatch) (m *Manager, shards *fakeShards, turn func()) {
	m, shards, turn = rig(t, dbs...)
	m.cfg.Bus = bus.New(bus.Config{})
	return m, shards, turn
}

// says has m hear a beat.
func says(t *testing.T, m *Manager, b *meshv1.StoreBeat) {
	t.Helper()
	data, err := proto.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	m.receiveBeat(data)
}

// kicked reports whether every eye is to look at once, and takes the kicks.
func kicked(t *testing.T, m *Manager) bool {
	t.Helper()
	n := 0
	for _, e := range m.watches {
		select {
		case <-e.kick:
			n++
		default:
		}
	}
	if n != 0 && n != len(m.watches) {
		t.Errorf("%d of %d databases are looked at", n, len(m.watches))
	}
	return n > 0
}

// A beat that brings news has every database looked at at once: a store that came, leaves, stays
// after all or began anew. One that says the same again, twice a second from each store, has not.
func TestNewsIsLookedAfterAtOnce(t *testing.T) {
	m, shards, turn := among(t, &fakeWatch{}, &fakeWatch{})
	turn()
	for _, step := range []struct {
		what string
		beat *meshv1.StoreBeat
		news bool
		of   int // stores that share
	}{
		{"it came", &meshv1.StoreBeat{StoreId: "a", StoreIncarnation: 1}, true, 2},
		{"it is there", &meshv1.StoreBeat{StoreId: "a", StoreIncarnation: 1}, false, 2},
		{"it leaves", &meshv1.StoreBeat{StoreId: "a", StoreIncarnation: 1, Leaving: true}, true, 1},
		{"it still leaves", &meshv1.StoreBeat{StoreId: "a", StoreIncarnation: 1, Leaving: true}, false, 1},
		{"it stays", &meshv1.StoreBeat{StoreId: "a", StoreIncarnation: 1}, true, 2},
		{"it began anew", &meshv1.StoreBeat{StoreId: "a", StoreIncarnation: 2}, true, 2},
		{"its process before says goodbye late", &meshv1.StoreBeat{StoreId: "a", StoreIncarnation: 1, Leaving: true}, false, 2},
		{"another came", &meshv1.StoreBeat{StoreId: "b", StoreIncarnation: 1}, true, 3},
		{"this store itself", &meshv1.StoreBeat{StoreId: "me", StoreIncarnation: 5, Leaving: true}, false, 3},
	} {
		says(t, m, step.beat)
		if got := kicked(t, m); got != step.news {
			t.Errorf("%s: looked at once %v, want %v", step.what, got, step.news)
		}
		if step.news { // more of it before a look is no reason to wait
			says(t, m, &meshv1.StoreBeat{StoreId: step.beat.GetStoreId(), StoreIncarnation: step.beat.GetStoreIncarnation(), Leaving: !step.beat.GetLeaving()})
			says(t, m, step.beat)
			kicked(t, m)
		}
		share, leaving := m.updateShare()
		if want := topic.Shards - (step.of-1)*topic.Shards/step.of; len(share) != want || leaving {
			// its id is the last
			t.Errorf("%s: a share of %d shards, want %d of %d stores", step.what, len(share), want, step.of)
		}
		if !slices.Equal(share, shards.Owned()) {
			t.Errorf("%s: the log was told another share", step.what)
		}
	}
	m.receiveBeat([]byte{0xff}) // whatever comes from NATS costs no store its place
	if share, _ := m.updateShare(); len(share) != topic.Shards/3+1 {
		t.Errorf("after nonsense the share is of %d shards", len(share))
	}
	for range 4 { // nobody beats any more
		turn()
	}
	if share, _ := m.updateShare(); len(share) != topic.Shards {
		t.Errorf("two seconds after the last beat the share is of %d shards, want all", len(share))
	}
}

// Without NATS a store that is alone in its database does not share with whatever else is recorded
// there.
func TestWithoutNATSAllIsItsOwn(t *testing.T) {
	m, shards, turn := rig(t, &fakeWatch{view: view(pulse("a", "1"))})
	turn()
	if got := len(shards.Owned()); got != topic.Shards {
		t.Errorf("it wants %d shards", got)
	}
	m.beat() // and has nobody to speak to
}

// A process that was replaced and speaks on for longer than silence, while its successor does not
// speak, is the store again.
func TestAProcessThatOutlivesItsSuccessorIsHeard(t *testing.T) {
	m, _, turn := among(t, &fakeWatch{})
	says(t, m, &meshv1.StoreBeat{StoreId: "a", StoreIncarnation: 1})
	says(t, m, &meshv1.StoreBeat{StoreId: "a", StoreIncarnation: 2})
	incarnation := func() uint64 { return m.beats["a"].beat.GetStoreIncarnation() }
	for range 3 {
		turn()
		says(t, m, &meshv1.StoreBeat{StoreId: "a", StoreIncarnation: 1})
		if incarnation() != 2 {
			t.Fatal("a late beat brought an old process back")
		}
	}
	turn()
	says(t, m, &meshv1.StoreBeat{StoreId: "a", StoreIncarnation: 1})
	if incarnation() != 1 {
		t.Error("the process that lives is not heard")
	}
}

// Two stores with one id fence each other for ever. Each says so while the other speaks, and no
// longer; a predecessor's last words are not meant.
func TestTwoStoresWithOneIDAreNamed(t *testing.T) {
	m, _, turn := among(t, &fakeWatch{})
	own := &meshv1.StoreBeat{StoreId: "me", StoreIncarnation: 5}
	other := &meshv1.StoreBeat{StoreId: "me", StoreIncarnation: 4, Address: "other:1"}
	named := map[int]bool{}
	for i := range 40 { // half seconds
		says(t, m, own)
		if i < 10 {
			says(t, m, other)
		}
		named[i] = m.CheckID() != nil
		turn()
	}
	for i, want := range map[int]bool{0: false, 1: false, 5: false, 6: true, 9: true, 20: true, 39: false} {
		if named[i] != want {
			t.Errorf("after %d half seconds a twin is named: %v, want %v", i, named[i], want)
		}
	}
	if len(m.beats) > 0 {
		t.Error("a store shares with itself")
	}
}

// Another store owns what a database has recorded for it, if that is the shard's database and the
// very run does something, there or over NATS. What was this store's own is what it holds now.
func TestWhoOwnsWhat(t *testing.T) {
	v := backend.View{}
	for i, id := range []string{"works", "works", "idle", "beats", "beats", "beat before", "me", "mover", "unknown"} {
		v.Owners = append(v.Owners, backend.Ownership{Shard: i, Owner: backend.Owner{StoreID: id, Incarnation: 1, Address: id + ":1"}})
	}
	v.Owners[6].Incarnation = 5
	v.Runs = []backend.Pulse{pulse("works", ""), pulse("idle", ""), pulse("beats", ""), pulse("beat before", ""), pulse("mover", "")}
	db := &fakeWatch{view: v}
	m, shards, turn := among(t, db)
	m.cfg.Place = func(shard int) int {
		if shard == 7 {
			return -1
		}
		return 0
	}
	says(t, m, &meshv1.StoreBeat{StoreId: "beats", StoreIncarnation: 3})
	for i := range 6 {
		db.view.Runs[0].Mark, db.view.Runs[4].Mark = seconds(float64(i)).String(), seconds(float64(i)).String()
		turn()
	}
	says(t, m, &meshv1.StoreBeat{StoreId: "beats", StoreIncarnation: 1})
	says(t, m, &meshv1.StoreBeat{StoreId: "beat before", StoreIncarnation: 2})
	owners := func(held ...int) (all []*meshv1.OwnersResponse_Range) {
		shards.Want(held)
		return m.Owners()
	}
	of := func(first, last uint32, id string) *meshv1.OwnersResponse_Range {
		return &meshv1.OwnersResponse_Range{First: first, Last: last, StoreId: id, Address: id + ":1"}
	}
	want := []*meshv1.OwnersResponse_Range{of(0, 1, "works"), of(3, 4, "beats"), of(1000, 1000, "me")}
	if diff := cmp.Diff(want, owners(1000), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	want = []*meshv1.OwnersResponse_Range{of(0, 0, "works"), of(1, 1, "me"), of(3, 4, "beats"), of(6, 6, "me")}
	if diff := cmp.Diff(want, owners(1, 6), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	now := m.cfg.Now()
	m.cfg.Now = func() time.Time { return now.Add(silence) } // neither seen nor heard since
	if diff := cmp.Diff([]*meshv1.OwnersResponse_Range(nil), owners(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// Who takes part is what the first database says. While that is away the others say it, and while
// all are away it is what was seen last.
func TestTheOtherDatabasesSayWhoTakesPartWhileTheFirstIsAway(t *testing.T) {
	first, second := &fakeWatch{view: view(pulse("a", ""))}, &fakeWatch{view: view(pulse("a", ""), pulse("b", ""), pulse("c", ""))}
	_, shards, turn := among(t, first, second)
	n := 0
	expect := func(what string, stores int) {
		t.Helper()
		for range 5 { // longer than silence
			n++
			for _, db := range []*fakeWatch{first, second} {
				for i := range db.view.Runs {
					db.view.Runs[i].Mark = seconds(float64(n)).String()
				}
			}
			turn()
		}
		if got := len(shards.Owned()); got != topic.Shards/stores {
			t.Errorf("%s: a share of %d shards, want one of %d stores", what, got, stores)
		}
	}
	expect("both are there", 2)
	first.err = errors.New("away")
	expect("the first is away", 4)
	second.err = errors.New("away")
	expect("both are away", 4)
	first.err = nil
	expect("the first is back", 2)
}

// A store that stops wants nothing any more, and fences nobody for it.
func TestAStoreThatLeavesTakesNothing(t *testing.T) {
	db := &fakeWatch{view: view(pulse("old", "7"))}
	m, shards, turn := among(t, db)
	turn()
	m.Leave()
	shards.Want(nil)
	for range 6 {
		turn()
	}
	if got := shards.Owned(); len(got) > 0 || len(db.fenced) > 0 {
		t.Errorf("it wants %d shards, and fenced %v", len(got), db.fenced)
	}
}

// Each silent run is fenced once and counted. Where a fence fails for another reason than that the
// run lives, the connection is of no more use, and the next look has another.
func TestAFenceThatFailsCostsTheConnection(t *testing.T) {
	v := view(pulse("x", "7"), pulse("y", "8"))
	db := &fakeWatch{view: v, fence: errors.New("cut")}
	m, _, turn := rig(t, db)
	reg := prometheus.NewRegistry()
	reg.MustRegister(m.fences)
	fences := func() float64 {
		all, err := reg.Gather()
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		return all[0].GetMetric()[0].GetCounter().GetValue()
	}
	for range 5 {
		turn()
	}
	if db.asked != 1 || db.closed != 1 || m.watches[0].watch != nil || fences() != 0 {
		t.Errorf("%d fences on a broken connection, closed %d times, %v fences counted", db.asked, db.closed, fences())
	}
	db.fence = nil
	turn()
	if db.opened != 2 || len(db.fenced) != 2 || fences() != 2 {
		t.Errorf("opened %d times, fenced %v, %v fences counted", db.opened, db.fenced, fences())
	}
	db.alive = true
	turn()
	if db.closed != 1 || fences() != 2 {
		t.Errorf("a run that lives: closed %d times, %v fences counted", db.closed, fences())
	}
}

// A store that could not be fenced is named as long as that is so, in whatever database, and is not
// tried in vain.
func TestWhoCannotBeFencedIsNamed(t *testing.T) {
	x := pulse("x", "7")
	x.Unfenceable = "GRANT it"
	// x has a shard in each
	first, second := &fakeWatch{view: view(x)}, &fakeWatch{view: view(pulse("y", "8"), pulse("x", "9"))}
	m, _, turn := rig(t, first, second)
	for range 6 {
		turn()
	}
	if err := m.CheckFencing(); err == nil || err.Error() != "store x can't be fenced, and if it hangs nobody takes its shards: GRANT it" {
		t.Errorf("named: %v", err)
	}
	if first.asked+first.closed > 0 || len(second.fenced) == 0 {
		t.Errorf("fences tried where they are in vain: %d, elsewhere: %v", first.asked, second.fenced)
	}
	first.view.Runs[0].Unfenceable = ""
	turn()
	if err := m.CheckFencing(); err != nil || len(first.fenced) != 1 {
		t.Errorf("it could be now: %v, fenced: %v", err, first.fenced)
	}
}

// natsServer runs one in this process.
func natsServer(t *testing.T) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(patience) {
		t.Fatal("nats does not start")
	}
	return s
}

// meeting is a store at a NATS server with a database that shows it nobody.
type meeting struct {
	*Manager
	shards *fakeShards
	db     *lockedWatch
	able   error
	reg    *prometheus.Registry
}

// lockedWatch is a fakeWatch that tells when it is closed.
type lockedWatch struct {
	fakeWatch
	closing sync.Once
	over    chan struct{}
}

func (w *lockedWatch) OpenWatch(context.Context, backend.Owner) (backend.Watch, error) { return w, nil }

func (w *lockedWatch) Close() error {
	w.closing.Do(func() { close(w.over) })
	return nil
}

func meet(t *testing.T, url, id string, changes ...func(*meeting)) *meeting {
	t.Helper()
	b := bus.New(bus.Config{URL: url, Name: id, Mesh: meshidtest.Identity(), Log: slog.New(slog.DiscardHandler)})
	s := &meeting{shards: &fakeShards{changed: make(chan struct{}, 1)}, db: &lockedWatch{over: make(chan struct{})}, reg: prometheus.NewRegistry()}
	s.Manager = New(Config{
		Owner: backend.Owner{StoreID: id, Incarnation: 1, Address: id + ":1"}, Databases: []Watched{s.db}, Place: func(int) int { return 0 }, Shards: s.shards, Bus: b,
		Able: func() error { return s.able }, Log: slog.New(slog.DiscardHandler), About: func(b *meshv1.StoreBeat) { b.Program = "of " + id },
		Registry: s.reg,
	})
	for _, change := range changes {
		change(s)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop(context.Background()) }) //nolint:usetesting // the test's context is over by then
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) }) //nolint:usetesting // likewise
	return s
}

// owns waits until the store wants so many shards.
func (s *meeting) owns(t *testing.T, n int) {
	t.Helper()
	for deadline := time.After(patience); len(s.shards.Owned()) != n; {
		select {
		case <-s.shards.changed:
		case <-deadline:
			t.Fatalf("%s wants %d shards, want %d", s.cfg.Owner.StoreID, len(s.shards.Owned()), n)
		}
	}
}

// Stores that meet at NATS share at once, whatever the database shows; one that says goodbye, or
// has no database, leaves its share to the other. Each says of itself who and where it is. One that
// stops does not beat any more, and gives its connection back.
func TestStoresMeet(t *testing.T) {
	nats := natsServer(t)
	heard := make(chan *meshv1.StoreBeat, 1000)
	listener := bus.New(bus.Config{URL: nats.ClientURL(), Name: "listener", Mesh: meshidtest.Identity(), Log: slog.New(slog.DiscardHandler)})
	if err := listener.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Stop(context.Background()) }) //nolint:usetesting // the test's context is over by then
	leave, err := listener.Subscribe(bus.StoreBeat, 1000, func(data []byte, _ func([]byte) error) {
		b := &meshv1.StoreBeat{}
		if proto.Unmarshal(data, b) == nil {
			heard <- b
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := listener.Flush(ctx); err != nil {
		t.Fatal(err)
	}

	a := meet(t, nats.ClientURL(), "a")
	if got := len(a.shards.Owned()); got != topic.Shards {
		t.Fatalf("a store alone wants %d shards once it has started", got)
	}
	want := &meshv1.StoreBeat{StoreId: "a", StoreIncarnation: 1, Address: "a:1", Shards: topic.Shards, Program: "of a"}
	if diff := cmp.Diff(want, hear(t, heard, "a"), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	b := meet(t, nats.ClientURL(), "b")
	a.owns(t, topic.Shards/2)
	b.owns(t, topic.Shards/2)
	// takes no part: a share of a third would show
	meet(t, nats.ClientURL(), "c", func(s *meeting) { s.able = errors.New("away") })
	if b := hear(t, heard, "c"); !b.GetLeaving() {
		t.Errorf("a store without a database does not say that it takes no part: %v", b)
	}
	if n := len(a.shards.Owned()); n != topic.Shards/2 {
		t.Errorf("beside one that takes no part a wants %d shards", n)
	}
	b.Leave()
	a.owns(t, topic.Shards)
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.db.over:
	default:
		t.Error("a store that has stopped has a connection still")
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := meet(t, nats.ClientURL(), "d")
	for range 2 {
		hear(t, heard, "d")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.beats["d"]; known {
		t.Error("a store that has stopped listens still")
	}
	if all, err := d.reg.Gather(); err != nil || len(all) != 1 || all[0].GetName() != "pushmesh_store_fences_total" {
		t.Errorf("its fences are not counted: %v, %v", all, err)
	}
	e := New(Config{
		Owner: backend.Owner{StoreID: "e", Incarnation: 1}, Shards: &fakeShards{}, Bus: listener, Able: func() error { return nil }, Log: slog.New(slog.DiscardHandler),
	})
	e.Leave() // says so now, and not with its next beat: it has none
	if b := hear(t, heard, "e"); !b.GetLeaving() {
		t.Errorf("it says %v", b)
	}
}

// hear waits for a beat of a store.
func hear(t *testing.T, heard <-chan *meshv1.StoreBeat, id string) *meshv1.StoreBeat {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case b := <-heard:
			if b.GetStoreId() == id {
				return b
			}
		case <-deadline:
			t.Fatalf("no beat of %s", id)
		}
	}
}

// A store without a subscription would share with nobody, and take all: it does not start.
func TestAStoreThatCannotListenDoesNotStart(t *testing.T) {
	b := bus.New(bus.Config{URL: natsServer(t).ClientURL(), Name: "a", Mesh: meshidtest.Identity(), Log: slog.New(slog.DiscardHandler)})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, shards, _ := rig(t, &fakeWatch{})
	m.cfg.Bus = b
	if err := m.Start(t.Context()); err == nil {
		t.Error("it started")
	}
	if got := shards.Owned(); got != nil {
		t.Errorf("it wants %d shards", len(got))
	}
}
