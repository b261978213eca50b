package shardlog

import (
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
)

// plan is what becomes of the entries of one group commit. It is made from the state without changing it; committed, it is applied.
type plan struct {
	batch *backend.Batch
	// results by entry; those of entries whose append hangs on the commit hold what is answered once it succeeded.
	results []*meshv1.AppendResult
	// waits says which results hold only after the commit.
	waits []bool
	// asks are duplicates by number whose first result must be looked for in the log.
	asks []int
}

// planner makes a plan. Everything that it decides follows from its fields and the entries.
type planner struct {
	*plan
	s        *state
	now      uint64
	policies *policy.Table
	most     int // producers that the lane remembers

	topics    map[string]*growing
	order     []*growing // of topics, so that a plan is the same each time
	commits   map[int]uint64
	keys      map[backend.KeyHash]int // entry that uses a key first
	positions map[producerKey]*taken
}

// growing is a topic that this plan appends to.
type growing struct {
	topic   string
	shard   int
	epoch   uint64
	first   uint64
	records []run.Record
	policy  *policy.Policy
}

// taken is an ordered producer's numbers in this plan, from first on: which entry has which.
type taken struct {
	last    uint64
	entries map[uint64]int
}

func newPlan(s *state, entries []*entry, id backend.BatchID, now uint64, policies *policy.Table, mostProducers int) *plan {
	p := &planner{
		plan: &plan{
			batch:   &backend.Batch{ID: id, At: now},
			results: make([]*meshv1.AppendResult, len(entries)), waits: make([]bool, len(entries)),
		},
		s: s, now: now, policies: policies, most: mostProducers,
		topics: map[string]*growing{}, commits: map[int]uint64{}, keys: map[backend.KeyHash]int{}, positions: map[producerKey]*taken{},
	}
	for i, e := range entries {
		p.decide(i, e)
	}
	p.pack()
	return p.plan
}

func (p *planner) decide(i int, e *entry) {
	sh := p.s.shards[e.shard]
	if sh == nil {
		p.results[i] = refusal(e, wirev1.Code_CODE_CONFLICT, "another store owns the shard", 0)
		return
	}
	ordered := e.item.GetProducerSeq() != 0
	key := producerKey{topic: e.item.GetTopic()}
	if ordered {
		copy(key.id[:], e.item.GetProducerId())
		if !p.inOrder(i, e, key) {
			return
		}
	}
	if e.item.GetDedupeKey() != "" && p.usedBefore(i, e) {
		if ordered {
			p.take(i, e, key)
			p.mark(i, e, key)
		}
		return
	}
	if ordered {
		p.take(i, e, key)
	}
	p.append(i, e, sh)
}

// inOrder says whether an ordered producer's number is the next one; if not, the entry is decided.
func (p *planner) inOrder(i int, e *entry, key producerKey) bool {
	seq, last, known := e.item.GetProducerSeq(), uint64(0), true
	have := p.s.producers[key]
	t := p.positions[key]
	switch {
	case t != nil:
		last = t.last
	case have != nil:
		last = have.producerSeq
	default:
		known = false
	}
	switch {
	case seq > last+1:
		p.results[i] = refusal(e, wirev1.Code_CODE_OUT_OF_ORDER, outOfOrder(last+1, seq), 0)
		return false
	case seq == last+1 && !known && len(p.s.producers)+len(p.positions) >= p.most:
		p.results[i] = refusal(e, wirev1.Code_CODE_OVERLOADED, "too many ordered producers", overloadedRetry)
		return false
	case seq == last+1:
		return true
	}
	if t != nil {
		if first, ok := t.entries[seq]; ok {
			p.follow(i, e, first)
			return false
		}
	}
	if e.item.GetDedupeKey() != "" && p.usedBefore(i, e) {
		return false
	}
	p.results[i] = duplicate(e, have.epoch, 0, e.item.GetMessageId(), e.item.GetPublishedAt())
	p.asks = append(p.asks, i)
	return false
}

// usedBefore decides an entry whose dedupe key was used.
func (p *planner) usedBefore(i int, e *entry) bool {
	if first, ok := p.keys[e.key]; ok {
		p.follow(i, e, first)
		return true
	}
	k, ok := p.s.keys.get(e.key, p.now)
	if ok {
		p.results[i] = duplicate(e, k.Epoch, k.Seq, k.MessageID[:], k.PublishedAt)
	}
	return ok
}

// follow answers an entry with what an earlier one of this plan gets.
func (p *planner) follow(i int, e *entry, first int) {
	r := p.results[first]
	p.results[i] = duplicate(e, r.GetEpoch(), r.GetSeq(), r.GetMessageId(), r.GetPublishedAt())
	p.waits[i] = p.waits[first]
}

func (p *planner) take(i int, e *entry, key producerKey) {
	t := p.positions[key]
	if t == nil {
		t = &taken{entries: map[uint64]int{}}
		p.positions[key] = t
	}
	t.last = e.item.GetProducerSeq()
	t.entries[t.last] = i
}

// mark moves a producer past a number that no record of the log will hold.
func (p *planner) mark(i int, e *entry, key producerKey) {
	p.batch.Marks = append(p.batch.Marks, backend.Mark{Commit: p.commit(e.shard), Producer: backend.Producer{
		Shard: e.shard, Topic: key.topic, ID: key.id, ProducerSeq: e.item.GetProducerSeq(),
		Epoch: p.s.shards[e.shard].epoch, Seq: p.results[i].GetSeq(), At: p.now,
	}})
	p.waits[i] = true
}

func (p *planner) commit(shard int) uint64 {
	n, ok := p.commits[shard]
	if !ok {
		n = p.s.shards[shard].commit + 1
		p.commits[shard] = n
		p.batch.Commits = append(p.batch.Commits, backend.Commit{Shard: shard, Number: n})
	}
	return n
}

func (p *planner) append(i int, e *entry, sh *shard) {
	g := p.topics[e.item.GetTopic()]
	if g == nil {
		g = &growing{topic: e.item.GetTopic(), shard: e.shard, epoch: sh.epoch, first: 1, policy: p.policies.For(e.item.GetTopic())}
		if t := p.s.topics[g.topic]; t != nil {
			g.first = t.head + 1
		}
		p.topics[g.topic] = g
		p.order = append(p.order, g)
		p.commit(e.shard)
	}
	seq := g.first + uint64(len(g.records))
	g.records = append(g.records, record(e.item))
	p.results[i] = &meshv1.AppendResult{
		Ref: e.item.GetRef(), Code: wirev1.Code_CODE_OK, Epoch: g.epoch, Seq: seq, MessageId: e.item.GetMessageId(), PublishedAt: e.item.GetPublishedAt(),
	}
	p.waits[i] = true
	if e.item.GetDedupeKey() != "" {
		p.keys[e.key] = i
		k := backend.Key{
			Shard: e.shard, Hash: e.key, Epoch: g.epoch, Seq: seq, PublishedAt: e.item.GetPublishedAt(),
			Until: p.now + micros(g.policy.DedupeWindow), Class: backend.KeyClassFor(g.policy.DedupeWindow),
		}
		copy(k.MessageID[:], e.item.GetMessageId())
		p.batch.Keys = append(p.batch.Keys, k)
	}
}

func record(item *meshv1.AppendItem) run.Record {
	r := run.Record{
		PublishedAt: item.GetPublishedAt(), ExpiresAt: item.GetExpiresAt(), Traceparent: item.GetTraceparent(),
		ProducerSeq: item.GetProducerSeq(), Body: item.GetBody(),
	}
	copy(r.ID[:], item.GetMessageId())
	copy(r.Producer[:], item.GetProducerId())
	return r
}

// pack makes runs of each topic's records, none beyond the bounds of package run.
func (p *planner) pack() {
	for _, g := range p.order {
		class := backend.ClassFor(g.policy.Retention)
		for records, first := g.records, g.first; len(records) > 0; {
			n := fits(records)
			p.batch.Runs = append(p.batch.Runs, backend.Run{
				Shard: g.shard, Commit: p.commits[g.shard], Topic: g.topic, Epoch: g.epoch, First: first, N: n, At: p.now, Class: class,
				Packed: run.Pack(nil, records[:n]),
			})
			records, first = records[n:], first+uint64(n)
		}
	}
}

func fits(records []run.Record) int {
	size := 0
	for n := range records {
		size += len(records[n].Body)
		if n > 0 && (n == run.MaxRecords || size > run.MaxBytes) {
			return n
		}
	}
	return len(records)
}

// apply brings the state up to a plan that was committed.
func (s *state) apply(p *plan, entries []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := p.batch
	for _, c := range b.Commits {
		if sh := s.shards[c.Shard]; sh != nil {
			sh.commit, sh.dirty = max(sh.commit, c.Number), true
		}
	}
	for i := range b.Runs {
		s.extended(&b.Runs[i])
	}
	for _, k := range b.Keys {
		s.keys.put(k, b.At)
	}
	for i, e := range entries {
		if e.item.GetProducerSeq() == 0 || !p.waits[i] {
			continue
		}
		key := producerKey{topic: e.item.GetTopic()}
		copy(key.id[:], e.item.GetProducerId())
		s.moved(key, position{
			shard: e.shard, producerSeq: e.item.GetProducerSeq(), epoch: p.results[i].GetEpoch(), seq: p.results[i].GetSeq(), at: b.At, dirty: true,
		})
	}
}
