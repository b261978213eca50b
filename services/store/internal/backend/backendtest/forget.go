package backendtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// A topic that was forgotten is told no more, wherever its states lie, until it begins anew: then
// its greater head of before is void. What began anew is forgotten again. The shard's epoch of new
// topics is told, is never lowered, and a new epoch is above it.
func testTopicsForgotten(t *testing.T, db Database) {
	for _, folds := range []string{"", "before", "between", "after", "before between after", "between after"} {
		b := db(t)
		w := writer(t, b, owner("a"), 1, 2)
		in := load(t, w, 1, 2).shards[1]
		epoch := in.Newest()
		name := "x " + folds
		fold := func(when string) {
			t.Helper()
			if slices.Contains(strings.Fields(folds), when) {
				need(t, b.FoldCheckpoints(within(t), backend.FoldAll))
			}
		}
		is := func(what string, born, epoch, head uint64) {
			t.Helper()
			got := load(t, w, 1, 2)
			if x := got.topics[name]; x.Epoch != epoch || x.Head != head || got.shards[1].Born != born || got.topics["stays"].Head != 1 {
				t.Errorf("%q, %s: %+v, %+v, %+v; want epoch %d, head %d, born %d", folds, what, x, got.topics["stays"], got.shards[1], epoch, head, born)
			}
		}
		put := func(x backend.Topic, born uint64) {
			t.Helper()
			x.Shard, x.Oldest = 1, 1
			need(t, w.Checkpoint(within(t), &backend.Checkpoint{Topics: []backend.Topic{x}, Shards: []backend.Shard{{Shard: 1, Epoch: in.Epoch, Born: born}}}))
		}
		put(backend.Topic{Topic: "stays", Epoch: in.Epoch, Head: 1}, in.Born)
		put(backend.Topic{Topic: name, Epoch: epoch, Head: 41}, in.Born)
		fold("before")
		put(backend.Topic{Topic: name, Epoch: epoch + 1}, epoch+1)
		is("forgotten", epoch+1, 0, 0)
		fold("between")
		is("forgotten and folded", epoch+1, 0, 0)
		put(backend.Topic{Topic: name, Epoch: epoch + 1, Head: 2}, epoch+1)
		is("begun anew", epoch+1, epoch+1, 2)
		fold("after")
		is("begun anew and folded", epoch+1, epoch+1, 2)
		put(backend.Topic{Topic: name, Epoch: epoch + 2}, epoch+2)
		put(backend.Topic{Topic: "stays", Epoch: in.Epoch, Head: 1}, 0) // from before
		is("forgotten again", epoch+2, 0, 0)
		need(t, b.FoldCheckpoints(within(t), backend.FoldPack))
		is("packed", epoch+2, 0, 0)
		need(t, b.FoldCheckpoints(within(t), backend.FoldAll))
		is("folded", epoch+2, 0, 0)
		// a row that is gone is not looked at either
		if all := silent(t, b, 1); slices.ContainsFunc(all, func(x backend.SilentTopic) bool { return x.Topic.Topic == name }) {
			t.Errorf("%q: %+v is still stored", folds, all)
		}
		closeNow(t, w)
		if err := b.NewEpoch(within(t), epoch+2); !errors.Is(err, backend.ErrConflict) {
			t.Errorf("a new epoch that topics had: %v", err)
		}
		need(t, b.NewEpoch(within(t), epoch+3))
		w = writer(t, b, owner("a"), 1)
		if got := load(t, w, 1); got.shards[1].Epoch != epoch+3 || got.shards[1].Born != 0 || len(got.topics) > 0 {
			t.Errorf("a new epoch begins with %+v, %v", got.shards[1], got.topics)
		}
		closeNow(t, b)
	}
}

// silent are all topics of a shard that are stored, whenever that was.
func silent(t *testing.T, b backend.Backend, shard int) (all []backend.SilentTopic) {
	t.Helper()
	for after := ""; ; {
		some, next, err := b.Silent(within(t), shard, after, uint64(time.Now().Add(time.Hour).UnixMicro()))
		need(t, err)
		all = append(all, some...)
		if next == "" {
			return all
		}
		if next <= after {
			t.Fatalf("after %q it goes on with %q", after, next)
		}
		after = next
	}
}

// Topics are told by when their stored state changed last, a piece of a shard at a time.
func testSilentTopics(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	const n = backend.SilentLook + 10
	w := writer(t, b, owner("a"), 1, 2)
	epoch := load(t, w, 1, 2).shards[1].Epoch
	began := uint64(time.Now().UnixMicro())
	c := &backend.Checkpoint{}
	for i := range n {
		c.Topics = append(c.Topics, backend.Topic{Shard: 1, Topic: fmt.Sprintf("t/%05d", i), Epoch: epoch, Head: uint64(i + 1), Oldest: 1})
	}
	c.Topics = append(c.Topics, backend.Topic{Shard: 2, Topic: "other", Epoch: epoch, Head: 1, Oldest: 1})
	need(t, w.Checkpoint(within(t), c))
	need(t, b.FoldCheckpoints(within(t), backend.FoldAll))
	all := silent(t, b, 1)
	if len(all) != n {
		t.Fatalf("%d topics of %d", len(all), n)
	}
	last := uint64(0)
	for i, x := range all {
		if x.Topic != c.Topics[i] || x.At < began-uint64(time.Minute.Microseconds()) || x.At > uint64(time.Now().Add(time.Minute).UnixMicro()) {
			t.Fatalf("%+v, want %+v", x, c.Topics[i])
		}
		last = max(last, x.At)
	}
	if some, next, err := b.Silent(within(t), 1, "", began-uint64(time.Minute.Microseconds())); err != nil || len(some) > 0 || next != all[backend.SilentLook-1].Topic.Topic {
		t.Errorf("before it was stored: %d topics, then %q: %v", len(some), next, err)
	}
	// what is stored again without a change does not count, a change does
	need(t, w.Checkpoint(within(t), &backend.Checkpoint{Topics: []backend.Topic{{Shard: 1, Topic: "t/00003", Epoch: epoch, Head: 9, Oldest: 1}}}))
	need(t, b.FoldCheckpoints(within(t), backend.FoldAll))
	for i, x := range silent(t, b, 1) {
		if changed := x.At > all[i].At; changed != (i == 3) {
			t.Fatalf("%+v after %+v", x, all[i])
		}
	}
	need(t, b.ForgetTopics(within(t)))
	need(t, b.ForgetTopics(within(t)))
}

// soon is a namespace of which messages are not retained for long.
var soon = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "soon", Policy: &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(time.Hour)}}})

// A store forgets what is silent for long, in its memory and in the database, and nothing else;
// what begins anew has a later epoch, for whoever takes over as well.
func testLogForgets(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	clock := NewClock()
	clock.Add(time.Since(clock.Now())) // rows have the database's
	shards := []int{topic.Shard("soon/gone"), topic.Shard("soon/stays"), topic.Shard("room/day")}
	slices.Sort(shards)
	open := func(store string, ttl time.Duration) *Log {
		l := OpenLogOf(t, shards, b, owner(store), 2, clock.Now, func(c *shardlog.Config) {
			c.TopicTTL, c.Policies = ttl, func() *policy.Table { return soon }
		})
		l.WaitReady(t)
		return l
	}
	l := open("a", 0)
	first := l.Append(t, Item("soon/gone", "1"), Item("soon/gone", "2"), Item("soon/stays", "1"), Item("room/day", "1"))
	head := func(l *Log, name string) (uint64, uint64) {
		all, err := l.Heads(within(t), []string{name}, nil, 0)
		need(t, err)
		return all[0].GetEpoch(), all[0].GetHead()
	}
	l.Close(t) // stores all
	need(t, b.FoldCheckpoints(within(t), backend.FoldAll))
	clock.Add(3 * time.Hour)
	l = open("a", 0)
	stays := l.Append(t, Item("soon/stays", "2"))
	l.Close(t)
	l = open("b", shardlog.ShortestTopicTTL)
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for epoch, n := head(l, "soon/gone"); n != 0 || epoch <= first[0].GetEpoch(); epoch, n = head(l, "soon/gone") {
		<-poll.C // within says for how long
	}
	if _, n := head(l, "soon/stays"); n != 2 || stays[0].GetSeq() != 2 {
		t.Errorf("head %d of what is published to", n)
	}
	if epoch, n := head(l, "room/day"); n != 1 || epoch != first[3].GetEpoch() {
		t.Errorf("head %d of epoch %d of what is retained", n, epoch)
	}
	if matched, err := l.Heads(within(t), nil, []string{"soon/+"}, 0); err != nil || len(matched) != 1 {
		t.Errorf("topics %v: %v", matched, err)
	}
	again := l.Append(t, Item("soon/gone", "3"))
	if again[0].GetSeq() != 1 || again[0].GetEpoch() <= first[0].GetEpoch() {
		t.Errorf("it begins anew with %v after %v", again[0], first[1])
	}
	if bodies := l.Bodies(t, "soon/gone"); !slices.Equal(bodies, []string{"3"}) {
		t.Errorf("its log is %q", bodies)
	}
	l.Close(t)
	need(t, b.FoldCheckpoints(within(t), backend.FoldAll))
	l = open("c", 0)
	if epoch, n := head(l, "soon/gone"); n != 1 || epoch != again[0].GetEpoch() {
		t.Errorf("taken over with head %d of epoch %d", n, epoch)
	}
	l.Close(t)
}
