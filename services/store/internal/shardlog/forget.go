package shardlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog/heads"
)

// A topic is forgotten when none of its messages has been retained for Config.TopicTTL and it keeps
// none: its head leaves memory and the tables. Should it begin anew, then under a later epoch than
// all that it had: so no (topic, epoch, seq) is ever given twice. A shard has one epoch for all
// topics that begin in it; it grows when a topic that has it is forgotten, so once in the TTL at
// most.
//
// The forgetter finds such topics beside the lanes, in what is stored. A lane forgets those of
// which it knows the same, by a checkpoint that has the shard's new epoch and the topics without
// messages under it: of several states of a topic the one of the latest epoch holds, wherever they
// lie.

// ShortestTopicTTL is the least that Config.TopicTTL may be, but for 0.
const ShortestTopicTTL = time.Hour

const (
	// forgetEvery is how often the forgetter asks about topics of one shard.
	forgetEvery = time.Second
	// forgetRound is how long it takes for all shards at least, where the TTL is not shorter.
	forgetRound = time.Hour
	// forgetTimeout bounds one question.
	forgetTimeout = 30 * time.Second
	// clockSlack is more than clocks of stores and databases differ where they agree; a sixth of
	// the shortest TTL.
	clockSlack = 10 * time.Minute
)

// forgettable are topics of a shard that may be forgotten if they are still what was stored of
// them.
type forgettable struct {
	shard  int
	topics []backend.SilentTopic
}

// compacted is a smaller table for a shard.
type compacted struct {
	shard  int
	from   *heads.Table
	making *heads.Compaction
}

// forgetter owns a goroutine, which goes through the topics of all owned shards again and again.
type forgetter struct {
	log     *Log
	began   time.Time // of the round
	noted   bool      // the database knows that topics are forgotten
	shards  []int     // still to be looked at, the one at hand first
	after   string    // topic
	compact int       // shard that is done but for its table; -1: none
}

func newForgetter(g *Log) *forgetter { return &forgetter{log: g, compact: -1} }

func (f *forgetter) run(ctx context.Context) {
	ticker := time.NewTicker(forgetEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := f.step(ctx); err != nil && ctx.Err() == nil {
			f.log.cfg.Log.Warn("looking for topics to forget failed", "error", err)
		}
	}
}

// step asks about topics of one shard, if it is time. Shards without topics cost nothing.
func (f *forgetter) step(ctx context.Context) error {
	g := f.log
	for {
		if f.compact >= 0 {
			l := g.lane(f.compact)
			if l.forgets() {
				return nil
			}
			l.compact(f.compact)
			f.compact = -1
		}
		if len(f.shards) == 0 || g.lane(f.shards[0]).state.knowsTopics(f.shards[0]) {
			break
		}
		f.shards, f.after = f.shards[1:], ""
	}
	if len(f.shards) == 0 {
		now := g.cfg.Now()
		if since := now.Sub(f.began); since >= 0 && since < min(forgetRound, g.cfg.TopicTTL) {
			return nil
		}
		f.began, f.shards, f.after = now, g.Owned(), ""
		return nil
	}
	shard := f.shards[0]
	l := g.lane(shard)
	if !g.ages() || l.forgets() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	found, next, err := f.find(ctx, l, shard)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		l.handForgettable(&forgettable{shard, found})
	}
	if f.after = next; next != "" {
		return nil
	}
	f.shards, f.after, f.compact = f.shards[1:], "", shard
	return nil
}

// find returns topics that may be forgotten, and where to go on.
func (f *forgetter) find(ctx context.Context, l *lane, shard int) (found []backend.SilentTopic, next string, err error) {
	g := f.log
	before := g.cfg.Now().Add(-g.cfg.TopicTTL - min(clockSlack, g.cfg.TopicTTL/6))
	silent, next, err := l.backend.Silent(ctx, shard, f.after, uint64(before.UnixMicro()))
	if err != nil {
		return nil, "", fmt.Errorf("silent topics of shard %d: %w", shard, err)
	}
	table := g.cfg.Policies()
	silent = slices.DeleteFunc(silent, func(t backend.SilentTopic) bool {
		// of a namespace that this store does not understand it knows no retention
		return table.Refuses(t.Topic.Topic) != nil || t.At >= uint64(before.Add(-table.For(t.Topic.Topic).Retention).UnixMicro())
	})
	silent = l.state.unchanged(shard, silent)
	if len(silent) > checkpointPart {
		silent = silent[:checkpointPart]
		next = silent[checkpointPart-1].Topic.Topic
	}
	if found, err = f.unretained(ctx, l, silent); err != nil || len(found) == 0 || f.noted {
		return found, next, err
	}
	if err := g.cfg.Backend.ForgetTopics(ctx); err != nil {
		return nil, "", fmt.Errorf("say that topics are forgotten: %w", err)
	}
	f.noted = true
	return found, next, nil
}

// unretained leaves out topics of which the log has a message that is still retained: the time that
// is stored with a topic is when its state was folded, by whatever version of the store.
func (f *forgetter) unretained(ctx context.Context, l *lane, silent []backend.SilentTopic) ([]backend.SilentTopic, error) {
	if len(silent) == 0 {
		return nil, nil
	}
	questions := make([]backend.OldestQuestion, len(silent))
	for i, t := range silent {
		questions[i] = backend.OldestQuestion{Topic: t.Topic.Topic, Epoch: t.Epoch, NotBefore: f.log.notBefore(t.Topic.Topic, false), From: t.Oldest}
	}
	answers, err := l.backend.Oldest(ctx, questions)
	if err != nil {
		return nil, fmt.Errorf("oldest of silent topics: %w", err)
	}
	var found []backend.SilentTopic
	for i, a := range answers {
		if a.Seq == 0 {
			found = append(found, silent[i])
		}
	}
	return found, nil
}

// knowsTopics reports whether a shard is owned and has topics.
func (s *state) knowsTopics(shard int) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	sh := s.shards[shard]
	return sh != nil && sh.topics.Len() > 0
}

// unchanged returns the topics of an owned shard that are what was stored of them, with nothing
// that waits to be stored, and keep no message.
func (s *state) unchanged(shard int, all []backend.SilentTopic) (same []backend.SilentTopic) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	sh := s.shards[shard]
	if sh == nil {
		return nil
	}
	for _, x := range all {
		if t := sh.topics.Get(x.Topic.Topic); t != nil && sh.topics.Epoch(t) == x.Epoch && t.Head == x.Head && !t.Unstored() && !t.Keeps() {
			same = append(same, x)
		}
	}
	return same
}

// forgets reports whether the lane has something to forget.
func (l *lane) forgets() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forgettable != nil || l.compacted != nil
}

func (l *lane) handForgettable(some *forgettable) {
	l.mu.Lock()
	l.forgettable = some
	l.mu.Unlock()
}

// compact makes a smaller table of a shard's topics where many were forgotten, beside the lane.
func (l *lane) compact(shard int) {
	s := l.state
	topics := s.topicsOf(shard)
	if topics == nil {
		return
	}
	s.mu.RLock()
	sparse := topics.Sparse()
	s.mu.RUnlock()
	if !sparse {
		return
	}
	making := topics.Compact()
	for more := true; more; {
		s.mu.RLock()
		more = making.Some()
		s.mu.RUnlock()
	}
	making.Index()
	l.mu.Lock()
	l.compacted = &compacted{shard, topics, making}
	l.mu.Unlock()
}

// forgetTopics forgets what the forgetter has found, and takes a smaller table that it has made. A
// checkpoint that is under way ends first: it may name the topics.
func (l *lane) forgetTopics() {
	if l.checkpoints.rest != nil {
		return
	}
	l.mu.Lock()
	some, smaller := l.forgettable, l.compacted
	l.forgettable, l.compacted = nil, nil
	l.mu.Unlock()
	if smaller != nil {
		l.state.replaceTable(smaller)
	}
	if some == nil || l.writer == nil || l.known() != nil || l.ages() != nil {
		return
	}
	found := l.state.unchanged(some.shard, some.topics)
	if len(found) == 0 {
		return
	}
	sh := l.state.shards[some.shard]
	born := sh.newest()
	if slices.ContainsFunc(found, func(t backend.SilentTopic) bool { return t.Epoch >= born }) {
		born = max(uint64(l.now().UnixMicro()), born+1)
	}
	gone := &backend.Checkpoint{Shards: []backend.Shard{{Shard: some.shard, Epoch: sh.epoch, Born: born}}}
	for _, t := range found {
		gone.Topics = append(gone.Topics, backend.Topic{Shard: some.shard, Topic: t.Topic.Topic, Epoch: born, Oldest: 1})
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	switch err := l.writer.Checkpoint(ctx, gone); {
	case err == nil:
		l.state.forgetTopics(some.shard, born, found)
		l.unproven.forgot = true
		l.metrics.topicsForgotten.Add(float64(len(found)))
	case errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrUnknown):
		// Whether they are forgotten only the database can tell.
		l.dropWriter(err)
		l.state.dropAside(func(shard int) bool { return shard == some.shard })
	default:
		l.log.Warn("forgetting topics failed", "error", err)
	}
}

// forgetTopics has topics of an owned shard be forgotten. Those that begin from now on have the
// epoch born.
func (s *state) forgetTopics(shard int, born uint64, gone []backend.SilentTopic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.shards[shard]
	sh.born = born
	for _, x := range gone {
		sh.topics.Forget(sh.topics.Get(x.Topic.Topic))
	}
}

// replaceTable has a shard go on with the smaller table, if it was made of the one that it has.
func (s *state) replaceTable(c *compacted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh := s.shards[c.shard]; sh != nil && sh.topics == c.from {
		sh.topics = c.making.End()
	}
}

// topicsKnown is how many topics of owned shards are known. The lane calls it.
func (s *state) topicsKnown() (n int) {
	for _, sh := range s.shards {
		n += sh.topics.Len()
	}
	return n
}
