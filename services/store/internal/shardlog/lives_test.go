package shardlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Whatever fails and whoever takes over when: each item is answered once; what is answered OK is in
// the log, once, at the seq that was answered, and what is refused for now is not; numbers and keys
// are known to every store that comes after; without a fault nothing waits; and once the database
// is well again, so is the log, with every connection that was lost given back.
func TestWhateverFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(unhurried{t}, func(t *rapid.T) {
			w := newWorld(t)
			defer w.stop()
			w.live()
		})
	})
}

// unhurried hides when a test has to be over, which may not be asked in a bubble.
type unhurried struct{ rapid.TB }

// world is two stores on one database, and who publishes.
type world struct {
	t      *rapid.T
	db     *memory
	regs   [2]*prometheus.Registry
	logs   [2]*Log
	topics []string
	at     map[string]int // the store that is to have a topic's shard
	bodies int
	// unknown are bodies of which the answer was that nobody knows.
	unknown map[string]bool
	ok      map[string]string // bodies in the log for certain: "topic seq"
	refused map[string]bool   // bodies that are not in the log
	now     string            // what is going on
}

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, db: newMemory(), topics: []string{"room/1", "room/2", "user/1", "user/2"}, at: map[string]int{},
		unknown: map[string]bool{}, ok: map[string]string{}, refused: map[string]bool{},
	}
	for i := range w.logs {
		w.regs[i] = prometheus.NewRegistry()
		w.logs[i] = newLog(w.db, w.regs[i], func(c *Config) { c.Owner.StoreID = fmt.Sprint("store-", i) })
		_ = w.logs[i].Start(context.Background())
	}
	w.want()
	synctest.Wait()
	w.well("at the start")
	return w
}

func (w *world) stop() {
	w.db.fail(nil, nil)
	for _, l := range w.logs {
		_ = l.Stop(context.Background())
	}
}

// want has every store want what it is to have.
func (w *world) want() {
	for i, l := range w.logs {
		l.Want(w.wanted(i))
	}
}

func (w *world) wanted(i int) (shards []int) {
	for _, name := range w.topics {
		if w.at[name] == i {
			shards = append(shards, topic.Shard(name))
		}
	}
	slices.Sort(shards)
	return slices.Compact(shards)
}

func (w *world) live() {
	for range rapid.IntRange(5, 40).Draw(w.t, "steps") {
		switch act := rapid.IntRange(0, 99).Draw(w.t, "act"); {
		case act < 50:
			w.publish(true)
		case act < 70:
			w.fault()
		case act < 80:
			d := time.Duration(rapid.IntRange(0, 15_000).Draw(w.t, "ms")) * time.Millisecond
			w.now = fmt.Sprintf("%s pass", d)
			pass(d)
			w.well(w.now)
		case act < 85:
			w.calm()
		case act < 95:
			w.move()
		default:
			w.heads()
		}
	}
	w.now = "the end"
	w.heads()
	w.logged()
	for i, l := range w.logs {
		if err := l.Stop(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		if n := gauge(w.t, w.regs[i], "pushmesh_store_queue_messages"); n != 0 || l.pace.unanswered.Load() != 0 || l.pace.readers.Load() != 0 {
			w.t.Fatalf("%v messages wait in a store that has stopped, %d are not answered, %d read", n, l.pace.unanswered.Load(), l.pace.readers.Load())
		}
	}
	if n := w.db.open(); n != 0 {
		w.t.Fatalf("%d connections are left", n)
	}
	if n := w.db.uncovered(); n != 0 {
		w.t.Fatalf("%d shards have commits that no checkpoint covers after planned stops", n)
	}
	w.sound()
}

// well fails unless every store has what it is to have, and says so.
func (w *world) well(what string) {
	w.t.Helper()
	w.sound()
	for i, l := range w.logs {
		if got := l.Owned(); !slices.Equal(got, w.wanted(i)) || l.Check() != nil {
			w.t.Fatalf("%s: store %d owns %v, wants %v: %v", what, i, got, w.wanted(i), l.Check())
		}
		if n := gauge(w.t, w.regs[i], "pushmesh_store_queue_messages"); n != 0 || l.pace.unanswered.Load() != 0 {
			w.t.Fatalf("%s: %v messages wait, %d are not answered", what, n, l.pace.unanswered.Load())
		}
		for _, n := range w.wanted(i) {
			if l.Owns(n) != nil || l.Sure(context.Background(), n) != nil || l.Ownership(n) == 0 || w.logs[1-i].Owns(n) == nil || w.logs[1-i].Ownership(n) != 0 {
				w.t.Fatalf("%s: who owns shard %d is not clear", what, n)
			}
		}
	}
	if n, lanes := w.db.open(), len(w.logs)*len(w.logs[0].lanes); n > lanes {
		w.t.Fatalf("%s: %d connections of %d lanes are open", what, n, lanes)
	}
}

func (w *world) sound() {
	w.t.Helper()
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	if len(w.db.broken) > 0 {
		w.t.Fatalf("%s: %s", w.now, w.db.broken[0])
	}
	if w.db.largest > checkpointPart {
		w.t.Fatalf("a part of a checkpoint has %d states", w.db.largest)
	}
}

// sent is an item, and what it is to be answered if nothing fails.
type sent struct {
	*meshv1.AppendItem
	code wirev1.Code
	dup  bool
	seq  uint64 // 0: the next, or not known
	// later: it is kept for its time.
	later bool
}

// publish has some items appended; well: nothing fails, so they are answered at once and exactly.
func (w *world) publish(well bool) {
	var all []sent
	var items [2][]*meshv1.AppendItem
	used := map[string]bool{} // in this group
	for range rapid.IntRange(1, 6).Draw(w.t, "items") {
		s := w.item(used)
		all = append(all, s)
		at := w.at[s.GetTopic()]
		items[at] = append(items[at], s.AppendItem)
	}
	w.now = fmt.Sprintf("publish of %d items", len(all))
	waits := [2]*answers{appended(w.logs[0], items[0]...), appended(w.logs[1], items[1]...)}
	for _, a := range waits {
		if took := a.wait(w.t); well && took > 0 {
			w.t.Fatalf("answered after %s, and nothing failed", took)
		}
	}
	for _, s := range all {
		w.answered(s, waits[w.at[s.GetTopic()]].all[s.GetRef()], well)
	}
	w.sound()
}

// item is one of a producer that goes on, repeats or leaves one out; or with a key, or neither.
func (w *world) item(used map[string]bool) sent {
	name := rapid.SampledFrom(w.topics).Draw(w.t, "topic")
	w.bodies++
	body := fmt.Sprintf("b%d", w.bodies)
	s := sent{AppendItem: &meshv1.AppendItem{Topic: name, Body: []byte(body), MessageId: fmt.Appendf(nil, "%016d", w.bodies), PublishedAt: uint64(w.bodies)}}
	switch kind := rapid.IntRange(0, 3).Draw(w.t, "kind"); kind {
	case 1, 3:
		producer := rapid.SampledFrom([]byte{1, 2}).Draw(w.t, "producer")
		id := backend.ProducerID(slices.Repeat([]byte{producer}, 16))
		group := fmt.Sprintf("%s of %d", name, producer)
		last := w.db.last(producerKey{id, name})
		n := last + uint64(rapid.SampledFrom([]int{1, 1, 1, 1, 0, 2}).Draw(w.t, "number"))
		if used[group] || n == 0 {
			return s
		}
		used[group] = true
		s.ProducerId, s.ProducerSeq = id[:], n
		if kind == 3 && n > last {
			s.DeliverAt, s.later = uint64(time.Now().Add(100*time.Hour).UnixMicro()), true
		}
		switch {
		case n == last:
			s.dup, s.seq = true, w.seqOf(id, name, n)
		case n > last+1:
			s.code = wirev1.Code_CODE_OUT_OF_ORDER
		}
	case 2:
		s.DedupeKey = rapid.SampledFrom([]string{"k", "l"}).Draw(w.t, "key")
		if used[name+s.DedupeKey] {
			s.DedupeKey = ""
			return s
		}
		used[name+s.DedupeKey] = true
		w.db.mu.Lock()
		k, ok := w.db.keys[hashKey(name, s.DedupeKey)]
		w.db.mu.Unlock()
		if ok && k.Until > uint64(time.Now().UnixMicro()) {
			s.dup, s.seq = true, k.Seq
		}
	}
	return s
}

// seqOf is the seq of a producer's number in the log.
func (w *world) seqOf(id backend.ProducerID, name string, n uint64) (seq uint64) {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	for _, r := range w.db.runs {
		if r.Topic == name {
			eachRecord(r, func(at uint64, producer backend.ProducerID, number uint64, _ string) {
				if producer == id && number == n {
					seq = at
				}
			})
		}
	}
	return seq
}

// answered compares an answer with what it should be.
func (w *world) answered(s sent, r *meshv1.AppendResult, well bool) {
	body := string(s.GetBody())
	switch r.GetCode() {
	case wirev1.Code_CODE_OK:
		if s.later {
			w.kept(s, r)
			return
		}
		if s.code != wirev1.Code_CODE_OK || r.GetDuplicate() != s.dup || r.GetEpoch() != memoryEpoch || r.GetSeq() == 0 && !s.dup || s.dup && r.GetSeq() != s.seq {
			w.t.Fatalf("%v is answered %v, want %v, duplicate %v of %d", s.AppendItem, r, s.code, s.dup, s.seq)
		}
		if s.dup {
			w.refused[body] = true
		} else {
			w.ok[body] = fmt.Sprintf("%s %d", s.GetTopic(), r.GetSeq())
		}
	case wirev1.Code_CODE_OUT_OF_ORDER:
		if s.code != r.GetCode() && well {
			w.t.Fatalf("%v is answered %v", s.AppendItem, r)
		}
		w.refused[body] = true
	case wirev1.Code_CODE_CONFLICT: // the shard was lost while it waited
		if well {
			w.t.Fatalf("%v is answered %v", s.AppendItem, r)
		}
		w.refused[body] = true
	case wirev1.Code_CODE_UNAVAILABLE:
		if well || r.GetRetryAfterMs() == 0 {
			w.t.Fatalf("%v is answered %v", s.AppendItem, r)
		}
		w.refused[body] = true
	case wirev1.Code_CODE_INTERNAL:
		if well {
			w.t.Fatalf("%v is answered %v", s.AppendItem, r)
		}
		w.unknown[body] = true
	default:
		w.t.Fatalf("%v is answered %v", s.AppendItem, r)
	}
}

// kept fails unless an item is in the schedule, and not in the log.
func (w *world) kept(s sent, r *meshv1.AppendResult) {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	at, is := w.db.scheduled[backend.ScheduledID{Due: s.GetDeliverAt(), MessageID: [16]byte(s.GetMessageId())}]
	if !is || string(at.Body) != string(s.GetBody()) || !r.GetScheduled() || r.GetSeq() != 0 || r.GetDuplicate() {
		w.t.Fatalf("%v is answered %v, and is in the schedule: %v", s.AppendItem, r, is)
	}
	w.refused[string(s.GetBody())] = true
}

// fault has some calls of the database fail while there is something to do, and heal.
func (w *world) fault() {
	call := rapid.SampledFrom([]string{"open", "claim", "load", "load and release", "release", "commit", "commit", "committed", "keys", "read", "checkpoint"}).Draw(w.t, "call")
	how := rapid.SampledFrom([]error{backend.ErrLost, backend.ErrUnknown, backend.ErrNotCommitted, errTest}).Draw(w.t, "how")
	late := rapid.Bool().Draw(w.t, "late") // it was done
	switch {
	case late && call == "commit":
		how = backend.ErrUnknown // others say that it was not committed
	case late && call == "claim":
		how = backend.ErrLost // others say that nothing was claimed
	case errors.Is(how, backend.ErrUnknown) && (call == "keys" || call == "read"):
		how = backend.ErrLost // nothing is unknown of a question
	}
	calls := strings.Split(call, " and ")
	unknown := call == "committed" // there has to be something to ask about
	left := rapid.IntRange(1, 3).Draw(w.t, "times")
	if len(calls) > 1 {
		left *= 8 // every lane's, and again
	}
	hangs := time.Duration(rapid.SampledFrom([]int{0, 0, 0, 300, 1500}).Draw(w.t, "hangs")) * time.Millisecond
	what := fmt.Sprintf("%v of %s, %d times after %s, late %v", how, call, left, hangs, late)
	w.now = what
	var mu sync.Mutex
	f := func(c string) error {
		mu.Lock()
		fails := slices.Contains(calls, c) && left > 0
		if fails {
			left--
		}
		if c == "commit" && unknown {
			unknown = false
			mu.Unlock()
			return fmt.Errorf("%w: %w", backend.ErrUnknown, errTest)
		}
		mu.Unlock() // who waits for a lock holds up the bubble's time
		if !fails {
			return nil
		}
		if hangs > 0 {
			<-time.After(hangs)
		}
		return fmt.Errorf("%w: %w", how, errTest)
	}
	if late {
		w.db.fail(nil, f)
	} else {
		w.db.fail(f, nil)
	}
	switch {
	case call == "open" || (call == "claim" || len(calls) > 1) && rapid.Bool().Draw(w.t, "lost before"):
		w.db.fence()
		pass(time.Duration(rapid.IntRange(1, 3).Draw(w.t, "ticks")) * tick)
	case call == "checkpoint":
		pass(checkpointEvery)
	}
	w.publish(false)
	if rapid.Bool().Draw(w.t, "move meanwhile") {
		w.deal()
		w.want()
		pass(tick)
		w.publish(false)
	}
	pass(tick)
	w.db.fail(nil, nil)
	pass(hangs) // what hangs still ends
	w.now = what
	w.heal()
}

// heal waits as long as it may take until all is well again.
func (w *world) heal() {
	w.t.Helper()
	// a lane that was looked after just before a tick lets that one go by, and notices at the next
	// what it lost
	pass(2 * tick)
	for range 40 {
		if !slices.ContainsFunc(w.logs[:], func(l *Log) bool { return l.Check() != nil }) {
			break
		}
		pass(tick)
	}
	synctest.Wait()
	w.well("healed of " + w.now)
}

// deal says anew which store is to have which topic.
func (w *world) deal() {
	for _, name := range w.topics {
		w.at[name] = rapid.IntRange(0, 1).Draw(w.t, "store")
	}
	for _, name := range w.topics { // one shard is one store's
		for _, other := range w.topics {
			if topic.Shard(name) == topic.Shard(other) {
				w.at[other] = w.at[name]
			}
		}
	}
}

// move gives shards to the other store: planned, so that nothing is read again, or by force.
func (w *world) move() {
	forced := rapid.Bool().Draw(w.t, "by force")
	w.now = fmt.Sprintf("a move, by force %v", forced)
	w.deal()
	if forced {
		w.db.fence()
		w.want()
		w.heal()
		return
	}
	w.db.mu.Lock()
	before := w.db.loaded
	w.db.mu.Unlock()
	for i, l := range w.logs { // give back first
		kept := slices.DeleteFunc(l.Owned(), func(n int) bool { return !slices.Contains(w.wanted(i), n) })
		l.Want(kept)
	}
	synctest.Wait()
	w.want()
	synctest.Wait()
	w.well("at once after " + w.now)
	w.db.mu.Lock()
	after := w.db.loaded
	w.db.mu.Unlock()
	if after != before {
		w.t.Fatalf("%d runs are read that a store gave back", after-before)
	}
}

// calm passes until checkpoints cover everything.
func (w *world) calm() {
	w.now = "calm"
	pass(checkpointEvery + 2*tick)
	if n := w.db.uncovered(); n > 0 {
		w.t.Fatalf("after %s no checkpoint covers what is in %d shards", checkpointEvery+2*tick, n)
	}
	w.well(w.now)
}

// heads are those of the log, by name and by filter.
func (w *world) heads() {
	for i, l := range w.logs {
		want, mine := map[string]uint64{}, []string{}
		for _, name := range w.topics {
			if head := uint64(len(w.db.bodies(name))); w.at[name] == i {
				mine = append(mine, name)
				if want[name] = head; head == 0 {
					delete(want, name)
				}
			}
		}
		named, err := l.Heads(context.Background(), mine, nil, 0)
		if err != nil || len(named) != len(mine) {
			w.t.Fatalf("heads %v: %v", named, err)
		}
		for _, h := range named {
			if h.GetHead() != want[h.GetTopic()] || h.GetEpoch() != memoryEpoch || h.GetOldest() != 1 {
				w.t.Fatalf("head %v, want %d", h, want[h.GetTopic()])
			}
		}
		matched, shards, err := l.Survey(context.Background(), nil, []string{"#"}, 0)
		if err != nil || len(matched) != len(want) {
			w.t.Fatalf("heads %v of all, want %v: %v", matched, want, err)
		}
		for n := range topic.Shards {
			if shards.Has(n) != slices.Contains(w.wanted(i), n) {
				w.t.Fatalf("shard %d is said to have been looked through: %v", n, shards.Has(n))
			}
		}
	}
}

// logged compares the log with what was answered.
func (w *world) logged() {
	seen := map[string]string{}
	for _, name := range w.topics {
		for i, body := range w.db.bodies(name) {
			if seen[body] != "" {
				w.t.Fatalf("%s is in the log twice", body)
			}
			seen[body] = fmt.Sprintf("%s %d", name, i+1)
			if w.refused[body] {
				w.t.Fatalf("%s is in the log, and was refused", body)
			}
		}
	}
	for body, where := range w.ok {
		if seen[body] != where {
			w.t.Fatalf("%s was answered at %s and is at %q", body, where, seen[body])
		}
	}
}
