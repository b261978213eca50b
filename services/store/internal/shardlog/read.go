package shardlog

import (
	"context"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog/heads"
)

// oldestSlack bounds how late a passed retention is noticed: the smaller of this and a twentieth of
// it.
const oldestSlack = 10 * time.Second

// Heads answers for the topics named, which must be of owned shards, and for the owned ones that
// match a filter, each once. More than limit matches (0: any number) are refused.
func (g *Log) Heads(ctx context.Context, topics, filters []string, limit int) ([]*meshv1.Head, error) {
	all, _, err := g.Survey(ctx, topics, filters, limit)
	return all, err
}

// Survey answers as Heads does, and says which shards the filters were compared with: one that is
// not loaded has no matches, which does not mean that it has no topics.
func (g *Log) Survey(ctx context.Context, topics, filters []string, limit int) ([]*meshv1.Head, topic.ShardSet, error) {
	unsure, err := g.sureOf(ctx, topics, len(filters) > 0)
	if err != nil {
		return nil, nil, err
	}
	all := make([]*meshv1.Head, 0, len(topics))
	seen := make(map[string]bool, len(topics))
	var stale []*meshv1.Head
	take := func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		h, fresh, err := g.head(name)
		if err != nil {
			return err
		}
		all = append(all, h)
		if !fresh {
			stale = append(stale, h)
		}
		return nil
	}
	for _, name := range topics {
		if err := topic.Check(name); err != nil {
			return nil, nil, code.New(wirev1.Code_CODE_BAD_TOPIC, err.Error())
		}
		if err := take(name); err != nil {
			return nil, nil, err
		}
	}
	matches, shards, err := g.match(filters, limit, unsure)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range matches {
		switch err := take(name); {
		case code.Of(err) == wirev1.Code_CODE_CONFLICT: // lost since it matched
			shards.Remove(topic.Shard(name))
		case err != nil:
			return nil, nil, err
		}
	}
	if err := g.refresh(ctx, stale); err != nil {
		return nil, nil, err
	}
	for _, h := range all {
		if h.GetKept() > 0 { // it is retained, however old it is
			h.Oldest = min(h.GetOldest(), h.GetKept())
		}
	}
	return all, shards, nil
}

// head of a topic as memory has it; fresh reports whether its oldest is.
func (g *Log) head(name string) (h *meshv1.Head, fresh bool, err error) {
	n := topic.Shard(name)
	l := g.lane(n)
	l.state.mu.RLock()
	defer l.state.mu.RUnlock()
	sh := l.state.shards[n]
	if sh == nil {
		return nil, false, l.notOwned(n)
	}
	t := sh.topics.Get(name)
	if t == nil {
		return &meshv1.Head{Topic: name, Epoch: sh.newest(), Oldest: 1}, true, nil
	}
	h = &meshv1.Head{Topic: name, Epoch: sh.topics.Epoch(t), Head: t.Head, Oldest: t.Oldest}
	if t.Keeps() {
		h.Kept = l.state.keptSeq(name, t, g.cfg.Policies().For(name), keptAt(g.cfg.Now, g.cfg.Ages))
	}
	return h, t.Oldest > t.Head || t.OldestAt >= g.notBefore(name, true) || !g.ages(), nil
}

// notOwned says why a shard can't be read here: another store has it, or none has it now.
func (l *lane) notOwned(shard int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wanted[shard] {
		return code.Retry(wirev1.Code_CODE_UNAVAILABLE, unavailableRetry, "this store does not own the shard")
	}
	return code.New(wirev1.Code_CODE_CONFLICT, "another store owns the shard")
}

// ages reports whether it can be told what is too old. Oldest never falls: what is found too old
// once is so for ever.
func (g *Log) ages() bool { return g.cfg.Known() == nil && g.cfg.Ages() == nil }

// notBefore is the time before which a topic's messages are no longer retained.
func (g *Log) notBefore(name string, slack bool) uint64 {
	keep := g.cfg.Policies().For(name).Retention
	if slack {
		keep += min(oldestSlack, keep/20)
	}
	return uint64(g.cfg.Now().Add(-keep).UnixMicro())
}

// match leaves the shards of unsure lanes out.
func (g *Log) match(filters []string, limit int, unsure map[*lane]bool) (names []string, shards topic.ShardSet, err error) {
	if len(filters) == 0 {
		return nil, nil, nil
	}
	for _, f := range filters {
		if err := topic.CheckFilter(f); err != nil {
			return nil, nil, code.New(wirev1.Code_CODE_BAD_TOPIC, err.Error())
		}
	}
	shards = topic.NewShardSet()
	q := heads.NewQuery(filters)
	for _, l := range g.lanes {
		if unsure[l] {
			continue
		}
		before := l.state.ownershipsNow()
		seen := map[string]bool{} // by several filters
		l.state.matching(q, func(name string, _ *heads.Topic) bool {
			if q.Len() == 1 || !seen[name] {
				names = append(names, name)
				seen[name] = q.Len() > 1
			}
			return limit == 0 || len(names) <= limit
		})
		if limit > 0 && len(names) > limit {
			return nil, nil, code.New(wirev1.Code_CODE_TOO_MANY_TOPICS, fmt.Sprintf("more than %d topics match", limit))
		}
		for n, ownership := range l.state.ownershipsNow() {
			if before[n] == ownership { // all of it was there all the time
				shards.Add(n)
			}
		}
	}
	return names, shards, nil
}

// refresh asks the database for the oldest retained seq of topics whose known one may have passed.
func (g *Log) refresh(ctx context.Context, stale []*meshv1.Head) error {
	if len(stale) == 0 {
		return nil
	}
	questions := make([]backend.OldestQuestion, len(stale))
	for i, h := range stale {
		questions[i] = backend.OldestQuestion{Topic: h.GetTopic(), Epoch: h.GetEpoch(), NotBefore: g.notBefore(h.GetTopic(), false), From: h.GetOldest()}
	}
	answers, err := g.cfg.Backend.Oldest(ctx, questions)
	if err != nil {
		return fmt.Errorf("oldest: %w", err)
	}
	for i, h := range stale {
		s := g.lane(topic.Shard(h.GetTopic())).state
		s.mu.Lock()
		err := s.retained(h, answers[i], questions[i].NotBefore)
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// retained takes an answer of the database into the head asked about and into the state. Oldest
// never falls, and never passes a message that is not too old: an answer that says so is refused.
func (s *state) retained(h *meshv1.Head, a backend.OldestAnswer, notBefore uint64) error {
	if a.Seq == 0 || a.Seq > h.GetHead() { // nothing was retained when the head was read
		a = backend.OldestAnswer{Seq: h.GetHead() + 1}
	}
	var t *heads.Topic
	sh := s.shards[topic.Shard(h.GetTopic())]
	if sh != nil {
		t = sh.topics.Get(h.GetTopic())
	}
	same := t != nil && sh.topics.Epoch(t) == h.GetEpoch()
	if same && a.Seq > t.Oldest && t.OldestAt >= notBefore && t.OldestAt != 0 {
		return fmt.Errorf("oldest would pass message %d to %d, though it is of %s and retained from %s on", t.Oldest, a.Seq,
			time.UnixMicro(int64(t.OldestAt)).UTC(), time.UnixMicro(int64(notBefore)).UTC())
	}
	h.Oldest = max(h.GetOldest(), a.Seq)
	if !same || a.Seq < t.Oldest {
		return nil
	}
	if a.Seq != t.Oldest {
		sh.topics.Changed(t, h.GetTopic())
	}
	t.Oldest, t.OldestAt = a.Seq, a.At
	return nil
}

// Position says where a read begins and ends.
type Position struct {
	Epoch, Head, Oldest uint64
}

// Read visits the records of a topic from seq from to seq to (0: the head), as far as they are
// retained, until visit returns false. begin is told the topic's position first. An epoch (not 0)
// that is not the present one is refused.
func (g *Log) Read(ctx context.Context, name string, epoch, from, to uint64, begin func(Position) error, visit func(seq uint64, r *run.Record) bool) error {
	all, err := g.Heads(ctx, []string{name}, nil, 0)
	if err != nil {
		return err
	}
	h := all[0]
	if epoch != 0 && epoch != h.GetEpoch() {
		return code.New(wirev1.Code_CODE_EPOCH_CHANGED, fmt.Sprintf("the topic's epoch is %d now", h.GetEpoch()))
	}
	if err := begin(Position{h.GetEpoch(), h.GetHead(), h.GetOldest()}); err != nil {
		return err
	}
	from = max(from, h.GetOldest(), 1)
	if to == 0 || to > h.GetHead() {
		to = h.GetHead()
	}
	if from > to {
		return nil
	}
	if from == h.GetKept() { // a look at one row, wherever its run lies
		if found, err := g.readKept(ctx, h, visit); found || err != nil {
			return err
		}
	}
	var bad error
	reached, stopped := uint64(0), false
	pacing := g.pace.reader()
	defer pacing.done()
	err = g.cfg.Backend.ReadRuns(ctx, name, h.GetEpoch(), from, to, func(r backend.Run) bool {
		pacing.read(ctx, r.N, len(r.Packed))
		more := true
		bad = run.Each(r.Packed, func(i int, rec *run.Record) bool {
			if seq := r.First + uint64(i); seq >= from && seq <= to {
				more = visit(seq, rec)
				reached, stopped = seq, !more
			}
			return more
		})
		return more && bad == nil
	})
	if bad != nil {
		return fmt.Errorf("log of a topic: %w", bad)
	}
	if err == nil && !stopped && reached < h.GetKept() && to == h.GetKept() {
		_, err = g.readKept(ctx, h, visit)
	}
	return err
}

// Owns reports whether a shard is this store's now; the error says who to ask.
func (g *Log) Owns(shard int) error {
	l := g.lane(shard)
	if l.state.owns(shard) {
		return nil
	}
	return l.notOwned(shard)
}
