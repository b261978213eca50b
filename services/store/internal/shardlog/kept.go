package shardlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tidwall/btree"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog/heads"
)

// keptTooMany refuses what would have a further topic keep a message where no more may. What was
// taken before, as scheduled messages, is not refused any more.
func (p *planner) keptTooMany(e *entry) error {
	if !p.policies.KeepsLast() || e.cancels != nil || e.item.GetDue() != 0 || e.item.GetDeliverAt() > p.now {
		return nil
	}
	name := e.item.GetTopic()
	pol := p.policies.For(name)
	if !pol.KeepLast || p.keepsNow(name) || !wire.HasPayload(e.item.GetBody()) {
		return nil
	}
	most := pol.MaxKept
	if p.s.share != nil {
		most = p.s.share(most)
	}
	fresh := p.freshKept[pol.Prefix]
	if p.s.keptAll()+fresh < most || p.s.keptUnder(pol, p.policies)+fresh < most {
		return nil
	}
	return code.New(wirev1.Code_CODE_TOO_MANY_TOPICS,
		fmt.Sprintf("%d topics of namespace %q keep a message, and no more may (max_kept): delete some first", pol.MaxKept, pol.Prefix))
}

// keepsNow reports whether a topic keeps a message once the plan is committed.
func (p *planner) keepsNow(name string) bool {
	if g := p.topics[name]; g != nil {
		return g.keeps
	}
	t := p.s.topic(topic.Shard(name), name)
	return t != nil && t.Keeps()
}

// keepLast notes that the topic's newest message is kept, or that it deletes.
func (p *planner) keepLast(g *growing, keeps bool) {
	if g.keeps == keeps {
		return
	}
	if p.freshKept == nil {
		p.freshKept = map[string]int{}
	}
	if g.keeps = keeps; keeps {
		p.freshKept[g.policy.Prefix]++
	} else {
		p.freshKept[g.policy.Prefix]--
	}
}

// packKept puts into the batch what the topic keeps from now on, or that it keeps nothing more.
func (p *planner) packKept(g *growing) {
	t := p.s.topic(g.shard, g.topic)
	switch {
	case g.policy.KeepLast && g.keeps:
		last := &g.records[len(g.records)-1]
		p.batch.Kept = append(p.batch.Kept, backend.Kept{
			Shard: g.shard, Topic: g.topic, Epoch: g.epoch, Seq: g.first + uint64(len(g.records)) - 1, At: p.now, Until: last.ExpiresAt,
			Packed: run.Pack(nil, g.records[len(g.records)-1:]),
		})
	case t != nil && t.Keeps():
		p.batch.Unkept = append(p.batch.Unkept, backend.Kept{Shard: g.shard, Topic: g.topic, Epoch: g.epoch, Seq: t.Head})
	}
}

// applyKept brings the state up to what was committed; the heads are.
func (s *state) applyKept(b *backend.Batch) {
	for i := range b.Unkept {
		s.letGo(b.Unkept[i].Topic)
	}
	for i := range b.Kept {
		s.keep(&b.Kept[i])
	}
	s.counted()
}

// keep notes that a topic keeps the message at its head.
func (s *state) keep(k *backend.Kept) {
	t := s.topic(k.Shard, k.Topic)
	if t == nil { // its shard is neither owned nor aside
		return
	}
	if !t.Keeps() {
		t.SetKeeps(true)
		s.keeping.Insert(k.Topic)
	}
	if k.Until != 0 {
		s.keptUntil[k.Topic] = k.Until
	} else {
		delete(s.keptUntil, k.Topic)
	}
}

// letGo notes that a topic keeps nothing.
func (s *state) letGo(name string) {
	if t := s.topic(topic.Shard(name), name); t != nil {
		t.SetKeeps(false)
	}
	s.keeping.Delete(name)
	delete(s.keptUntil, name)
}

// LoadKept compares: a topic keeps its newest message, or none. What an earlier version of the
// store wrote after it has taken its place.
func (l *loader) LoadKept(k backend.Kept) {
	if !l.present(k.Shard, k.Topic, k.Epoch) {
		return
	}
	head, past := l.headOf(k.Shard, k.Topic, k.Epoch)
	switch {
	case past || head == 0 && l.mayBeForgotten(k.Shard, k.Topic, k.Epoch, k.At):
		// what keeps a message is not forgotten: this one is no longer kept
	case head < k.Seq:
		l.refuse(k.Shard, fmt.Errorf("topic %q has head %d, and keeps its message %d", k.Topic, head, k.Seq))
	case head == k.Seq:
		l.keep(&k)
	}
}

// keptAt is the time by which what is kept has expired: that of the clock, or 0 while it is in
// doubt. Then nothing has.
func keptAt(now func() time.Time, ages func() error) uint64 {
	if ages() != nil {
		return 0
	}
	return uint64(now().UnixMicro())
}

// keptSeq says which message a topic keeps at a time of keptAt; 0: none.
func (s *state) keptSeq(name string, t *heads.Topic, pol *policy.Policy, now uint64) uint64 {
	if !t.Keeps() || !pol.KeepLast {
		return 0
	}
	if until := s.keptUntil[name]; until != 0 && until <= now {
		return 0
	}
	return t.Head
}

// keptAll is how many topics keep a message, of all lanes of this store.
func (s *state) keptAll() int {
	n := s.keeping.Len()
	for _, o := range s.others {
		n += int(o.kept.Load())
	}
	return n
}

// keptUnder is how many topics of a namespace keep a message, of all lanes of this store. The lane
// of s calls it.
func (s *state) keptUnder(pol *policy.Policy, policies *policy.Table) int {
	nested := policies.Nested(pol.Prefix)
	n := countUnder(&s.keeping, pol.Prefix, nested)
	for _, o := range s.others {
		o.mu.RLock()
		n += countUnder(&o.keeping, pol.Prefix, nested)
		o.mu.RUnlock()
	}
	return n
}

// countUnder counts the names under a prefix without those under the ones nested in it. Its cost
// grows with the number of these, not of the names.
func countUnder(names *btree.Set[string], prefix string, nested []*policy.Policy) int {
	n := names.Len()
	if prefix != policy.Default {
		n = under(names, prefix)
	}
	for _, p := range nested {
		n -= under(names, p.Prefix)
	}
	return n
}

// under counts the names that have a prefix of whole levels.
func under(names *btree.Set[string], prefix string) int {
	n := place(names, prefix+string(rune('/'+1))) - place(names, prefix+"/")
	if names.Contains(prefix) {
		n++
	}
	return n
}

// place is how many names are less.
func place(names *btree.Set[string], name string) int {
	low, high := 0, names.Len()
	for low < high {
		mid := int(uint(low+high) / 2)
		if at, _ := names.GetAt(mid); at < name {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// keptShare is this store's part of a bound. Topics lie in shards by hash, so that a store that has
// a part of the shards has about that part of the topics: it may have four standard deviations
// more.
func (g *Log) keptShare(most int) int {
	owned := 0
	for _, l := range g.lanes {
		owned += int(l.state.shardsOwned.Load())
	}
	if owned >= topic.Shards {
		return most
	}
	part := float64(most) * float64(owned) / topic.Shards
	return min(most, int(math.Ceil(part+4*math.Sqrt(part))))
}

// sweepMost is how many topics that keep a message one step of a sweep looks at: about 1 ms. It
// deletes checkpointPart of them at most: appends wait for that.
const sweepMost = 4096

// sweepKept deletes what topics keep whose namespace has nothing kept any more, and what has
// expired: some topics at each call, all of them again and again.
func (l *lane) sweepKept(ctx context.Context) error {
	s, table, now := l.state, l.policies(), keptAt(l.now, l.ages)
	l.metrics.keeps(l.name, s.keeping.Len())
	if l.writer == nil || l.known() != nil || s.keeping.Len() == 0 {
		return nil
	}
	var gone []backend.Kept
	looked, at := 0, l.sweptTo
	l.sweptTo = ""
	s.keeping.Ascend(at, func(name string) bool {
		if looked++; looked > sweepMost || len(gone) == checkpointPart {
			l.sweptTo = name
			return false
		}
		n := topic.Shard(name)
		if t := s.topic(n, name); s.shards[n] != nil && s.keptSeq(name, t, table.For(name), now) == 0 {
			gone = append(gone, backend.Kept{Shard: n, Topic: name, Epoch: s.shards[n].epochOf(t), Seq: t.Head})
		}
		return true
	})
	if len(gone) == 0 {
		return nil
	}
	if err := l.writer.Checkpoint(ctx, &backend.Checkpoint{Unkept: gone}); err != nil {
		return fmt.Errorf("delete what topics kept: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range gone {
		s.letGo(gone[i].Topic)
	}
	s.counted()
	return nil
}

// readKept visits the message that a topic keeps, if that is still the one of its head: another
// one may have taken its place, and it was not retained.
func (g *Log) readKept(ctx context.Context, h *meshv1.Head, visit func(seq uint64, r *run.Record) bool) (found bool, err error) {
	k, err := g.cfg.Backend.Kept(ctx, h.GetTopic())
	switch {
	case errors.Is(err, backend.ErrNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("what a topic keeps: %w", err)
	case k.Epoch != h.GetEpoch() || k.Seq != h.GetHead():
		return false, nil
	}
	return true, run.Each(k.Packed, func(_ int, r *run.Record) bool { return visit(k.Seq, r) })
}

// ListKept answers with the topics behind one, in order, that keep a message and match a filter (no
// filter: all), limit at most, and says whether there are more, and of which shards these are all:
// one that is not loaded has none, which does not mean that its topics keep nothing.
func (g *Log) ListKept(ctx context.Context, filters []string, after string, limit int) (kept []*meshv1.Head, shards topic.ShardSet, more bool, err error) {
	unsure, err := g.sureOf(ctx, nil, true)
	if err != nil {
		return nil, nil, false, err
	}
	if len(filters) == 0 {
		filters = []string{"#"}
	}
	for _, f := range filters {
		if err := topic.CheckFilter(f); err != nil {
			return nil, nil, false, code.New(wirev1.Code_CODE_BAD_TOPIC, err.Error())
		}
	}
	if len(unsure) > 0 {
		return nil, nil, false, code.Retry(wirev1.Code_CODE_UNAVAILABLE, unavailableRetry, "the database has not answered for some shards")
	}
	before := g.ownershipsNow()
	for q := newKeptQuery(filters); len(kept) == 0; {
		var names []string
		if names, more = g.keepers(q, after, limit); len(names) == 0 {
			break
		}
		after = names[len(names)-1]
		for _, name := range names {
			h, _, err := g.head(name)
			if code.Of(err) == wirev1.Code_CODE_CONFLICT || err == nil && h.GetKept() == 0 {
				continue // lost, or deleted since it matched
			}
			if err != nil {
				return nil, nil, false, err
			}
			kept = append(kept, h)
		}
	}
	return kept, g.ownedSince(before), more, nil
}

// keptQuery finds topics that keep a message: by their levels where few match, whether they keep
// one or not; else by their names in order, so that a page costs little.
type keptQuery struct {
	levels *heads.Query
	order  *matcher
}

func newKeptQuery(filters []string) keptQuery {
	return keptQuery{heads.NewQuery(filters), newMatcher(filters)}
}

// fewMatches is about how many topics a lane finds by their levels for a page.
const fewMatches = 10_000

// keepers are names of topics behind one that match and may keep a message, limit at most, and
// whether there are more.
func (g *Log) keepers(q keptQuery, after string, limit int) (names []string, more bool) {
	for _, l := range g.lanes {
		if l.state.atMost(q.levels, fewMatches) {
			l.state.matching(q.levels, func(name string, t *heads.Topic) bool {
				if t.Keeps() && name > after {
					names = append(names, name)
				}
				return true
			})
			continue
		}
		n := 0
		q.order.names(&l.state.mu, &l.state.keeping, after, func(name string) bool {
			if !l.state.mine(name) {
				return true
			}
			names = append(names, name)
			n++
			return n <= limit
		})
	}
	slices.Sort(names)
	names = slices.Compact(names) // what several filters match
	if more = len(names) > limit; more {
		names = names[:limit]
	}
	return names, more
}

// ownershipsNow are those of each lane.
func (g *Log) ownershipsNow() []map[int]uint64 {
	all := make([]map[int]uint64, len(g.lanes))
	for i, l := range g.lanes {
		all[i] = l.state.ownershipsNow()
	}
	return all
}

// ownedSince are the shards that were owned all the time since ownershipsNow said so: nothing of
// theirs was missing meanwhile.
func (g *Log) ownedSince(before []map[int]uint64) topic.ShardSet {
	shards := topic.NewShardSet()
	for i, l := range g.lanes {
		for n, ownership := range l.state.ownershipsNow() {
			if before[i][n] == ownership {
				shards.Add(n)
			}
		}
	}
	return shards
}
