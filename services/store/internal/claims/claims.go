// Package claims serves claims on resources: the lane, which owns the book of all places (package
// book) in the shards of this store, and the streams of nodes. See docs/adr/0046-claims.md.
package claims

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/incarnation"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/claims/book"
	"github.com/pushmesh/pushmesh/services/store/internal/claims/prepare"
)

// forgivenAfter is when a process that another took the place of may come back, if that one has no
// stream any more.
const forgivenAfter = 5 * time.Second

// Limits of a node's stream; 0: the default.
type Limits struct {
	// Unanswered operations, DefaultUnanswered.
	Unanswered int
	// PushBytes that wait to be sent, DefaultPushBytes.
	PushBytes int
}

// Config of a Lane.
type Config struct {
	Backend backend.Claims
	// Away says at once why the database is not asked now; nil: it is.
	Away  func() error
	Owner backend.Owner
	// Owned writes for each shard a number that is 0 where it is not this store's, and another one
	// where it became so anew (shardlog.Log.Claims); Own is that of one shard. Sure reports whether
	// a shard is this store's for certain (shardlog.Log.Sure).
	Owned    func(dst []uint64)
	Own      func(shard int) uint64
	Sure     func(ctx context.Context, shard int) error
	Policies func() *policy.Table
	// Prepare makes a call when it is its turn (prepare.Pool). It must not block.
	Prepare func(prepare.Job)
	// UserPlaces is how many places the clients of one user may have here; 0: no limit.
	UserPlaces int
	Limits     Limits
	Log        *slog.Logger
	Registry   prometheus.Registerer
}

// Lane is a lifecycle.Part. Its goroutine owns the book and the writer in the database: it gathers
// operations of all nodes, what fell due and what became of calls, has the book decide, commits,
// and only then answers and notifies. Whatever fails, it forgets all and reads anew what the
// database has.
type Lane struct {
	cfg      Config
	metrics  *metrics
	group    *lifecycle.Group
	kick     chan struct{}
	draining atomic.Bool
	ruled    atomic.Bool // policies have changed

	mu       sync.Mutex
	nodes    map[string]*stream  // each node's present one
	past     incarnation.Memory  // processes of nodes that are over
	changed  map[string]struct{} // nodes whose stream came or went since the goroutine looked
	turns    []*stream           // those with operations, in turn
	prepared []prepared
	lists    []*listing
	away     error // why claims are not served

	// The goroutine's own.
	clock     *clock
	writer    backend.ClaimWriter // nil: none
	book      *book.Book          // while there is a writer
	ended     context.CancelFunc
	running   context.Context // ends with the writer
	shards    shards
	parked    []*op
	committed time.Time
}

// New makes a lane that serves nothing yet.
func New(cfg Config) *Lane {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Limits.Unanswered = cmp.Or(cfg.Limits.Unanswered, DefaultUnanswered)
	cfg.Limits.PushBytes = cmp.Or(cfg.Limits.PushBytes, DefaultPushBytes)
	return &Lane{
		cfg: cfg, metrics: newMetrics(cfg.Registry), kick: make(chan struct{}, 1), nodes: map[string]*stream{}, changed: map[string]struct{}{},
		clock: newClock(time.Now()), away: errNotOpen,
	}
}

// Start begins.
func (l *Lane) Start(context.Context) error {
	l.group = lifecycle.NewGroup(context.Background())
	l.group.Go("claims", l.loop)
	return nil
}

// Ruled says that policies have changed.
func (l *Lane) Ruled() {
	l.ruled.Store(true)
	signal(l.kick)
}

// Drain ends the streams once what they have under way is answered, and takes nothing new.
func (l *Lane) Drain() {
	l.draining.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.nodes {
		s.end(errDraining)
	}
}

// Stop gives the shards back.
func (l *Lane) Stop(ctx context.Context) error {
	l.Drain()
	return l.group.Stop(ctx)
}

// Check says why claims are not served, wholly or of some shards.
func (l *Lane) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.away
}

var errNotOpen = errors.New("claims have not been loaded yet")

func (l *Lane) is(away error) {
	l.mu.Lock()
	l.away = away
	l.mu.Unlock()
}

// join makes a stream its node's. One of a node's earlier life comes too late.
func (l *Lane) join(s *stream) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.draining.Load() {
		return errDraining
	}
	old, now := l.nodes[s.node], time.Now()
	if (old == nil || old.incarnation != s.incarnation) && l.past.Late(now, s.node, s.incarnation, old == nil, forgivenAfter) {
		return errReplaced
	}
	if old != nil {
		if old.incarnation != s.incarnation {
			l.past.Replaced(now, s.node, old.incarnation)
		}
		old.queue = nil
		old.over.Store(true)
		old.fail(errReplaced)
	}
	l.nodes[s.node] = s
	l.changed[s.node] = struct{}{}
	signal(l.kick)
	return nil
}

// leave is the end of a stream.
func (l *Lane) leave(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes[s.node] == s {
		delete(l.nodes, s.node)
		l.past.Quiet(time.Now(), s.node, s.incarnation)
		l.changed[s.node] = struct{}{}
		s.queue = nil
		signal(l.kick)
	}
	s.over.Store(true)
	s.fail(errReplaced) // nothing more is put into it
}
