package shardlog

import (
	"fmt"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
)

// plan is what becomes of the entries of one group commit. It is made from the state without
// changing it; committed, it is applied.
type plan struct {
	batch *backend.Batch
	// results by entry; those of entries whose append hangs on the commit hold what is answered
	// once it succeeded.
	results []*meshv1.AppendResult
	// waits says which results hold only after the commit.
	waits []bool
	// asks are duplicates by number whose first result must be looked for in the log.
	asks []int
	// unplaced counts who was refused for want of a position.
	unplaced unplaced

	scratch scratch
}

// unplaced are numbers without a position that were refused: their producer has its share, there is
// no room for anybody, or the position may have been forgotten.
type unplaced struct{ share, full, forgotten int }

// scratch is memory that one plan after the other uses; a plan holds on to it until its batch is
// committed and answered.
type scratch struct {
	packed  []byte // of runs
	growing []*growing
}

// maxScratch bounds the packed bytes kept between plans.
const maxScratch = 2 * maxBatchBytes

// recycle takes back what a plan used. Nothing may look at the plan's batch any more.
func (s *scratch) recycle(p *plan) {
	s.packed = p.scratch.packed[:0]
	if cap(s.packed) > maxScratch {
		s.packed = nil
	}
	for _, g := range p.scratch.growing {
		clear(g.records) // bodies are not to be kept
		*g = growing{records: g.records[:0]}
	}
	s.growing = p.scratch.growing
}

// planner makes a plan. Everything that it decides follows from its fields and the entries.
type planner struct {
	*plan
	s        *state
	now      uint64
	policies *policy.Table

	topics    map[string]*growing
	order     []*growing // of topics, so that a plan is the same each time
	answers   []meshv1.AppendResult
	commits   map[int]uint64
	keys      map[backend.KeyHash]int // entry that uses a key first
	positions map[producerKey]*taken
	fresh     map[backend.ProducerID]int // positions that are new, by producer
	freshAll  int
	// topics that this plan has keep a message, less those it has keep none, by namespace
	freshKept map[string]int
}

// growing is a topic that this plan appends to.
type growing struct {
	topic   string
	shard   int
	epoch   uint64
	first   uint64
	records []run.Record
	policy  *policy.Policy
	keeps   bool // its newest message is kept
}

// taken is an ordered producer's numbers in this plan, from first on: which entry has which.
type taken struct {
	last    uint64
	entries map[uint64]int
}

func newPlan(s *state, entries []*entry, id backend.BatchID, now uint64, policies *policy.Table, with scratch) *plan {
	p := &planner{
		plan: &plan{
			batch:   &backend.Batch{ID: id, At: now},
			results: make([]*meshv1.AppendResult, len(entries)), waits: make([]bool, len(entries)), scratch: with,
		},
		answers: make([]meshv1.AppendResult, len(entries)),
		s:       s, now: now, policies: policies,
		topics: map[string]*growing{}, commits: map[int]uint64{}, keys: map[backend.KeyHash]int{}, positions: map[producerKey]*taken{},
		fresh: map[backend.ProducerID]int{},
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
	if e.cancels == nil { // else nothing hangs on the policy
		if why := p.policies.Refuses(e.item.GetTopic()); why != nil {
			p.results[i] = refusalOf(e, why)
			return
		}
	}
	ordered := e.item.GetProducerSeq() != 0
	key := producerKey{topic: e.item.GetTopic()}
	if ordered {
		copy(key.id[:], e.item.GetProducerId())
		if !p.inOrder(i, e, key) {
			return
		}
	}
	if e.keyed() && p.usedBefore(i, e) {
		if ordered {
			p.take(i, e, key)
			p.mark(i, e, key)
		}
		return
	}
	why := p.tooManyTopics(e, sh)
	if why == nil {
		why = p.keptTooMany(e)
	}
	if why != nil {
		p.results[i] = refusalOf(e, why)
		return
	}
	if ordered {
		p.take(i, e, key)
	}
	switch {
	case e.cancels != nil:
		p.cancel(i, e)
	case e.item.GetDeliverAt() > p.now:
		p.schedule(i, e)
		if ordered {
			p.mark(i, e, key)
		}
	default:
		p.append(i, e, sh)
	}
}

// tooManyTopics refuses what would begin one more topic in a shard that has no room for more. What
// was taken before, as scheduled messages, waits.
func (p *planner) tooManyTopics(e *entry, sh *shard) error {
	name := e.item.GetTopic()
	if e.cancels != nil || sh.topics.Taken() < p.s.mostTopics || p.topics[name] != nil || sh.topics.Get(name) != nil {
		return nil
	}
	return code.New(wirev1.Code_CODE_TOO_MANY_TOPICS, fmt.Sprintf("the shard of this topic has %d topics, and can hold no more", sh.topics.Taken()))
}

// inOrder reports whether an ordered producer's number is the next one; if not, the entry is
// decided.
func (p *planner) inOrder(i int, e *entry, key producerKey) bool {
	have, t := p.s.positions.by[key], p.positions[key]
	if have == nil && t == nil {
		return p.begins(i, e, key)
	}
	seq, last := e.item.GetProducerSeq(), e.item.GetSettledSeq()
	if t != nil {
		last = max(last, t.last)
	} else {
		last = max(last, have.producerSeq)
	}
	switch {
	case seq > last+1:
		p.results[i] = refusal(e, wirev1.Code_CODE_OUT_OF_ORDER, outOfOrder(last+1, seq), 0)
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
	if e.keyed() && p.usedBefore(i, e) {
		return false
	}
	epoch := p.s.epochOf(e.shard, key.topic)
	if have != nil {
		epoch = have.epoch
	}
	p.results[i] = duplicate(e, epoch, 0, e.item.GetMessageId(), e.item.GetPublishedAt())
	if have != nil { // without, the producer said that it has settled what was before
		p.asks = append(p.asks, i)
	}
	return false
}

// begins reports whether a number may be the first that is known of a producer in a topic: it
// follows what the producer has settled, it was not published under a position that was forgotten
// since, and there is room. If not, the entry is decided.
func (p *planner) begins(i int, e *entry, key producerKey) bool {
	seq, next := e.item.GetProducerSeq(), e.item.GetSettledSeq()+1
	if seq > next {
		p.results[i] = refusal(e, wirev1.Code_CODE_OUT_OF_ORDER, outOfOrder(next, seq)+": the store knows nothing of this producer_id in the topic, "+
			"where it is new or has published nothing for long. Begin with a new producer_id, or set settled_seq", 0)
		return false
	}
	if !p.s.shards[e.shard].known(p.now, e.item.GetSentMsAgo()) && !p.keyUsed(e) {
		p.unplaced.forgotten++
		p.results[i] = refusal(e, wirev1.Code_CODE_OUT_OF_ORDER, fmt.Sprintf("producer_seq %d was first sent %s ago, and what producers published then is no longer known: "+
			"whether it was published is not known. Begin with a new producer_id", seq, time.Duration(e.item.GetSentMsAgo())*time.Millisecond), 0)
		return false
	}
	why := p.s.positions.room(key.id, p.fresh[key.id], p.freshAll)
	switch why {
	case roomy:
		return true
	case overShare:
		p.unplaced.share++
	case overFull:
		p.unplaced.full++
	}
	p.results[i] = refusalOf(e, why.refusal(&p.s.positions, key.id))
	return false
}

// keyUsed reports whether an entry's dedupe key was used, which tells what became of it.
func (p *planner) keyUsed(e *entry) bool {
	if !e.keyed() {
		return false
	}
	if _, ok := p.keys[e.key]; ok {
		return true
	}
	_, ok := p.s.keys.get(e.key, p.now)
	return ok
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
		p.results[i].Scheduled = k.Seq == 0
	}
	return ok
}

// follow answers an entry with what an earlier one of this plan gets.
func (p *planner) follow(i int, e *entry, first int) {
	r := p.results[first]
	p.results[i] = duplicate(e, r.GetEpoch(), r.GetSeq(), r.GetMessageId(), r.GetPublishedAt())
	p.results[i].Scheduled = r.GetScheduled()
	p.waits[i] = p.waits[first]
}

func (p *planner) take(i int, e *entry, key producerKey) {
	t := p.positions[key]
	if t == nil {
		t = &taken{entries: map[uint64]int{}}
		p.positions[key] = t
		if p.s.positions.by[key] == nil {
			p.fresh[key.id]++
			p.freshAll++
		}
	}
	t.last = e.item.GetProducerSeq()
	t.entries[t.last] = i
}

// mark moves a producer past a number that no record of the log will hold.
func (p *planner) mark(i int, e *entry, key producerKey) {
	p.batch.Marks = append(p.batch.Marks, backend.Mark{Commit: p.commit(e.shard), Producer: backend.Producer{
		Shard: e.shard, Topic: key.topic, ID: key.id, ProducerSeq: e.item.GetProducerSeq(),
		Epoch: p.s.epochOf(e.shard, key.topic), Seq: p.s.reached(key, p.results[i].GetSeq()), At: p.now,
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
		t := p.s.topic(e.shard, e.item.GetTopic())
		g = p.grow()
		g.topic, g.shard, g.epoch, g.first, g.policy = e.item.GetTopic(), e.shard, sh.epochOf(t), 1, p.policies.For(e.item.GetTopic())
		if t != nil {
			g.first = t.Head + 1
			g.keeps = t.Keeps()
		}
		p.topics[g.topic] = g
		p.order = append(p.order, g)
		p.commit(e.shard)
	}
	if ttl := e.item.GetTtlUs(); ttl > 0 {
		e.item.ExpiresAt = p.now + ttl
	}
	if g.policy.KeepLast {
		p.keepLast(g, wire.HasPayload(e.item.GetBody()))
	}
	seq := g.first + uint64(len(g.records))
	g.records = append(g.records, record(e.item))
	r := &p.answers[i] // one piece of memory for all: most entries end here
	r.Ref, r.Code, r.Epoch, r.Seq = e.item.GetRef(), wirev1.Code_CODE_OK, g.epoch, seq
	r.MessageId, r.PublishedAt = e.item.GetMessageId(), e.item.GetPublishedAt()
	p.results[i] = r
	p.waits[i] = true
	p.use(i, e, e.window(g.policy))
	p.fired(e)
}

// use notes that an entry's key, if it has one, is used for what results[i] says.
func (p *planner) use(i int, e *entry, window time.Duration) {
	if !e.keyed() {
		return
	}
	r := p.results[i]
	p.keys[e.key] = i
	k := backend.Key{
		Shard: e.shard, Hash: e.key, Epoch: r.GetEpoch(), Seq: r.GetSeq(), PublishedAt: r.GetPublishedAt(),
		Until: p.now + micros(window), Class: backend.KeyClassFor(window),
	}
	copy(k.MessageID[:], r.GetMessageId())
	p.batch.Keys = append(p.batch.Keys, k)
}

// grow is the next topic's record, with memory of an earlier plan's where there is some.
func (p *planner) grow() *growing {
	if n := len(p.order); n < len(p.scratch.growing) {
		return p.scratch.growing[n]
	}
	g := &growing{}
	p.scratch.growing = append(p.scratch.growing, g)
	return g
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

// pageBytes is what a row of the log has for the topic's name and its packed run on a page of
// Postgres (8,160 bytes, less 24 of the row's header and what the other columns take). Beyond, a
// row is stored in pieces, which costs more; only large messages are worth it.
const pageBytes = 8040

// pack makes runs of each topic's records: of a page each, and none beyond the bounds of package
// run.
func (p *planner) pack() {
	for _, g := range p.order {
		class := backend.ClassFor(g.policy.Retention)
		for records, first := g.records, g.first; len(records) > 0; {
			n := fits(records, pageBytes-len(g.topic))
			start := len(p.scratch.packed)
			p.scratch.packed = run.Pack(p.scratch.packed, records[:n])
			p.batch.Runs = append(p.batch.Runs, backend.Run{
				Shard: g.shard, Commit: p.commits[g.shard], Topic: g.topic, Epoch: g.epoch, First: first, N: n, At: p.now, Class: class,
				Packed: slices.Clip(p.scratch.packed[start:]),
			})
			records, first = records[n:], first+uint64(n)
		}
		p.packKept(g)
	}
}

// fits says how many of the records, one at least, make a run of at most so many bytes.
func fits(records []run.Record, most int) int {
	size := run.HeaderSize
	for n := range records {
		size += records[n].Size()
		if n > 0 && (n == run.MaxRecords || size > most) {
			return n
		}
	}
	return len(records)
}

// apply brings the state up to a plan that was committed. Shards that are aside are brought up,
// too; of those that are neither owned nor aside nothing is kept.
func (s *state) apply(p *plan, entries []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := p.batch
	for _, c := range b.Commits {
		if sh := s.knownShard(c.Shard); sh != nil {
			sh.commit, sh.dirty = max(sh.commit, c.Number), true
		}
	}
	for i := range b.Runs {
		if s.knownShard(b.Runs[i].Shard) != nil {
			s.extended(&b.Runs[i])
		}
	}
	s.applyKept(b)
	for _, k := range b.Keys {
		s.keys.put(k, b.At)
	}
	for i, e := range entries {
		sh := s.knownShard(e.shard)
		if e.item.GetProducerSeq() == 0 || !p.waits[i] || sh == nil {
			continue
		}
		key := producerKey{topic: e.item.GetTopic()}
		copy(key.id[:], e.item.GetProducerId())
		s.positions.moved(position{
			key: key, shard: int32(e.shard), producerSeq: e.item.GetProducerSeq(), epoch: s.epochOf(e.shard, key.topic), seq: s.reached(key, p.results[i].GetSeq()), at: b.At, dirty: true,
		})
	}
}
