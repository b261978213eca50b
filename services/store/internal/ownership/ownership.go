package ownership

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

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
	// silence is how long a store may be unheard before its shards are taken.
	silence = 2 * time.Second
	// settled is how long this store must have been reachable before it says of another that it is silent.
	settled = silence + beatEvery
	// askTimeout bounds one question to the database.
	askTimeout = 5 * time.Second
)

// Shards is what the manager needs of the log.
type Shards interface {
	Want(shards []int)
	Hold(hold bool)
	Owned() []int
}

// Owners is what the manager needs of the database.
type Owners interface {
	Owners(ctx context.Context) ([]backend.Ownership, error)
	Fence(ctx context.Context, storeID string, incarnation uint64) error
}

// Config of a Manager.
type Config struct {
	Owner   backend.Owner
	Backend Owners
	Shards  Shards
	// Bus is nil where this store is alone and there is no NATS: then all is its own.
	Bus *bus.Bus
	// Able says why this store can't own anything now (its database is away); nil: it can.
	Able func() error
	Now  func() time.Time
	Log  *slog.Logger
	// About fills in what a beat says of the process; nil: nothing. It must not block.
	About func(*meshv1.StoreBeat)
}

// Manager is a lifecycle.Part. It owns two goroutines (one beats, one looks around) and a subscription.
type Manager struct {
	cfg   Config
	group *lifecycle.Group
	leave func()
	kick  chan struct{}
	// wished says that the log knows of a share; only look, one call at a time, uses it.
	wished bool

	mu        sync.Mutex
	beats     map[string]heard
	past      incarnation.Memory // processes of stores that are over, and others that have this one's id
	records   []backend.Ownership
	reachable time.Time // since when NATS reaches this store; zero: it doesn't
	leaving   bool
	twin      bool // another store has this one's id
}

// New makes a manager that has not begun.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, leave: func() {}, kick: make(chan struct{}, 1), beats: map[string]heard{}}
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
	m.look(ctx)
	m.group = lifecycle.NewGroup(context.Background())
	m.group.Go("ownership-beat", func(ctx context.Context) { every(ctx, nil, func() { m.beat() }) })
	m.group.Go("ownership-look", func(ctx context.Context) { every(ctx, m.kick, func() { m.look(ctx) }) })
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
		m.cfg.Log.Debug("beat", "error", err)
	}
}

func (m *Manager) hear(data []byte) {
	b := &meshv1.StoreBeat{}
	if err := proto.Unmarshal(data, b); err != nil {
		m.cfg.Log.Warn("beat of a store", "error", err)
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
		select {
		case m.kick <- struct{}{}:
		default: // it looks anyway
		}
	}
}

// late reports whether b is of a process of its store that is over: the one that lives beats, too. m.mu is held.
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

// hearSelf notes a store that has this one's id and is another. Its last beats, where it is the process before this one, are no fault.
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

// look does one round: who lives, what is this store's share, who must be fenced.
func (m *Manager) look(ctx context.Context) {
	now := m.cfg.Now()
	m.mu.Lock()
	if m.leaving {
		m.mu.Unlock()
		return
	}
	reachable := m.cfg.Bus == nil || m.cfg.Bus.Connected()
	switch {
	case !reachable:
		m.reachable = time.Time{}
	case m.reachable.IsZero():
		m.reachable = now
	}
	judge := m.cfg.Bus == nil || reachable && now.Sub(m.reachable) >= settled
	share := Spread(append(living(m.beats, now), m.cfg.Owner.StoreID), m.cfg.Owner.StoreID)
	m.mu.Unlock()

	m.cfg.Shards.Hold(!reachable)
	if reachable || !m.wished { // held or not, callers are told to come back
		m.wished = true
		m.cfg.Shards.Want(share)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	records, err := m.cfg.Backend.Owners(ctx)
	if err != nil {
		m.cfg.Log.Debug("owners", "error", err)
		return
	}
	m.mu.Lock()
	m.records = records
	over := silent(records, share, run{m.cfg.Owner.StoreID, m.cfg.Owner.Incarnation}, m.beats, now, judge)
	m.mu.Unlock()
	if !reachable {
		return
	}
	for _, r := range over {
		m.cfg.Log.Warn("fencing a silent store", "store", r.id, "incarnation", r.incarnation)
		if err := m.cfg.Backend.Fence(ctx, r.id, r.incarnation); err != nil {
			m.cfg.Log.Warn("fence", "store", r.id, "error", err)
		}
	}
}

// Owners says which store owns which shards: this one by what it holds, others by the database's record, unless they are silent.
func (m *Manager) Owners() []*meshv1.OwnersResponse_Range {
	now := m.cfg.Now()
	owners := map[int]backend.Owner{}
	m.mu.Lock()
	for _, r := range m.records {
		h, known := m.beats[r.StoreID]
		if r.StoreID != m.cfg.Owner.StoreID && known && now.Sub(h.at) < silence && h.beat.GetStoreIncarnation() == r.Incarnation {
			owners[r.Shard] = r.Owner
		}
	}
	m.mu.Unlock()
	for _, s := range m.cfg.Shards.Owned() {
		owners[s] = m.cfg.Owner
	}
	return ranges(owners)
}
