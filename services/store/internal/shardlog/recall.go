package shardlog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// A connection that is lost, by a commit that takes too long or by the network, costs a lane its
// shards, and mostly it has them back a moment later. What it knows of them may be millions of
// topics, and is still true if nobody else had them in between (backend.Hold), and if it is known
// what became of the lane's own last commit. So it is put aside, and brought back or dropped once
// the shards are taken again: meanwhile they count as not owned.

// asideFor bounds how long that is kept. Whether a batch was committed can be asked for an hour.
const asideFor = 30 * time.Minute

// unsettled is a batch of which nobody knows yet whether it was committed.
type unsettled struct {
	plan  *plan
	group []*entry // no more of them than apply looks at
	since time.Time
	// overtaken says that there was a later commit, of other shards.
	overtaken bool
}

func (u *unsettled) touches(shards []int) bool {
	return u != nil && slices.ContainsFunc(u.plan.batch.Commits, func(c backend.Commit) bool { return slices.Contains(shards, c.Shard) })
}

// doubt keeps a batch until its outcome is known. Its callers are answered before that, where it
// takes long, and what they gave is theirs again.
func (l *lane) doubt(p *plan, group []*entry) {
	if l.unsettled != nil { // an earlier one, whose shards were not taken again since
		l.forgetUnsettled()
	}
	u := &unsettled{plan: &plan{batch: p.batch, results: slices.Clone(p.results), waits: p.waits}, since: time.Now()}
	for _, e := range group {
		u.group = append(u.group, &entry{shard: e.shard, item: &meshv1.AppendItem{
			Topic: e.item.GetTopic(), ProducerId: slices.Clone(e.item.GetProducerId()), ProducerSeq: e.item.GetProducerSeq(),
		}})
	}
	l.unsettled = u
}

// forgetUnsettled gives up what is known of the shards of a batch that is in doubt.
func (l *lane) forgetUnsettled() {
	in := map[int]bool{}
	for _, c := range l.unsettled.plan.batch.Commits {
		in[c.Shard] = true
	}
	l.unsettled = nil
	l.state.dropAside(func(shard int) bool { return in[shard] })
}

// pruneAside drops what is aside of shards that are not wanted any more, and what is too old.
func (l *lane) pruneAside(wanted []int) {
	if l.unsettled != nil && time.Since(l.unsettled.since) > asideFor {
		l.forgetUnsettled()
	}
	l.state.dropAside(func(shard int) bool {
		_, found := slices.BinarySearch(wanted, shard)
		return !found || time.Since(l.state.aside[shard].lostAt) > asideFor
	})
}

// recall brings back what is aside of shards that were just taken, where it is still true, drops it
// where it is not, and returns the shards that have to be loaded.
func (l *lane) recall(ctx context.Context, got []int) (rest []int, err error) {
	if err := l.settle(ctx, got); err != nil {
		return nil, err
	}
	again := map[int]bool{}
	for _, n := range got {
		if sh := l.state.aside[n]; sh != nil && sh.hold != "" && sh.hold == l.writer.Hold(n) {
			again[n] = true
		}
	}
	if len(again) > 0 {
		same, err := l.notSetBack(ctx)
		if err != nil {
			return nil, err
		}
		if !same {
			clear(again)
		}
	}
	rest = slices.DeleteFunc(slices.Clone(got), func(n int) bool { return again[n] })
	l.state.dropAside(func(shard int) bool { return slices.Contains(rest, shard) })
	if len(again) > 0 {
		l.state.recall(again)
		for _, part := range l.unproven.parts { // the next checkpoint must not rely on them
			l.state.markUnstored(part)
		}
		l.metrics.took(0, len(again))
		l.log.Info("has shards again that nobody else had meanwhile; nothing of them was loaded", "lane", l.name, "shards", len(again), "owned", len(l.state.owned()))
	}
	return rest, nil
}

// committed notes which commit is the last one.
func (l *lane) committed(id backend.BatchID) {
	l.last, l.unproven = id, unproven{}
	if l.unsettled != nil {
		l.unsettled.overtaken = true
	}
}

// notSetBack reports whether the server has all that this lane knows was committed, and whether
// what was stored since can be stored again: one whose disk was set back has the same name.
func (l *lane) notSetBack(ctx context.Context) (bool, error) {
	if l.unproven.tooMany() {
		return false, nil
	}
	if l.last == (backend.BatchID{}) {
		return true, nil
	}
	there, err := l.writer.Committed(ctx, l.last)
	if err != nil {
		return false, fmt.Errorf("look for the last commit: %w", err)
	}
	return there, nil
}

// settle finds out what became of a batch in doubt, once one of its shards is this writer's: the
// connection that sent it is gone then. If it was committed, memory has it from then on. Ids of
// batches are forgotten after an hour of the database's clock, so that one that is not there was
// not committed only if an earlier one is (notSetBack looks): of a lane's first commit nothing
// tells.
func (l *lane) settle(ctx context.Context, got []int) error {
	u := l.unsettled
	if !u.touches(got) {
		return nil
	}
	committed, err := l.writer.Committed(ctx, u.plan.batch.ID)
	if err != nil {
		return fmt.Errorf("look for a commit whose outcome is unknown: %w", err)
	}
	if !committed && l.last == (backend.BatchID{}) {
		l.forgetUnsettled()
		return nil
	}
	l.unsettled = nil
	if committed {
		l.state.apply(u.plan, u.group)
		if !u.overtaken {
			l.last = u.plan.batch.ID
		}
	}
	return nil
}

// suspend puts every shard aside.
func (s *state) suspend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for n, sh := range s.shards {
		sh.lostAt = now
		s.aside[n] = sh
	}
	clear(s.shards)
	s.counted()
}

// recall brings shards back that are aside.
func (s *state) recall(again map[int]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ownerships++
	for n := range again {
		sh := s.aside[n]
		sh.ownership = s.ownerships
		s.shards[n] = sh
		delete(s.aside, n)
	}
	s.counted()
}

// dropAside forgets shards that are aside.
func (s *state) dropAside(gone func(shard int) bool) {
	which := map[int]bool{}
	for n := range s.aside {
		if gone(n) {
			which[n] = true
		}
	}
	if len(which) > 0 {
		s.drop(func(shard int) bool { return which[shard] })
	}
}

// knownShard is one that is owned or aside.
func (s *state) knownShard(n int) *shard {
	if sh := s.shards[n]; sh != nil {
		return sh
	}
	return s.aside[n]
}

// mine reports whether a topic that is known is of an owned shard. s.mu is held.
func (s *state) mine(name string) bool {
	return len(s.aside) == 0 || s.shards[topic.Shard(name)] != nil
}

// markUnstored marks what a checkpoint has as changed: it failed, or nobody knows whether it was
// stored, and the next one must not leave out what this one had.
func (s *state) markUnstored(c *backend.Checkpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range c.Shards {
		if sh := s.knownShard(x.Shard); sh != nil {
			sh.dirty = true
		}
	}
	for _, x := range c.Topics {
		if t := s.topic(x.Shard, x.Topic); t != nil {
			s.knownShard(x.Shard).topics.Changed(t, x.Topic)
		}
	}
	for _, x := range c.Producers {
		if p := s.positions.by[producerKey{x.ID, x.Topic}]; p != nil && !p.dirty {
			p.dirty = true
			s.positions.dirty++
		}
	}
}
