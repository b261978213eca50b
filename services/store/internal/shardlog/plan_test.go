package shardlog

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog/heads"
)

const noon = uint64(1_772_366_400_000_000)

// owning is a state that owns every shard.
func owning() *state {
	s := newState(100, time.Minute)
	for n := range topic.Shards {
		s.shards[n] = &shard{epoch: 9, topics: &heads.Table{}}
	}
	return s
}

func entryOf(item *meshv1.AppendItem) *entry {
	e := &entry{item: item, shard: topic.Shard(item.GetTopic())}
	if item.GetDedupeKey() != "" {
		e.key = hashKey(item.GetTopic(), item.GetDedupeKey())
	}
	return e
}

func itemOf(name string, producer byte, seq uint64, key string) *meshv1.AppendItem {
	item := &meshv1.AppendItem{Topic: name, MessageId: make([]byte, 16), DedupeKey: key, ProducerSeq: seq, Body: []byte("x")}
	if seq > 0 {
		item.ProducerId = slices.Repeat([]byte{producer}, 16)
	}
	return item
}

// model is the log as it should be, decided one item after the other.
type model struct {
	heads     map[string]uint64
	keys      map[string]uint64 // topic and key: seq
	producers map[string]uint64 // topic and producer: last number
	firsts    map[string]uint64 // topic, producer and number: seq
}

func (m *model) decide(item *meshv1.AppendItem) (wirev1.Code, uint64, bool) {
	producer := fmt.Sprintf("%s %x", item.GetTopic(), item.GetProducerId())
	numbered := fmt.Sprintf("%s %d", producer, item.GetProducerSeq())
	key := item.GetTopic() + " " + item.GetDedupeKey()
	ordered := item.GetProducerSeq() > 0
	used, known := m.keys[key]
	known = known && item.GetDedupeKey() != ""
	switch last := m.producers[producer]; {
	case ordered && item.GetProducerSeq() > last+1:
		return wirev1.Code_CODE_OUT_OF_ORDER, 0, false
	case ordered && item.GetProducerSeq() <= last:
		return wirev1.Code_CODE_OK, m.firsts[numbered], true
	}
	seq := used
	if !known {
		m.heads[item.GetTopic()]++
		seq = m.heads[item.GetTopic()]
		if item.GetDedupeKey() != "" {
			m.keys[key] = seq
		}
	}
	if ordered {
		m.producers[producer], m.firsts[numbered] = item.GetProducerSeq(), seq
	}
	return wirev1.Code_CODE_OK, seq, known
}

// However items are cut into group commits, each is answered as if it had been alone, and the runs
// hold what was answered.
func TestPlansFollowTheModel(t *testing.T) {
	table := policy.NewTable(nil)
	rapid.Check(t, func(t *rapid.T) {
		s := owning()
		m := &model{map[string]uint64{}, map[string]uint64{}, map[string]uint64{}, map[string]uint64{}}
		commits := map[int]uint64{}
		var with scratch // used again by every plan, as a lane does
		for range rapid.IntRange(1, 6).Draw(t, "commits") {
			var entries []*entry
			for range rapid.IntRange(1, 12).Draw(t, "items") {
				entries = append(entries, entryOf(itemOf(rapid.SampledFrom([]string{"room/1", "room/2", "user/1"}).Draw(t, "topic"),
					rapid.SampledFrom([]byte{1, 2}).Draw(t, "producer"), rapid.Uint64Range(0, 4).Draw(t, "seq"), rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "key"))))
			}
			for i, e := range entries {
				e.item.Body = rapid.SliceOfN(rapid.Just(byte(i)), 0, 5000).Draw(t, "body")
			}
			p := newPlan(s, entries, backend.BatchID{}, noon, table, with)
			again := rapid.Bool().Draw(t, "again")
			before := map[string]uint64{}
			for name, head := range m.heads {
				before[name] = head
			}
			if again { // as after a commit that failed: making a plan changes nothing
				with.recycle(p)
				p = newPlan(s, entries, backend.BatchID{}, noon, table, with)
			}
			taken := map[string]bool{} // numbers that this plan takes
			for i, e := range entries {
				used := m.keys[e.item.GetTopic()+" "+e.item.GetDedupeKey()]
				c, seq, dup := m.decide(e.item)
				r := p.results[i]
				if next := fmt.Sprintf("producer_seq %d comes next", m.producers[fmt.Sprintf("%s %x", e.item.GetTopic(), e.item.GetProducerId())]+1); c == wirev1.Code_CODE_OUT_OF_ORDER && !strings.HasPrefix(r.GetError(), next) {
					t.Fatalf("item %d %v: %q, want %q", i, e.item, r.GetError(), next)
				}
				numbered := fmt.Sprintf("%s %x %d", e.item.GetTopic(), e.item.GetProducerId(), e.item.GetProducerSeq())
				if slices.Contains(p.asks, i) && taken[numbered] {
					t.Fatalf("item %d %v: the log is asked for what this plan appends", i, e.item)
				}
				taken[numbered] = taken[numbered] || c == wirev1.Code_CODE_OK && !dup && e.item.GetProducerSeq() > 0
				if want := c == wirev1.Code_CODE_OK && !dup; want && !p.waits[i] {
					t.Fatalf("item %d %v: answered before it is committed", i, e.item)
				}
				if slices.Contains(p.asks, i) || dup && e.item.GetProducerSeq() > 0 && r.GetSeq() == used {
					seq = r.GetSeq() // the log would be asked; a key that is known spares that
				}
				if r.GetCode() != c || c == wirev1.Code_CODE_OK && (r.GetSeq() != seq || r.GetDuplicate() != dup) {
					t.Fatalf("item %d %v: %v, want %s %d %v", i, e.item, r, c, seq, dup)
				}
			}
			checkRuns(t, p, before, m.heads, commits)
			checkBodies(t, p, entries)
			s.apply(p, entries)
			with.recycle(p)
		}
	})
}

// checkBodies looks each answered message up in the runs: none is another's.
func checkBodies(t *rapid.T, p *plan, entries []*entry) {
	bodies := map[string][]byte{}
	for _, r := range p.batch.Runs {
		if err := run.Each(r.Packed, func(i int, rec *run.Record) bool {
			bodies[fmt.Sprint(r.Topic, " ", r.First+uint64(i))] = rec.Body
			return true
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i, e := range entries {
		r := p.results[i]
		if r.GetCode() == wirev1.Code_CODE_OK && !r.GetDuplicate() && !bytes.Equal(bodies[fmt.Sprint(e.item.GetTopic(), " ", r.GetSeq())], e.item.GetBody()) {
			t.Fatalf("item %d has another one's body in the log", i)
		}
	}
}

// checkRuns reports whether runs continue the heads without a hole, up to the heads after, and
// commits count.
func checkRuns(t *rapid.T, p *plan, before, after map[string]uint64, commits map[int]uint64) {
	for _, c := range p.batch.Commits {
		if c.Number != commits[c.Shard]+1 {
			t.Fatalf("commit %d of shard %d after %d", c.Number, c.Shard, commits[c.Shard])
		}
		commits[c.Shard] = c.Number
	}
	for _, r := range p.batch.Runs {
		if r.First != before[r.Topic]+1 || r.Commit != commits[r.Shard] || r.Epoch != 9 {
			t.Fatalf("run of %s: first %d after %d, commit %d", r.Topic, r.First, before[r.Topic], r.Commit)
		}
		records := 0
		err := run.Each(r.Packed, func(int, *run.Record) bool {
			records++
			return true
		})
		if err != nil || records != r.N {
			t.Fatalf("run of %d: %d records, %v", r.N, records, err)
		}
		before[r.Topic] = r.Last()
	}
	for name, head := range after {
		if before[name] != head {
			t.Fatalf("runs of %s end at %d, heads at %d", name, before[name], head)
		}
	}
}

func TestRunsKeepTheirBounds(t *testing.T) {
	var entries []*entry
	for _, size := range []int{100, 100, 4000, 4000, 9000, 100, run.MaxRecord} {
		item := itemOf("room/2", 0, 0, "")
		item.Body = make([]byte, size)
		entries = append(entries, entryOf(item))
	}
	for range 1000 {
		entries = append(entries, entryOf(itemOf("room/1", 1, 0, "")))
	}
	p := newPlan(owning(), entries, backend.BatchID{}, noon, policy.NewTable(nil), scratch{})
	var got []string
	for _, r := range p.batch.Runs {
		if r.Topic == "room/2" {
			got = append(got, fmt.Sprintf("%d+%d", r.First, r.N))
		} else if len(r.Packed) > pageBytes || r.N < 300 && r.Last() != 1000 {
			t.Errorf("a run of %d small records with %d bytes", r.N, len(r.Packed))
		}
	}
	want := []string{"1+3", "4+1", "5+1", "6+1", "7+1"}
	if !slices.Equal(got, want) {
		t.Errorf("runs %v, want %v", got, want)
	}
}

func TestPlanPutsRunsAndKeysWhereThePolicySays(t *testing.T) {
	p := newPlan(owning(), []*entry{entryOf(itemOf("room/1", 0, 0, "k")), entryOf(itemOf("user/1", 0, 0, ""))}, backend.BatchID{}, noon, policy.NewTable(nil), scratch{})
	if p.batch.Runs[0].Class != backend.Day || p.batch.Runs[1].Class != backend.Week {
		t.Errorf("classes %v and %v", p.batch.Runs[0].Class, p.batch.Runs[1].Class)
	}
	if k := p.batch.Keys[0]; k.Until != noon+micros(2*time.Minute) || k.Class != backend.ShortKey {
		t.Errorf("key %+v", k)
	}
}

// What the log does with a message hangs on a policy that is not known: it is not taken. What
// withdraws a message is.
func TestPlanRefusesWhatHasNoPolicy(t *testing.T) {
	foreign := policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "orders", NotUnderstood: "a field"}})
	later := itemOf("orders/1", 0, 0, "")
	later.DeliverAt = noon + 1e9
	for name, c := range map[string]struct {
		table *policy.Table
		taken int
	}{"unknown": {policy.Unknown("not yet"), 1}, "not understood": {foreign, 2}} {
		withdrawal := entryOf(itemOf("orders/1", 0, 0, ""))
		withdrawal.cancels = &backend.ScheduledID{Due: noon}
		entries := []*entry{
			entryOf(itemOf("orders/1", 0, 0, "k")), entryOf(itemOf("orders/1", 1, 1, "")), entryOf(later), withdrawal, entryOf(itemOf("room/1", 0, 0, "")),
		}
		p := newPlan(owning(), entries, backend.BatchID{}, noon, c.table, scratch{})
		taken := 0
		for i, r := range p.results {
			switch {
			case r.GetCode() == wirev1.Code_CODE_OK:
				taken++
			case r.GetCode() != wirev1.Code_CODE_UNAVAILABLE || r.GetRetryAfterMs() == 0:
				t.Errorf("%s: entry %d: %v", name, i, r)
			}
		}
		if taken != c.taken || len(p.batch.Keys) > 1 || len(p.batch.Scheduled) != 0 || len(p.batch.Removed) != 1 {
			t.Errorf("%s: %d entries are taken: %v", name, taken, p.results)
		}
	}
}

// Whoever has as many positions as are free gets no more, others do; and all that has a position
// goes on.
func TestProducersHaveTheirShares(t *testing.T) {
	s := owning()
	s.positions.most = 6
	var entries []*entry
	for topic := range 5 {
		entries = append(entries, entryOf(itemOf(fmt.Sprintf("room/%d", topic), 0, 1, "")))
	}
	for producer := byte(1); producer < 6; producer++ {
		entries = append(entries, entryOf(itemOf("room/1", producer, 1, "")))
	}
	entries = append(entries, entryOf(itemOf("room/1", 0, 2, "")))
	const ok, share, full = wirev1.Code_CODE_OK, wirev1.Code_CODE_RATE_LIMITED, wirev1.Code_CODE_OVERLOADED
	want := []wirev1.Code{ok, ok, ok, share, share, ok, ok, ok, full, full, ok}
	for _, cut := range []int{len(entries), 1} { // in one commit, and each in its own
		var codes []wirev1.Code
		for some := range slices.Chunk(entries, cut) {
			p := newPlan(s, some, backend.BatchID{}, noon, policy.NewTable(nil), scratch{})
			for _, r := range p.results {
				codes = append(codes, r.GetCode())
				if c := r.GetCode(); (c == share || c == full) && (r.GetRetryAfterMs() == 0 || !strings.Contains(r.GetError(), "without producer_seq")) {
					t.Errorf("%v does not say what to do", r)
				}
			}
			if cut == 1 {
				s.apply(p, some)
			}
		}
		if !slices.Equal(codes, want) {
			t.Errorf("%d at a time: codes %v, want %v", cut, codes, want)
		}
	}
}

// A cache that lost a key must not claim to know it.
func TestKeyCacheNeverForgetsInSilence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := keyCache{keysMax: rapid.IntRange(1, 5).Draw(t, "most"), generationDuration: 10 * time.Second}
		now, window := noon, 30*time.Second
		used := map[backend.KeyHash]uint64{} // until
		for n := range rapid.IntRange(1, 60).Draw(t, "keys") {
			now += rapid.Uint64Range(0, 5_000_000).Draw(t, "pause")
			k := backend.Key{Hash: backend.KeyHash{byte(n)}, Until: now + micros(window)}
			used[k.Hash] = k.Until
			c.put(k, now)
			for h, until := range used {
				_, known := c.get(h, now)
				if until > now && !known && !c.missing(window, now) {
					t.Fatalf("key %d is forgotten, and the cache says that it knows all", h[0])
				}
				if until <= now && known {
					t.Fatalf("key %d is known beyond its time", h[0])
				}
			}
		}
	})
}

// A shard that has no room for more topics takes what goes to those it has.
func TestAShardThatIsFullOfTopics(t *testing.T) {
	s := owning()
	first, second := itemOf("room/1", 0, 0, ""), itemOf("room/2", 0, 0, "")
	shard := topic.Shard("room/1")
	publish := func(item *meshv1.AppendItem) *meshv1.AppendResult {
		entries := []*entry{{item: item, shard: shard}}
		p := newPlan(s, entries, backend.BatchID{}, noon, policy.NewTable(nil), scratch{})
		s.apply(p, entries)
		return p.results[0]
	}
	s.mostTopics = 1
	if r := publish(first); r.GetCode() != wirev1.Code_CODE_OK || r.GetSeq() != 1 {
		t.Fatalf("%v", r)
	}
	if r := publish(second); r.GetCode() != wirev1.Code_CODE_TOO_MANY_TOPICS || !strings.Contains(r.GetError(), "1 topics") {
		t.Errorf("one more topic: %v, want a refusal", r)
	}
	if r := publish(first); r.GetCode() != wirev1.Code_CODE_OK || r.GetSeq() != 2 {
		t.Errorf("a topic that is there: %v", r)
	}
}
