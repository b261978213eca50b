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
	"github.com/prometheus/client_golang/prometheus/promauto"
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
	PauseTaking(hold bool)
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

// Manager is a lifecycle.Part. It owns a goroutine that sends beats, one for each database that
// watches the other stores there, and a subscription.
type Manager struct {
	cfg         Config
	watches     []*dbWatch
	group       *lifecycle.Group
	unsubscribe func()
	fences      prometheus.Counter

	// shareMu is held while the share is computed and set, so that no older share is set later.
	shareMu  sync.Mutex
	lastSeen []string // the stores that lived when a database was seen last

	mu    sync.Mutex
	beats map[string]heard
	// processes of stores that are over, and others that have this one's id
	past    incarnation.Memory
	leaving bool
	twin    bool // another store has this one's id
}

// New makes a manager that is not started.
func New(cfg Config) *Manager {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	m := &Manager{cfg: cfg, unsubscribe: func() {}, beats: map[string]heard{}, fences: promauto.With(cfg.Registry).NewCounter(prometheus.CounterOpts{
		Name: "pushmesh_store_fences_total", Help: "Other stores that this store fenced: it ended their database connections, since they did nothing in the database.",
	})}
	for i, db := range cfg.Databases {
		m.watches = append(m.watches, &dbWatch{manager: m, place: i, database: db, kick: make(chan struct{}, 1)})
	}
	return m
}

// Start looks at the other stores once, and begins to send beats and to take shards. It does not
// wait for any shard.
func (m *Manager) Start(ctx context.Context) error {
	if m.cfg.Bus != nil {
		leave, err := m.cfg.Bus.Subscribe(bus.StoreBeat, 1024, func(data []byte, _ func([]byte) error) { m.receiveBeat(data) })
		if err != nil {
			return err
		}
		m.unsubscribe = leave
	}
	m.watches[0].lookAndFence(ctx)
	m.group = lifecycle.NewGroup(context.Background())
	m.group.Go("ownership-beat", func(ctx context.Context) { every(ctx, nil, func() { m.beat() }) })
	for _, e := range m.watches {
		m.group.Go("ownership-look", func(ctx context.Context) {
			every(ctx, e.kick, func() { e.lookAndFence(ctx) })
			e.close()
		})
	}
	return nil
}

// Leave tells the other stores that this store stops: they take its shards as it releases them.
func (m *Manager) Leave() {
	m.mu.Lock()
	m.leaving = true
	m.mu.Unlock()
	m.beat()
}

// Stop ends sending beats and taking shards. What is owned stays owned.
func (m *Manager) Stop(ctx context.Context) error {
	m.unsubscribe()
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

func (m *Manager) receiveBeat(data []byte) {
	b := &meshv1.StoreBeat{}
	if err := proto.Unmarshal(data, b); err != nil {
		m.cfg.Log.Warn("a beat of another store could not be decoded", "error", err)
		return
	}
	if b.GetStoreId() == m.cfg.Owner.StoreID {
		m.receiveOwnID(b)
		return
	}
	m.mu.Lock()
	before, known := m.beats[b.GetStoreId()]
	if m.isFormerProcess(before, known, b) {
		m.mu.Unlock()
		return
	}
	m.beats[b.GetStoreId()] = heard{b, m.cfg.Now()}
	m.mu.Unlock()
	if !known || before.beat.GetLeaving() != b.GetLeaving() || before.beat.GetStoreIncarnation() != b.GetStoreIncarnation() {
		for _, e := range m.watches {
			select {
			case e.kick <- struct{}{}:
			default: // it looks anyway
			}
		}
	}
}

// isFormerProcess reports whether b was sent by a former process of its store: the one that lives
// sends beats, too. m.mu is held.
func (m *Manager) isFormerProcess(before heard, known bool, b *meshv1.StoreBeat) bool {
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

// receiveOwnID notes another store process that has this one's id. Last beats of the process before
// this one are no error.
func (m *Manager) receiveOwnID(b *meshv1.StoreBeat) {
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
	for _, e := range m.watches {
		all = append(all, e.unfenced()...)
	}
	if all == nil {
		return nil
	}
	return errors.New(strings.Join(all, "; "))
}

// updateShare computes this store's share of the shards from the stores that were seen and heard,
// and makes it what the log wants. leaving: the store stops and wants nothing.
func (m *Manager) updateShare() (share []int, leaving bool) {
	m.shareMu.Lock()
	defer m.shareMu.Unlock()
	now := m.cfg.Now()
	seen, fresh := m.seen(now)
	if fresh {
		m.lastSeen = append([]string{}, seen...)
	}
	m.mu.Lock()
	leaving = m.leaving
	ids := living(m.lastSeen, m.beats, now)
	m.mu.Unlock()
	if leaving {
		return nil, true
	}
	if m.cfg.Bus == nil {
		ids = nil
	}
	share = Spread(append(ids, m.cfg.Owner.StoreID), m.cfg.Owner.StoreID)
	// who is there has to be known once; until then callers are told to come back
	m.cfg.Shards.PauseTaking(m.lastSeen == nil)
	m.cfg.Shards.Want(share)
	return share, false
}

// seen returns the ids of the stores that live, by the first database or, while that is away, by
// the others; fresh: at least one database answered lately.
func (m *Manager) seen(now time.Time) (ids []string, fresh bool) {
	for i, e := range m.watches {
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

// Owners returns which store owns which shards: this one by what it has, others by the databases'
// records, unless they are silent.
func (m *Manager) Owners() []*meshv1.OwnersResponse_Range {
	now := m.cfg.Now()
	owners := map[int]backend.Owner{}
	for _, e := range m.watches {
		e.owners(now, owners)
	}
	for _, s := range m.cfg.Shards.Owned() {
		owners[s] = m.cfg.Owner
	}
	return ranges(owners)
}

// heardLately reports whether a run was heard within silence.
func (m *Manager) heardLately(id backend.RunID, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.beats[id.StoreID] // of one that was never heard, long ago
	return now.Sub(h.at) < silence && h.beat.GetStoreIncarnation() == id.Incarnation
}
