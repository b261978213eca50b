package shardlog

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Bounds of a lane and of one group commit.
const (
	maxQueued      = 16_384
	maxQueuedBytes = 32 << 20
	maxBatch       = 4096
	maxBatchBytes  = 4 << 20
)

// tick is how often a lane that has nothing to do looks after its shards; a wish for other shards
// is seen at once.
const tick = 250 * time.Millisecond

// lane owns one writer, the state of its shards, and the goroutine that appends. Callers reach it
// through the queue.
type lane struct {
	name     string
	backend  backend.Log
	owner    backend.Owner
	policies func() *policy.Table
	known    func() error
	ages     func() error
	// shortestTTL is the least time after its last message after which a topic is forgotten.
	shortestTTL time.Duration
	now         func() time.Time
	log         *slog.Logger
	metrics     *Metrics
	traces      traces
	stall       time.Duration
	// scheduled is Config.Scheduled.
	scheduled func([]backend.Scheduled)
	pace      *pace

	state *state
	// confirmedAt is when the database was last asked something on the writer's connection that it
	// answered, in nanoseconds since started; 0: never.
	confirmedAt atomic.Int64
	kick        chan struct{} // something is queued, or wanted changed

	mu          sync.Mutex
	queue       []*entry
	bytes       int
	wanted      map[int]bool
	pauseTaking bool // take no further shards
	due         bool // wanted has changed
	draining    bool
	away        error // why the database can't be written to now; nil: it can
	stalled     bool  // the step under way takes too long; see watch
	step        uint64
	changed     chan struct{}
	forgettable *forgettable // found by the forgetter; nil: nothing
	compacted   *compacted   // likewise

	writer       backend.Writer // the goroutine's own, as is all below
	maintainedAt time.Time
	checkpoints  checkpointer
	warned       bool
	refused      refusals
	scratch      scratch
	sweptTo      string          // topic that sweepKept goes on with
	last         backend.BatchID // the last that was committed; zero: none was
	unproven     unproven
	unsettled    *unsettled
}

func newLane(name string, cfg Config, pace *pace) *lane {
	return &lane{
		name: name, backend: cfg.Backend, owner: cfg.Owner, policies: cfg.Policies, known: orSure(cfg.Known), ages: orSure(cfg.Ages), shortestTTL: min(ShortestTopicTTL, cmp.Or(cfg.TopicTTL, ShortestTopicTTL)), now: cfg.Now, log: cfg.Log, metrics: cfg.Metrics,
		traces: traces{cfg.Tracer}, stall: cmp.Or(cfg.Stall, DefaultStall), pace: pace, scheduled: cfg.Scheduled, state: newState(cmp.Or(cfg.Positions, DefaultPositions), cmp.Or(cfg.PositionWindow, DefaultPositionWindow)),
		kick: make(chan struct{}, 1), wanted: map[int]bool{}, changed: make(chan struct{}), refused: refusals{},
		away: errors.New("this store owns no shards yet"),
	}
}

func (l *lane) wake() {
	select {
	case l.kick <- struct{}{}:
	default: // it wakes up anyway
	}
}

// submit queues items for one sink; those refused are answered at once.
func (l *lane) submit(entries []*entry) {
	var refused []*meshv1.AppendResult
	down := l.backend.Away()
	if why := l.known(); why != nil { // retention and dedupe windows are decided with the append
		down = code.Retry(wirev1.Code_CODE_UNAVAILABLE, unavailableRetry, "the store does not know the namespaces yet: "+why.Error())
	}
	l.mu.Lock()
	for _, e := range entries {
		if err := l.admit(e, down); err != nil {
			refused = append(refused, refusalOf(e, err))
			continue
		}
		l.queue = append(l.queue, e)
		l.bytes += e.size()
	}
	l.pace.taken(len(entries) - len(refused))
	// under the lock, so that no older depth overwrites a newer one
	l.metrics.queued(l.name, len(l.queue))
	l.mu.Unlock()
	l.wake()
	if len(refused) > 0 {
		l.metrics.answered(refused)
		entries[0].sink.Results(refused)
	}
}

// admit says why an entry can't be queued; down is what the backend says of itself. l.mu is held.
func (l *lane) admit(e *entry, down error) error {
	switch {
	case l.draining:
		return code.Retry(wirev1.Code_CODE_DRAINING, unavailableRetry, "the store is stopping")
	case !l.wanted[e.shard]:
		return code.New(wirev1.Code_CODE_CONFLICT, "another store owns the shard")
	case l.away != nil:
		return code.Retry(wirev1.Code_CODE_UNAVAILABLE, unavailableRetry, "the database is away: "+l.away.Error())
	case down != nil:
		return down
	case l.stalled:
		return errStalled
	case !l.state.owns(e.shard):
		return code.Retry(wirev1.Code_CODE_UNAVAILABLE, unavailableRetry, "no store owns the shard yet")
	case len(l.queue) >= maxQueued || l.bytes+e.size() > maxQueuedBytes:
		return code.Retry(wirev1.Code_CODE_OVERLOADED, overloadedRetry, "too many messages wait for their commit")
	}
	return nil
}

// take is the next group: what is queued, within bounds.
func (l *lane) take() (group []*entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, size := 0, 0
	for n < len(l.queue) && n < maxBatch {
		size += l.queue[n].size()
		if n > 0 && size > maxBatchBytes {
			break
		}
		l.bytes -= l.queue[n].size()
		n++
	}
	group = l.queue[:n:n]
	l.queue = l.queue[n:]
	if len(l.queue) == 0 {
		l.queue = nil
	}
	l.metrics.queued(l.name, len(l.queue))
	return group
}

// want says which shards this lane should own.
func (l *lane) want(shards []int) {
	wanted := make(map[int]bool, len(shards))
	for _, s := range shards {
		wanted[s] = true
	}
	l.mu.Lock()
	changed := !maps.Equal(l.wanted, wanted)
	l.wanted, l.due = wanted, l.due || changed
	l.mu.Unlock()
	if changed {
		l.wake()
	}
}

// wantedNow is a sorted copy, and whether new shards may be taken.
func (l *lane) wantedNow() (all []int, hold bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = make([]int, 0, len(l.wanted))
	for s := range l.wanted {
		all = append(all, s)
	}
	slices.Sort(all)
	return all, l.pauseTaking
}

// setAway notes why the database can't be written to, and refuses what is queued. Nil: it can.
func (l *lane) setAway(why error) {
	l.mu.Lock()
	l.away = why
	l.ownershipChanged()
	var refused []*entry
	if why != nil {
		refused, l.queue, l.bytes = l.queue, nil, 0
		l.metrics.queued(l.name, 0)
	}
	l.mu.Unlock()
	l.refuse(refused, func(*entry) error {
		return code.Retry(wirev1.Code_CODE_UNAVAILABLE, unavailableRetry, "the database is away: "+why.Error())
	})
}

// ownershipChanged wakes the callers that wait for a change of the owned shards. l.mu is held.
func (l *lane) ownershipChanged() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *lane) refuse(entries []*entry, why func(*entry) error) {
	if len(entries) == 0 {
		return
	}
	results := make([]*meshv1.AppendResult, len(entries))
	for i, e := range entries {
		results[i] = refusalOf(e, why(e))
	}
	l.answer(entries, results)
}

// answer gives every sink its results, in order.
func (l *lane) answer(entries []*entry, results []*meshv1.AppendResult) {
	l.pace.answered(len(entries))
	l.metrics.answered(results)
	if len(entries) == 0 {
		return
	}
	defer func() { l.traces.appended(entries, results, l.now()) }()
	first := entries[0].sink
	if !slices.ContainsFunc(entries, func(e *entry) bool { return e.sink != first }) {
		// as with a single router
		first.Results(results)
		return
	}
	bySink := map[Sink][]*meshv1.AppendResult{}
	var order []Sink
	for i, e := range entries {
		if bySink[e.sink] == nil {
			order = append(order, e.sink)
		}
		bySink[e.sink] = append(bySink[e.sink], results[i])
	}
	for _, s := range order {
		s.Results(bySink[s])
	}
}

// run is the lane's goroutine. When ctx ends it finishes what is queued, gives the shards back and
// returns.
func (l *lane) run(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	l.maintain(ctx)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-l.kick:
		case <-ticker.C:
		}
		l.maintainIfDue(ctx)
		for l.appendGroup(context.WithoutCancel(ctx)) {
			l.maintainIfDue(ctx) // also under a load that never ends
			l.checkpoint()
		}
	}
	l.finish(context.WithoutCancel(ctx))
}

// appendGroup commits one group; false where nothing was queued.
func (l *lane) appendGroup(ctx context.Context) bool {
	group := l.take()
	if len(group) == 0 {
		return false
	}
	defer l.watch()()
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if err := l.lookUp(ctx, group); err != nil {
		l.refuse(group, func(*entry) error {
			return code.Retry(wirev1.Code_CODE_UNAVAILABLE, unavailableRetry, "dedupe keys: "+err.Error())
		})
		return true
	}
	now := l.now()
	l.forget(now, len(group))
	var id backend.BatchID
	_, _ = rand.Read(id[:]) // it never fails
	p := newPlan(l.state, group, id, uint64(now.UnixMicro()), l.policies(), l.scratch)
	l.metrics.unplaced(&p.unplaced)
	defer func() { l.scratch.recycle(p) }()
	if err := l.findFirsts(ctx, p, group); err != nil {
		l.log.Warn("reading the first results of duplicates failed", "error", err)
		for _, i := range p.asks { // OK without a seq would say that the topic is ephemeral
			p.results[i] = refusalOf(group[i], code.Retry(wirev1.Code_CODE_UNAVAILABLE, unavailableRetry, "the first result could not be read"))
		}
	}
	if len(p.batch.Commits) == 0 {
		l.answer(group, p.results)
		return true
	}
	l.commit(ctx, p, group)
	return true
}

func (l *lane) commit(ctx context.Context, p *plan, group []*entry) {
	if l.writer == nil {
		l.failed(p, group, code.Retry(wirev1.Code_CODE_UNAVAILABLE, unavailableRetry, "the database is away"))
		return
	}
	begun, waited := time.Now(), max(0, l.now().Sub(group[0].at)) // the clock may have gone back
	err := l.writer.Commit(ctx, p.batch)
	l.metrics.committed(waited, time.Since(begun), len(group), err)
	switch {
	case err == nil:
		l.confirm(begun)
		l.committed(p.batch.ID)
		l.state.apply(p, group)
		l.checkpoints.noticed(len(group))
		if l.scheduled != nil && len(p.batch.Scheduled) > 0 {
			l.scheduled(p.batch.Scheduled)
		}
		l.answer(group, p.results)
	case errors.Is(err, backend.ErrNotCommitted):
		l.log.Warn("a group commit failed", "error", err, "messages", len(group))
		l.failed(p, group, code.Retry(wirev1.Code_CODE_UNAVAILABLE, unavailableRetry, "the database did not commit"))
	case errors.Is(err, backend.ErrLost):
		l.dropWriter(err)
		// Who has the shards now, the next request says.
		l.failed(p, group, code.Retry(wirev1.Code_CODE_UNAVAILABLE, unavailableRetry, "the connection that appends is lost"))
	default:
		l.dropWriter(err)
		l.doubt(p, group)
		l.resolve(ctx, p, group, err)
	}
}

// failed answers those that hung on a commit that did not happen; the others have their results.
func (l *lane) failed(p *plan, group []*entry, why error) {
	for i, e := range group {
		if p.waits[i] {
			p.results[i] = refusalOf(e, why)
		}
	}
	l.answer(group, p.results)
}

// dropWriter ends a writer that is of no more use. What it owned is not owned any more; what is
// known of it is put aside.
func (l *lane) dropWriter(why error) {
	if l.writer == nil {
		// each attempt of an outage: readiness says why
		l.log.Debug("opening a database writer failed again", "error", why)
	} else {
		l.log.Warn("the connection that writes is lost; the lane opens another one", "error", why)
		if err := l.writer.Close(); err != nil {
			l.log.Debug("closing a lost writer failed", "error", err)
		}
		l.writer = nil
	}
	l.state.suspend()
	if rest := l.checkpoints.rest; rest != nil {
		l.state.markUnstored(rest)
	}
	l.checkpoints = checkpointer{}
	l.setAway(fmt.Errorf("the connection that appends is lost: %w", why))
}
