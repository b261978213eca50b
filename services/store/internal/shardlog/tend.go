package shardlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const (
	// commitTimeout bounds one group commit; a database slower than that is taken for gone.
	commitTimeout = 10 * time.Second
	// takeTimeout bounds taking and loading shards.
	takeTimeout = 60 * time.Second
	// resolveFor is how long callers wait for the outcome of a commit that ended without an answer;
	// then they are told that nobody knows.
	resolveFor = 5 * time.Second
	// resolvePause between tries to reach the database meanwhile.
	resolvePause = 100 * time.Millisecond
)

// maintainIfDue looks after the shards if others are wanted than before, or if a tick has passed.
func (l *lane) maintainIfDue(ctx context.Context) {
	l.mu.Lock()
	due := l.due
	l.due = false
	l.mu.Unlock()
	if due || time.Since(l.maintainedAt) >= tick {
		l.maintain(ctx)
	}
}

func sorted(s []int) []int {
	slices.Sort(s)
	return s
}

// maintain takes and releases shards until the lane owns what it should, as far as the database
// allows now, and makes checkpoints.
func (l *lane) maintain(ctx context.Context) {
	defer l.watch()()
	l.maintainedAt = time.Now()
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	if err := l.takeShards(ctx); err != nil {
		l.mu.Lock()
		same := l.away != nil
		l.mu.Unlock()
		if !same || !l.warned {
			l.log.Warn("taking ownership of shards failed", "error", err)
			l.warned = true
		}
		if errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrUnknown) || l.writer == nil {
			l.dropWriter(err)
		}
		return
	}
	if err := l.sweepKept(ctx); err != nil {
		l.log.Warn("deleting what topics keep no longer failed", "error", err)
		if errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrUnknown) {
			l.dropWriter(err)
			return
		}
	}
	l.forgetTopics()
	l.metrics.knows(l.name, l.state.topicsKnown())
	l.checkpoint()
}

// takeShards opens the writer where there is none, releases shards that are not wanted, and takes
// and loads those that are missing.
func (l *lane) takeShards(ctx context.Context) error {
	wanted, hold := l.wantedNow()
	l.pruneAside(wanted)
	if l.writer == nil {
		if len(wanted) == 0 || hold {
			return nil
		}
		w, err := l.backend.OpenWriter(ctx, l.owner)
		if err != nil {
			return fmt.Errorf("open writer: %w", err)
		}
		l.writer = w
	}
	owned := sorted(l.state.owned())
	if surplus := without(owned, wanted); len(surplus) > 0 {
		if err := l.releaseUnwanted(ctx, surplus); err != nil {
			return err
		}
	}
	// Also where nothing is missing: it tells a silent lane that its connection, and with it its
	// shards, are lost.
	missing := without(wanted, owned)
	if hold {
		missing = nil
	}
	missing = l.refused.due(missing, time.Now())
	if len(missing) == 0 { // a question that is cut off would cost the connection
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
		defer cancel()
	}
	asked := time.Now()
	got, err := l.writer.TakeShards(ctx, missing)
	if err != nil {
		return fmt.Errorf("take shards: %w", err)
	}
	l.confirm(asked)
	if len(got) == 0 {
		l.clearAway()
		return nil
	}
	rest, err := l.recall(ctx, got)
	if err != nil {
		return l.releaseUnloaded(ctx, got, err)
	}
	if len(rest) < len(got) { // those that are known do not hang on the load of others
		l.clearAway()
	}
	if err := l.load(ctx, rest); err != nil {
		return err
	}
	l.clearAway()
	return nil
}

// load loads shards that were taken.
func (l *lane) load(ctx context.Context, shards []int) error {
	if len(shards) == 0 {
		return nil
	}
	loaded := newLoader(l.state.positions.most)
	if l.ages() == nil {
		loaded.lately = uint64(l.now().Add(-l.shortestTTL).UnixMicro())
	}
	if err := l.writer.Load(ctx, shards, loaded); err != nil {
		return l.releaseUnloaded(ctx, shards, fmt.Errorf("load: %w", err))
	}
	loaded.index()
	if err := l.releaseInconsistent(ctx, loaded); err != nil {
		return err
	}
	for n, sh := range loaded.shards {
		sh.hold = l.writer.Hold(n)
	}
	l.state.merge(loaded.state, uint64(l.now().UnixMicro()))
	l.metrics.took(len(loaded.shards), 0)
	l.log.Info("took ownership of shards", "lane", l.name, "shards", len(loaded.shards), "owned", len(l.state.owned()))
	return nil
}

// releaseInconsistent releases the shards whose loaded state contradicts the log. They are loaded
// again later: if reading them was at fault, they are served then.
func (l *lane) releaseInconsistent(ctx context.Context, loaded *loader) error {
	if len(loaded.bad) == 0 {
		return nil
	}
	for shard, why := range loaded.bad {
		l.log.Error("a shard is not served: its loaded state contradicts its log", "shard", shard, "error", why)
		l.metrics.shardRefused()
		l.refused[shard] = time.Now()
	}
	loaded.drop(func(shard int) bool { return loaded.bad[shard] != nil })
	return l.releaseShards(ctx, slices.Sorted(maps.Keys(loaded.bad)))
}

// refusals is when shards were refused.
type refusals map[int]time.Time

// refusedFor is how long after its release an inconsistent shard is not taken again.
const refusedFor = time.Second

// due returns the shards without those that were released as inconsistent a short time ago.
func (r refusals) due(shards []int, now time.Time) []int {
	if len(r) == 0 {
		return shards
	}
	return slices.DeleteFunc(shards, func(shard int) bool {
		at, found := r[shard]
		if found && now.Sub(at) >= refusedFor {
			delete(r, shard)
			found = false
		}
		return found
	})
}

// releaseUnloaded releases shards that were taken but could not be loaded.
func (l *lane) releaseUnloaded(ctx context.Context, got []int, why error) error {
	return errors.Join(why, l.releaseShards(ctx, got))
}

// clearAway notes that the database accepts writes.
func (l *lane) clearAway() {
	l.warned = false
	l.setAway(nil)
}

func (l *lane) releaseUnwanted(ctx context.Context, shards []int) error {
	l.checkpointAll()
	if l.writer == nil {
		return fmt.Errorf("release: %w", backend.ErrLost)
	}
	l.state.drop(func(shard int) bool { return slices.Contains(shards, shard) })
	l.log.Info("released shards", "lane", l.name, "shards", len(shards))
	return l.releaseShards(ctx, shards)
}

// releaseShards releases shards that are not in the state. Where that fails, they may still be
// owned, and nothing would release them later: the end of the connection does.
func (l *lane) releaseShards(ctx context.Context, shards []int) error {
	if err := l.writer.ReleaseShards(ctx, shards); err != nil {
		return fmt.Errorf("release: %w: %w", backend.ErrLost, err)
	}
	return nil
}

func without(all, some []int) (rest []int) {
	for _, s := range all {
		if _, found := slices.BinarySearch(some, s); !found {
			rest = append(rest, s)
		}
	}
	return rest
}

// resolve finds out the outcome of a batch whose commit ended without an answer: the shards are
// taken again on another connection, so that the old one can't commit any more; then the database
// is asked.
func (l *lane) resolve(ctx context.Context, p *plan, group []*entry, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveFor)
	defer cancel()
	committed, err := l.outcome(ctx, p)
	switch {
	case err != nil:
		l.log.Error("it is unknown whether a group was committed", "error", errors.Join(why, err), "messages", len(group))
		l.failed(p, group, code.New(wirev1.Code_CODE_INTERNAL, "outcome unknown: "+why.Error()))
	case committed:
		l.answer(group, p.results) // the state has it, loaded after it or brought up to it
	default:
		l.failed(p, group, code.Retry(wirev1.Code_CODE_UNAVAILABLE, unavailableRetry, "the database did not commit"))
	}
}

func (l *lane) outcome(ctx context.Context, p *plan) (bool, error) {
	for {
		err := l.takeShards(ctx)
		if err == nil {
			if !l.state.owns(p.batch.Commits[0].Shard) {
				err = errors.New("another store took the shard")
			} else {
				var yes bool
				if yes, err = l.writer.Committed(ctx, p.batch.ID); err == nil {
					return yes, nil
				}
			}
		}
		if l.writer != nil && (errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrUnknown)) {
			l.dropWriter(err)
		}
		select {
		case <-ctx.Done():
			return false, err
		case <-time.After(resolvePause):
		}
	}
}

// finish commits what is queued, releases the shards, and refuses the rest.
func (l *lane) finish(ctx context.Context) {
	for l.appendGroup(ctx) {
	}
	if l.writer != nil {
		l.checkpointAll()
	}
	if l.writer != nil { // the checkpoint may have found it lost
		if err := l.writer.Close(); err != nil {
			l.log.Warn("releasing shards failed", "error", err)
		}
		l.writer = nil
	}
	l.state.drop(func(int) bool { return true })
	l.unsettled = nil
	l.setAway(errors.New("the store has stopped"))
}
