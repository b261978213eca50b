package shardlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const (
	briefly  = 20 * time.Second // retention
	briefTTL = 12 * time.Second
)

// brief are namespaces of topics that are soon forgotten; those of one keep their last message.
var brief = policy.NewTable([]*pushmeshv1.Namespace{
	{Prefix: "brief", Policy: &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(briefly)}},
	{Prefix: "keeps", Policy: &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(briefly), Keep: pushmeshv1.Keep_KEEP_LAST}},
})

func forgets(i int) func(*Config) {
	return func(c *Config) {
		c.Owner.StoreID, c.TopicTTL = fmt.Sprint("store-", i), briefTTL
		c.Policies = func() *policy.Table { return brief }
	}
}

// births is a world whose topics are forgotten.
type births struct {
	t      *rapid.T
	db     *memory
	regs   [2]*prometheus.Registry
	logs   [2]*Log
	topics []string
	owner  int
	bodies int
	told   map[string]uint64 // the latest epoch that was told of a topic
	given  map[string]bool   // topic, epoch and seq
}

// Whatever is published when, is stored, folded, fails, is taken over or recalled: no (topic,
// epoch, seq) is given to two messages, no epoch that is told is earlier than what was told before,
// and what is retained, or kept, is not forgotten. What is silent for long is.
func TestNoNumberIsGivenTwice(t *testing.T) {
	forgot := 0
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(unhurried{t}, func(t *rapid.T) {
			w := &births{
				t: t, db: newMemory(), told: map[string]uint64{}, given: map[string]bool{},
				topics: append(inShard(3, "brief/%d", 3), append(inShard(3, "keeps/%d", 1), "brief/a", "keeps/a")...),
			}
			w.db.silence = briefly + briefTTL
			defer w.stop()
			w.live()
			forgot += w.db.forgot
		})
	})
	t.Logf("%d topics were forgotten", forgot)
	if forgot < 10 {
		t.Errorf("only %d topics were forgotten", forgot)
	}
}

// inShard are names of one shard.
func inShard(shard int, format string, n int) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprintf(format, i); topic.Shard(name) == shard {
			names = append(names, name)
		}
	}
	return names
}

func (w *births) shards() (all []int) {
	for _, name := range w.topics {
		all = append(all, topic.Shard(name))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (w *births) stop() {
	w.db.fail(nil, nil)
	for _, l := range w.logs {
		_ = l.Stop(context.Background())
	}
}

func (w *births) live() {
	for i := range w.logs {
		w.regs[i] = prometheus.NewRegistry()
		w.logs[i] = newLog(w.db, w.regs[i], forgets(i))
		_ = w.logs[i].Start(context.Background())
	}
	w.logs[0].Want(w.shards())
	synctest.Wait()
	for range rapid.IntRange(5, 40).Draw(w.t, "steps") {
		switch act := rapid.IntRange(0, 99).Draw(w.t, "act"); {
		case act < 40:
			w.publish()
		case act < 55:
			w.db.fold()
		case act < 75:
			pass(time.Duration(rapid.SampledFrom([]int{1, 5, 15, 40}).Draw(w.t, "s")) * time.Second)
		case act < 85:
			w.fault()
		case act < 92:
			w.move()
		default:
			w.heads()
		}
		w.sound()
	}
	// everything is silent, and stored
	pass(checkpointEvery + 2*tick)
	w.db.fold()
	pass(briefly + 3*briefTTL)
	w.heads()
	w.sound()
	w.db.mu.Lock()
	for _, name := range w.topics {
		_, kept := w.db.kept[name]
		if _, head := w.db.ends(topic.Shard(name), name); (head > 0) != kept {
			w.t.Fatalf("%s has head %d at the end, and keeps a message: %v", name, head, kept)
		}
	}
	w.db.mu.Unlock()
	known := gauge(w.t, w.regs[w.owner], "pushmesh_store_topics")
	if want := len(w.db.kept); int(known) != want {
		w.t.Fatalf("%v topics are known at the end, want %d", known, want)
	}
}

func (w *births) sound() {
	w.t.Helper()
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	if len(w.db.broken) > 0 {
		w.t.Fatalf("%s", w.db.broken[0])
	}
}

// settled waits until the owner has its shards.
func (w *births) settled() {
	w.t.Helper()
	pass(2 * tick)
	for range 40 {
		if w.logs[w.owner].Check() == nil {
			return
		}
		pass(tick)
	}
	w.t.Fatalf("the owner has no shards: %v", w.logs[w.owner].Check())
}

func (w *births) publish() {
	w.settled()
	var items []*meshv1.AppendItem
	used := map[string]bool{}
	for range rapid.IntRange(1, 5).Draw(w.t, "items") {
		w.bodies++
		item := &meshv1.AppendItem{
			Topic: rapid.SampledFrom(w.topics).Draw(w.t, "topic"), Body: fmt.Appendf(nil, "b%d", w.bodies), MessageId: fmt.Appendf(nil, "%016d", w.bodies), PublishedAt: uint64(w.bodies),
		}
		id := backend.ProducerID{7}
		if rapid.Bool().Draw(w.t, "of a producer") && !used[item.GetTopic()] {
			used[item.GetTopic()] = true
			item.ProducerId, item.ProducerSeq = id[:], w.db.last(producerKey{id, item.GetTopic()})+1
		}
		items = append(items, item)
	}
	a := appended(w.logs[w.owner], items...)
	a.wait(w.t)
	for i, r := range a.all {
		if r.GetCode() == wirev1.Code_CODE_OK {
			w.gave(items[i].GetTopic(), r.GetEpoch(), r.GetSeq())
		}
	}
}

// gave fails where a number was given before, or the epoch is an earlier one.
func (w *births) gave(name string, epoch, seq uint64) {
	w.t.Helper()
	key := fmt.Sprintf("%s %d %d", name, epoch, seq)
	if w.given[key] {
		w.t.Fatalf("%s is given twice", key)
	}
	w.given[key] = true
	w.tell(name, epoch)
}

func (w *births) tell(name string, epoch uint64) {
	w.t.Helper()
	if epoch < w.told[name] {
		w.t.Fatalf("%s has epoch %d, after %d was told", name, epoch, w.told[name])
	}
	w.told[name] = epoch
}

// fault has a forgetting, checkpoint, commit, load or question fail, after it was done or before.
func (w *births) fault() {
	call := rapid.SampledFrom([]string{"forget", "forget", "checkpoint", "commit", "load", "silent"}).Draw(w.t, "call")
	how := rapid.SampledFrom([]error{backend.ErrLost, backend.ErrUnknown, errTest}).Draw(w.t, "how")
	late := call != "load" && rapid.Bool().Draw(w.t, "late")
	if call == "commit" {
		how = backend.ErrUnknown
	}
	if (call == "checkpoint" || call == "forget") && late && errors.Is(how, errTest) {
		how = backend.ErrLost // what is done did not fail
	}
	left := rapid.IntRange(1, 3).Draw(w.t, "times")
	f := func(c string) error {
		if c != call || left == 0 {
			return nil
		}
		left--
		return fmt.Errorf("%w: %w", how, errTest)
	}
	if call == "forget" { // there is something to forget
		w.publish()
		pass(checkpointEvery + 2*tick)
		w.db.fold()
	}
	if late {
		w.db.fail(nil, f)
	} else {
		w.db.fail(f, nil)
	}
	if rapid.Bool().Draw(w.t, "with a message") {
		w.publish()
	}
	pass(time.Duration(rapid.SampledFrom([]int{1, 15, 60}).Draw(w.t, "s")) * time.Second)
	w.db.fail(nil, nil)
	w.settled()
}

// move gives all to the other store, or has this one take it again.
func (w *births) move() {
	w.db.fence()
	if rapid.Bool().Draw(w.t, "to the other") {
		w.logs[w.owner].Want(nil)
		w.owner = 1 - w.owner
		w.logs[w.owner].Want(w.shards())
	}
	w.settled()
}

// heads are those of the log.
func (w *births) heads() {
	w.settled()
	all, err := w.logs[w.owner].Heads(context.Background(), w.topics, nil, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	want := map[string]uint64{}
	w.db.mu.Lock()
	for _, h := range all {
		epoch, head := w.db.ends(topic.Shard(h.GetTopic()), h.GetTopic())
		if h.GetEpoch() != epoch || h.GetHead() != head {
			w.t.Fatalf("head %v, want %d of epoch %d", h, head, epoch)
		}
		if head > 0 {
			want[h.GetTopic()] = head
		}
	}
	w.db.mu.Unlock()
	for _, h := range all {
		w.tell(h.GetTopic(), h.GetEpoch())
	}
	matched, err := w.logs[w.owner].Heads(context.Background(), nil, []string{"#"}, 0)
	got := map[string]uint64{}
	for _, h := range matched {
		got[h.GetTopic()] = h.GetHead()
	}
	if err != nil || !maps.Equal(got, want) {
		w.t.Fatalf("# matches %v, want %v: %v", got, want, err)
	}
}

// While a checkpoint is under way, which may name them, topics are not forgotten; after it they
// are.
func TestACheckpointEndsBeforeTopicsAreForgotten(t *testing.T) {
	db := newMemory()
	w, err := db.OpenWriter(t.Context(), backend.Owner{StoreID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	name := inShard(3, "brief/%d", 1)[0]
	if _, err := w.TakeShards(t.Context(), []int{3}); err != nil {
		t.Fatal(err)
	}
	db.runs = []backend.Run{{Shard: 3, Commit: 1, Topic: name, Epoch: memoryEpoch, First: 1, N: 4, At: 1}}
	known := backend.Topic{Shard: 3, Topic: name, Epoch: memoryEpoch, Head: 4, Oldest: 1}
	l := newLog(db, prometheus.NewRegistry(), forgets(0)).lanes[0]
	l.writer = w
	loaded := newLoader(1)
	loaded.LoadShard(backend.Shard{Shard: 3, Epoch: memoryEpoch, Commit: 1})
	loaded.LoadTopic(known)
	loaded.index()
	l.state.merge(loaded.state, 1)
	l.handForgettable(&forgettable{3, []backend.SilentTopic{{Topic: known}}})
	l.checkpoints.rest = &backend.Checkpoint{Topics: []backend.Topic{known}}
	l.forgetTopics()
	if db.calls("forget") != 0 || !l.forgets() || l.state.topic(3, name) == nil {
		t.Error("a topic is forgotten that a checkpoint is about to store")
	}
	l.storePart()
	l.forgetTopics()
	if db.calls("forget") != 1 || l.forgets() || l.state.topic(3, name) != nil || len(db.broken) > 0 {
		t.Errorf("the topic is not forgotten: %v", db.broken)
	}
}
