package ownership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/incarnation"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const (
	// beatEvery is the pace of beats, and of looking around.
	beatEvery = 500 * time.Millisecond
	// silence is how long a store may do nothing in a database before its shards there are taken.
	silence = 2 * time.Second
	// askTimeout bounds one look, a new connection included, and fencing one store.
	askTimeout = 5 * time.Second
)

// Shards is what the manager needs of the log.
type Shards interface {
	Want(shards []int)
	Hold(hold bool)
	Owned() []int
}

// Watched is what the manager needs of a database.
type Watched interface {
	OpenWatch(ctx context.Context, owner backend.Owner) (backend.Watch, error)
}

// Config of a Manager.
type Config struct {
	Owner backend.Owner
	// Databases that hold shards. The first one says who takes part, as long as it answers.
	Databases []Watched
	// Place of a shard in Databases; -1: on the move.
	Place  func(shard int) int
	Shards Shards
	// Bus is nil where this store is alone and there is no NATS: then all is its own.
	Bus *bus.Bus
	// Able says why this store can't own anything now (its database is away); nil: it can.
	Able func() error
	// Now is monotonic; nil: time.Now.
	Now func() time.Time
	Log *slog.Logger
	// About fills in what a beat says of the process; nil: nothing. It must not block.
	About func(*meshv1.StoreBeat)
	// Registry may be nil.
	Registry prometheus.Registerer
}

// Manager is a lifecycle.Part. It owns a goroutine that beats, one for each database that looks
// around there, and a subscription.
type Manager struct {
	cfg    Config
	eyes   []*eye
	group  *lifecycle.Group
	leave  func()
	fences prometheus.Counter

	// around a share's computation and its wish, so that no older one comes later
	wishing sync.Mutex
	last    []string // the stores that lived when a database was seen last

	mu    sync.Mutex
	beats map[string]heard
	// processes of stores that are over, and others that have this one's id
	past    incarnation.Memory
	leaving bool
	twin    bool // another store has this one's id
}

// New makes a manager that has not begun.
func New(cfg Config) *Manager {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	m := &Manager{cfg: cfg, leave: func() {}, beats: map[string]heard{}, fences: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "pushmesh_store_fences_total", Help: "Other stores that this store fenced: it ended their database connections, since they did nothing in the database.",
	})}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(m.fences)
	}
	for i, db := range cfg.Databases {
		m.eyes = append(m.eyes, &eye{manager: m, place: i, database: db, kick: make(chan struct{}, 1)})
	}
	return m
}

// Start looks around once, and begins to beat and to claim. It does not wait for any shard.
func (m *Manager) Start(ctx context.Context) error {
	if m.cfg.Bus != nil {
		leave, err := m.cfg.Bus.Subscribe(bus.StoreBeat, 1024, func(data []byte, _ func([]byte) error) { m.hear(data) })
		if err != nil {
			return err
		}
		m.leave = leave
	}
	m.eyes[0].turn(ctx)
	m.group = lifecycle.NewGroup(context.Background())
	m.group.Go("ownership-beat", func(ctx context.Context) { every(ctx, nil, func() { m.beat() }) })
	for _, e := range m.eyes {
		m.group.Go("ownership-look", func(ctx context.Context) {
			every(ctx, e.kick, func() { e.turn(ctx) })
			e.close()
		})
	}
	return nil
}

// Leave tells the others that this store stops: they take its shards as it gives them back.
func (m *Manager) Leave() {
	m.mu.Lock()
	m.leaving = true
	m.mu.Unlock()
	m.beat()
}

// Stop ends beating and claiming. What is owned stays owned.
func (m *Manager) Stop(ctx context.Context) error {
	m.leave()
	return m.group.Stop(ctx)
}

func every(ctx context.Context, kick <-chan struct{}, f func()) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		f()
		select {
		case <-ctx.Done():
			return
		case <-kick:
		case <-ticker.C:
		}
	}
}

func (m *Manager) beat() {
	if m.cfg.Bus == nil {
		return
	}
	m.mu.Lock()
	b := &meshv1.StoreBeat{
		StoreId: m.cfg.Owner.StoreID, StoreIncarnation: m.cfg.Owner.Incarnation, Address: m.cfg.Owner.Address,
		Shards: uint32(len(m.cfg.Shards.Owned())), Leaving: m.leaving || m.cfg.Able() != nil,
	}
	m.mu.Unlock()
	if m.cfg.About != nil {
		m.cfg.About(b)
	}
	data, err := proto.Marshal(b)
	if err == nil {
		err = m.cfg.Bus.Publish(bus.StoreBeat, data)
	}
	if err != nil {
		m.cfg.Log.Debug("sending a beat failed", "error", err)
	}
}

func (m *Manager) hear(data []byte) {
	b := &meshv1.StoreBeat{}
	if err := proto.Unmarshal(data, b); err != nil {
		m.cfg.Log.Warn("a beat of another store could not be decoded", "error", err)
		return
	}
	if b.GetStoreId() == m.cfg.Owner.StoreID {
		m.hearSelf(b)
		return
	}
	m.mu.Lock()
	before, known := m.beats[b.GetStoreId()]
	if m.late(before, known, b) {
		m.mu.Unlock()
		return
	}
	m.beats[b.GetStoreId()] = heard{b, m.cfg.Now()}
	m.mu.Unlock()
	if !known || before.beat.GetLeaving() != b.GetLeaving() || before.beat.GetStoreIncarnation() != b.GetStoreIncarnation() {
		for _, e := range m.eyes {
			select {
			case e.kick <- struct{}{}:
			default: // it looks anyway
			}
		}
	}
}

// late reports whether b is of a process of its store that is over: the one that lives beats, too.
// m.mu is held.
func (m *Manager) late(before heard, known bool, b *meshv1.StoreBeat) bool {
	was, is, now := before.beat.GetStoreIncarnation(), b.GetStoreIncarnation(), m.cfg.Now()
	if !known || was == is {
		return false
	}
	if m.past.Late(now, b.GetStoreId(), is, now.Sub(before.at) >= silence, silence) {
		return true
	}
	m.past.Replaced(now, b.GetStoreId(), was)
	return false
}

// hearSelf notes a store that has this one's id and is another. Its last beats, where it is the
// process before this one, are no fault.
func (m *Manager) hearSelf(b *meshv1.StoreBeat) {
	now, id := m.cfg.Now(), m.cfg.Owner.StoreID
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.GetStoreIncarnation() != m.cfg.Owner.Incarnation && !m.past.Late(now, id, b.GetStoreIncarnation(), false, silence) {
		m.past.Replaced(now, id, b.GetStoreIncarnation())
	}
	if twin := slices.Contains(m.past.Twins(now), id); twin != m.twin {
		m.twin = twin
		if twin {
			m.cfg.Log.Error("another store process has this store's id: give one of them another --id", "id", id, "address", b.GetAddress())
		} else {
			m.cfg.Log.Info("no other store process has this store's id any more", "id", id)
		}
	}
}

// CheckID is nil unless another store has this one's id.
func (m *Manager) CheckID() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.twin {
		return fmt.Errorf("another store process has the id %s: give one of them another --id", m.cfg.Owner.StoreID)
	}
	return nil
}

// CheckFencing is nil unless there is a store that could not be fenced in a database, were it to
// hang.
func (m *Manager) CheckFencing() error {
	var all []string
	for _, e := range m.eyes {
		all = append(all, e.unfenced()...)
	}
	if all == nil {
		return nil
	}
	return errors.New(strings.Join(all, "; "))
}

// wish computes this store's share from what was seen and heard, and has the log want it; leaving:
// nothing is wished any more.
func (m *Manager) wish() (share []int, leaving bool) {
	m.wishing.Lock()
	defer m.wishing.Unlock()
	now := m.cfg.Now()
	seen, fresh := m.seen(now)
	if fresh {
		m.last = append([]string{}, seen...)
	}
	m.mu.Lock()
	leaving = m.leaving
	ids := living(m.last, m.beats, now)
	m.mu.Unlock()
	if leaving {
		return nil, true
	}
	if m.cfg.Bus == nil {
		ids = nil
	}
	share = Spread(append(ids, m.cfg.Owner.StoreID), m.cfg.Owner.StoreID)
	// who is there has to be known once; until then callers are told to come back
	m.cfg.Shards.Hold(m.last == nil)
	m.cfg.Shards.Want(share)
	return share, false
}

// seen names the stores that live, as the first database has it, or, while it is away, the others;
// fresh: any of them answered lately.
func (m *Manager) seen(now time.Time) (ids []string, fresh bool) {
	for i, e := range m.eyes {
		some, yes := e.living(now)
		if !yes {
			continue
		}
		ids, fresh = append(ids, some...), true
		if i == 0 {
			break
		}
	}
	return ids, fresh
}

// Owners says which store owns which shards: this one by what it holds, others by the databases'
// records, unless they are silent.
func (m *Manager) Owners() []*meshv1.OwnersResponse_Range {
	now := m.cfg.Now()
	owners := map[int]backend.Owner{}
	for _, e := range m.eyes {
		e.owners(now, owners)
	}
	for _, s := range m.cfg.Shards.Owned() {
		owners[s] = m.cfg.Owner
	}
	return ranges(owners)
}

// hears reports whether a run was heard within silence.
func (m *Manager) hears(id backend.RunID, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.beats[id.StoreID] // of one that was never heard, long ago
	return now.Sub(h.at) < silence && h.beat.GetStoreIncarnation() == id.Incarnation
}
