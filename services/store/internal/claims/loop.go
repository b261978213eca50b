package claims

import (
	"context"
	"errors"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/claims/book"
)

const (
	// look bounds how late it is noticed that a shard came or went.
	look = 50 * time.Millisecond
	// probeEvery is how often the database is asked for its time, and whether the writer is good,
	// while there is nothing to commit.
	probeEvery = time.Second
	// stepOps operations, and stepDue places that fell due, go into one commit.
	stepOps = 512
	stepDue = 1024
	// soonest is the shortest wait for what falls due.
	soonest = time.Millisecond

	// stepTimeout bounds each question to the database, takeTimeout the reading of shards.
	stepTimeout = 5 * time.Second
	takeTimeout = 30 * time.Second
	// firstPause is the pause before another writer is opened; it doubles up to lastPause.
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
	// patience of an operation whose shard is not loaded yet, or with the database away.
	patience = time.Second
)

func (l *Lane) loop(ctx context.Context) {
	pause, since := firstPause, time.Now()
	for ctx.Err() == nil {
		served, err := l.serve(ctx)
		if ctx.Err() != nil {
			l.close(nil)
			return
		}
		l.close(err)
		if served {
			pause, since = firstPause, time.Now()
		}
		l.wait(ctx, pause, since)
		pause = min(2*pause, lastPause)
	}
}

// wait pauses. Operations wait a little for the next writer.
func (l *Lane) wait(ctx context.Context, pause time.Duration, since time.Time) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		if time.Since(since) > patience || l.cfg.Away() != nil {
			l.refuseAll()
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-l.kick:
		}
	}
}

// serve works with one writer, until an error or the end; served: it has got as far as to serve.
func (l *Lane) serve(ctx context.Context) (served bool, err error) {
	if err := l.cfg.Away(); err != nil {
		return false, err
	}
	if why := l.cfg.Policies().Known(); why != nil {
		return false, why
	}
	if err := l.open(ctx); err != nil {
		return false, err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, nil
		case <-timer.C:
		case <-l.kick:
		}
		wait, err := l.turn(ctx)
		if err != nil {
			return served, err
		}
		served = served || l.away == nil // only this goroutine writes it
		timer.Reset(wait)
	}
}

// open opens a writer and makes a book, which knows all nodes that are here.
func (l *Lane) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	writer, err := l.cfg.Backend.OpenClaims(ctx, l.cfg.Owner)
	if err != nil {
		return err
	}
	l.writer, l.book = writer, book.New(book.Config{Rules: l.rules, UserPlaces: l.cfg.UserPlaces})
	l.running, l.ended = context.WithCancel(context.Background())
	l.shards = shards{size: firstGroup}
	l.mu.Lock()
	for node := range l.nodes {
		l.changed[node] = struct{}{}
	}
	l.mu.Unlock()
	return l.commit(l.book.Take()) // what time is it?
}

// close closes the writer and forgets everything. Nodes have to ask again: notices that were not
// sent are lost.
func (l *Lane) close(why error) {
	if l.writer == nil {
		l.is(why)
		return
	}
	l.ended()
	if err := l.writer.Close(); err != nil {
		l.cfg.Log.Debug("closing the database connection of claims failed", "error", err)
	}
	l.writer, l.book = nil, nil
	l.metrics.state(book.Stats{})
	if why == nil {
		l.is(errNotOpen)
		return
	}
	l.is(why)
	l.metrics.reloads.Inc()
	if errors.Is(why, backend.ErrFenced) {
		l.cfg.Log.Warn("another store has taken over claims of this store: all claims are loaded again")
	} else {
		l.cfg.Log.Warn("a commit of claims failed: all claims are loaded again", "error", why)
	}
	l.refuse(l.parked, errAway)
	l.parked = nil
	l.endStreams()
}

// turn does what there is to do now, and says when the next is.
func (l *Lane) turn(ctx context.Context) (wait time.Duration, err error) {
	more, err := l.follow(ctx)
	if err != nil {
		return 0, err
	}
	b := l.gather()
	defer b.fail() // what is not answered by then
	now := l.clock.now(time.Now())
	l.meet(now, b)
	for _, p := range b.prepared {
		if p.running == l.running {
			l.book.Prepared(now, p.key, p.token, p.ok)
		}
	}
	if l.ruled.Swap(false) {
		l.book.Refresh(now)
	}
	due, any := l.book.Due()
	if any && due <= now {
		more = l.book.Advance(now, stepDue) || more
	}
	l.apply(now, b.ops)
	b.list(l.book)
	step := l.book.Take()
	if !step.Empty() || len(b.lists) > 0 || time.Since(l.committed) >= probeEvery {
		if err := l.commit(step); err != nil {
			l.fail(step)
			return 0, err
		}
		l.report(step)
		b.listed()
		if any && due <= now && step.Counts.Ended[wirev1.Code_CODE_EXPIRED] > 0 {
			l.metrics.lag.Observe(float64(l.clock.now(time.Now())-due) / 1e6)
		}
	}
	if more || b.more {
		return 0, nil
	}
	return l.idle(), nil
}

// idle is how long there is nothing to do, if nothing comes.
func (l *Lane) idle() time.Duration {
	due, any := l.book.Due()
	if !any {
		return look
	}
	now := l.clock.now(time.Now())
	if due <= now {
		return soonest
	}
	if due-now > uint64(look.Microseconds()) {
		return look
	}
	return max(soonest, time.Duration(due-now)*time.Microsecond)
}
