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
	// claimTimeout bounds claiming and loading shards.
	claimTimeout = 60 * time.Second
	// resolveFor is how long callers wait for the outcome of a commit that ended without an answer;
	// then they are told that nobody knows.
	resolveFor = 5 * time.Second
	// resolvePause between tries to reach the database meanwhile.
	resolvePause = 100 * time.Millisecond
)

// tendIfDue looks after the shards if others are wanted than before, or if a tick has passed.
func (l *lane) tendIfDue(ctx context.Context) {
	l.mu.Lock()
	due := l.due
	l.due = false
	l.mu.Unlock()
	if due || time.Since(l.tended) >= tick {
		l.tend(ctx)
	}
}

func sorted(s []int) []int {
	slices.Sort(s)
	return s
}

// tend makes what is owned what is wanted, as far as the database allows now.
func (l *lane) tend(ctx context.Context) {
	defer l.watch()()
	l.tended = time.Now()
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	if err := l.claim(ctx); err != nil {
		l.mu.Lock()
		same := l.away != nil
		l.mu.Unlock()
		if !same || !l.warned {
			l.log.Warn("taking ownership of shards failed", "error", err)
			l.warned = true
		}
		if errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrUnknown) || l.writer == nil {
			l.lose(err)
		}
		return
	}
	l.checkpoint()
}

// claim opens the writer where there is none, gives back what is not wanted, claims and loads what
// is missing.
func (l *lane) claim(ctx context.Context) error {
	wanted, hold := l.wantedNow()
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
		if err := l.giveBack(ctx, surplus); err != nil {
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
	got, err := l.writer.Claim(ctx, missing)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	l.confirm(asked)
	if len(got) == 0 {
		l.back()
		return nil
	}
	loaded := newLoader(l.state.positions.most)
	if err := l.writer.Load(ctx, got, loaded); err != nil {
		return l.undo(ctx, got, fmt.Errorf("load: %w", err))
	}
	if err := l.refuseShards(ctx, loaded); err != nil {
		return err
	}
	l.state.merge(loaded.state, uint64(l.now().UnixMicro()))
	l.log.Info("took ownership of shards", "lane", l.name, "shards", len(loaded.shards), "owned", len(l.state.owned()))
	l.back()
	return nil
}

// refuseShards gives back those whose state contradicts the log, and leaves the others. They are
// loaded again later: where the reason was how they were read, they come back.
func (l *lane) refuseShards(ctx context.Context, loaded *loader) error {
	if len(loaded.bad) == 0 {
		return nil
	}
	for shard, why := range loaded.bad {
		l.log.Error("a shard is not served: its loaded state contradicts its log", "shard", shard, "error", why)
		l.metrics.shardRefused()
		l.refused[shard] = time.Now()
	}
	loaded.drop(func(shard int) bool { return loaded.bad[shard] != nil })
	return l.release(ctx, slices.Sorted(maps.Keys(loaded.bad)))
}

// refusals is when shards were refused.
type refusals map[int]time.Time

// refusedFor is how long a refused shard is let be.
const refusedFor = time.Second

// due leaves out what was refused just now.
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

// undo gives back shards that were claimed but could not be loaded.
func (l *lane) undo(ctx context.Context, got []int, why error) error {
	return errors.Join(why, l.release(ctx, got))
}

// back says that the database can be written to.
func (l *lane) back() {
	l.warned = false
	l.setAway(nil)
}

func (l *lane) giveBack(ctx context.Context, shards []int) error {
	l.checkpointAll()
	if l.writer == nil {
		return fmt.Errorf("release: %w", backend.ErrLost)
	}
	l.state.drop(func(shard int) bool { return slices.Contains(shards, shard) })
	l.log.Info("released shards", "lane", l.name, "shards", len(shards))
	return l.release(ctx, shards)
}

// release gives back shards that the state does not have. Where that fails, they may still be held,
// and nothing here would give them back later: the end of the connection frees them.
func (l *lane) release(ctx context.Context, shards []int) error {
	if err := l.writer.Release(ctx, shards); err != nil {
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

// resolve finds out what became of a batch whose commit ended without an answer: the shards are
// claimed again, on another connection, so that the old one can't commit any more; then the
// database is asked.
func (l *lane) resolve(ctx context.Context, p *plan, group []*entry, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveFor)
	defer cancel()
	committed, err := l.outcome(ctx, p)
	switch {
	case err != nil:
		l.log.Error("it is unknown whether a group was committed", "error", errors.Join(why, err), "messages", len(group))
		l.failed(p, group, code.New(wirev1.Code_CODE_INTERNAL, "outcome unknown: "+why.Error()))
	case committed:
		l.answer(group, p.results) // the state was loaded after it
	default:
		l.failed(p, group, code.Retry(wirev1.Code_CODE_UNAVAILABLE, unavailableRetry, "the database did not commit"))
	}
}

func (l *lane) outcome(ctx context.Context, p *plan) (bool, error) {
	for {
		err := l.claim(ctx)
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
			l.lose(err)
		}
		select {
		case <-ctx.Done():
			return false, err
		case <-time.After(resolvePause):
		}
	}
}

// finish commits what is queued, gives the shards back, and refuses the rest.
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
	l.setAway(errors.New("the store has stopped"))
}
