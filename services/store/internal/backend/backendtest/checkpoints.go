package backendtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Checkpoints at random, with folds, restarts and takeovers between: what is loaded is the greatest
// of all that was stored, however it lies.
func testCheckpointHistory(t *testing.T, db Database) {
	seed := rand.Uint64() // #nosec G404 -- printed, to run it again
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2)) // #nosec G404
	b := db(t)
	defer func() { closeNow(t, b) }()
	shards := []int{3, 4, 900}
	open := func() (backend.Writer, uint64) {
		w := writer(t, b, owner(fmt.Sprint("store-", r.IntN(3))), shards...)
		return w, load(t, w, shards...).shards[3].Epoch
	}
	w, epoch := open()
	want := load(t, w, shards...)
	for step := range 150 {
		switch dice := r.IntN(100); {
		case dice < 60:
			c := randomCheckpoint(r, shards, want, uint64(step))
			need(t, w.Checkpoint(within(t), c))
			want.checkpointed(c)
		case dice < 65:
			c := want.forgetting(r, shards)
			need(t, w.Checkpoint(within(t), c))
			want.checkpointed(c)
		case dice < 70:
			need(t, b.FoldCheckpoints(within(t), backend.FoldPack))
		case dice < 75:
			need(t, b.FoldCheckpoints(within(t), backend.FoldAll))
		case dice < 78:
			need(t, b.FoldCheckpoints(within(t), backend.FoldDue))
			_, err := b.DropSlices(within(t), begin)
			need(t, err)
		case dice < 80:
			closeNow(t, b)
			b = db(t)
			w, _ = open()
		case dice < 82:
			closeNow(t, w)
			epoch++
			for n := range shards {
				newest := want.shards[shards[n]]
				epoch = max(epoch, newest.Newest()+1)
			}
			need(t, b.NewEpoch(within(t), epoch))
			w, _ = open()
			fresh := load(t, w, shards...)
			if len(fresh.topics)+len(fresh.producers) > 0 {
				t.Fatalf("a new epoch begins with %v, %v", fresh.topics, fresh.producers)
			}
			for n, s := range fresh.shards {
				if s.Commit < want.shards[n].Commit || s.Epoch != epoch || s.Born != 0 {
					t.Fatalf("a new epoch begins with %+v after %+v", s, want.shards[n])
				}
			}
			want = fresh
		default:
			if diff := gocmp.Diff(want, load(t, w, shards...), gocmp.AllowUnexported(state{})); diff != "" {
				t.Fatalf("step %d (-want +got): %s", step, diff)
			}
		}
	}
	if diff := gocmp.Diff(want, load(t, w, shards...), gocmp.AllowUnexported(state{})); diff != "" {
		t.Fatalf("at the end (-want +got): %s", diff)
	}
}

// Shards with many topics go from owner to owner while checkpoints are folded all the time.
func testFoldsBesideTakeovers(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	ctx, stop := context.WithCancel(within(t))
	var folding sync.WaitGroup
	folding.Go(func() {
		for ctx.Err() == nil {
			if err := b.FoldCheckpoints(ctx, backend.FoldAll); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	defer folding.Wait()
	defer stop()
	const topics, rounds, part = 1000, 10, 250
	shards := []int{3, 4, 900}
	for head := range uint64(rounds) {
		w := writer(t, b, owner(fmt.Sprint("store-", head%3)), shards...)
		have := load(t, w, shards...)
		next := &backend.Checkpoint{}
		low, behind := 0, 0
		for i := range topics {
			shard := shards[i%len(shards)]
			x := backend.Topic{Shard: shard, Topic: fmt.Sprint("t", i), Epoch: have.shards[shard].Epoch, Head: head + 1, Oldest: 1}
			p := backend.Producer{Shard: shard, Topic: x.Topic, ID: [16]byte{1}, ProducerSeq: head + 1, Epoch: x.Epoch, Seq: head + 1, At: begin}
			if have.topics[x.Topic].Head != head {
				low++
			}
			if have.producers[producerKey(p)].ProducerSeq != head {
				behind++
			}
			next.Topics, next.Producers = append(next.Topics, x), append(next.Producers, p)
		}
		for _, shard := range shards {
			if have.shards[shard].Commit != head {
				t.Errorf("shard %d: the checkpoint covers commit %d, want %d", shard, have.shards[shard].Commit, head)
			}
			next.Shards = append(next.Shards, backend.Shard{Shard: shard, Epoch: have.shards[shard].Epoch, Commit: head + 1})
		}
		if low+behind > 0 {
			t.Fatalf("of %d topics %d heads and %d positions of producers are not those of the last checkpoint, %d", topics, low, behind, head)
		}
		for i := 0; i < topics; i += part {
			need(t, w.Checkpoint(within(t), &backend.Checkpoint{Topics: next.Topics[i : i+part], Producers: next.Producers[i : i+part]}))
		}
		need(t, w.Checkpoint(within(t), &backend.Checkpoint{Shards: next.Shards}))
		closeNow(t, w)
	}
}

func randomCheckpoint(r *rand.Rand, shards []int, of *state, at uint64) *backend.Checkpoint {
	c := &backend.Checkpoint{}
	seen := map[string]bool{}
	for range r.IntN(4) {
		shard := shards[r.IntN(len(shards))]
		topic := fmt.Sprintf("%d/%d", shard, r.IntN(4))
		if seen[topic] {
			continue
		}
		seen[topic] = true
		in := of.shards[shard]
		epoch := in.Newest()
		if have, ok := of.topics[topic]; ok {
			epoch = have.Epoch
		}
		c.Topics = append(c.Topics, backend.Topic{Shard: shard, Topic: topic, Epoch: epoch, Head: 1 + at + r.Uint64N(9), Oldest: 1 + r.Uint64N(at+1)})
		n := at + r.Uint64N(9)
		c.Producers = append(c.Producers, backend.Producer{Shard: shard, Topic: topic, ID: [16]byte{byte(r.IntN(3))}, ProducerSeq: n, Epoch: epoch, Seq: n, At: begin + n})
	}
	for _, shard := range shards {
		if r.IntN(2) == 0 {
			c.Shards = append(c.Shards, backend.Shard{Shard: shard, Epoch: of.shards[shard].Epoch, Born: of.shards[shard].Born, Commit: at + r.Uint64N(9), Forgot: begin + r.Uint64N(at+1)})
		}
	}
	return c
}

// forgetting is a checkpoint that forgets some of a shard's topics.
func (s *state) forgetting(r *rand.Rand, shards []int) *backend.Checkpoint {
	in := s.shards[shards[r.IntN(len(shards))]]
	born, gone := in.Newest(), []backend.Topic(nil)
	for _, name := range slices.Sorted(maps.Keys(s.topics)) {
		if x := s.topics[name]; x.Shard == in.Shard && r.IntN(2) == 0 {
			gone = append(gone, backend.Topic{Shard: x.Shard, Topic: name, Oldest: 1})
			born = max(born, x.Epoch+1)
		}
	}
	for i := range gone {
		gone[i].Epoch = born
	}
	return &backend.Checkpoint{Topics: gone, Shards: []backend.Shard{{Shard: in.Shard, Epoch: in.Epoch, Born: born}}}
}

// checkpointed does to a state what a checkpoint does.
func (s *state) checkpointed(c *backend.Checkpoint) {
	for _, x := range c.Topics {
		s.LoadTopic(x)
	}
	s.forgotten()
	for _, x := range c.Shards {
		have := s.shards[x.Shard]
		x.Commit, x.Forgot, x.Born = max(x.Commit, have.Commit), max(x.Forgot, have.Forgot), max(x.Born, have.Born)
		s.shards[x.Shard] = x
	}
	for _, x := range c.Producers {
		s.LoadProducer(x)
	}
	for key, x := range s.producers {
		if x.At < s.shards[x.Shard].Forgot {
			delete(s.producers, key)
		}
	}
}

// A topic that was forgotten is told no more, wherever its states lie, until it begins anew: then
// its greater head of before is void. The shard's epoch of new topics is told and never lowered.
func testTopicsForgotten(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	w := writer(t, b, owner("a"), 1)
	in := load(t, w, 1).shards[1]
	epoch := in.Epoch
	for i, folds := range []string{"", "before", "between", "after", "before between after", "between after"} {
		name := fmt.Sprint("x", i)
		// step stores a state, folds perhaps, and compares what is told.
		step := func(when string, x backend.Topic, born uint64) {
			t.Helper()
			x.Shard, x.Topic, x.Oldest = 1, name, 1
			need(t, w.Checkpoint(within(t), &backend.Checkpoint{Topics: []backend.Topic{x}, Shards: []backend.Shard{{Shard: 1, Epoch: in.Epoch, Born: born}}}))
			if slices.Contains(strings.Fields(folds), when) {
				need(t, b.FoldCheckpoints(within(t), backend.FoldAll))
			}
			got := load(t, w, 1)
			if have := got.topics[name]; have.Head != x.Head || x.Head > 0 && have.Epoch != x.Epoch || got.shards[1].Born != born {
				t.Errorf("%q, %s: %+v, %+v, want %+v", folds, when, have, got.shards[1], x)
			}
		}
		step("before", backend.Topic{Epoch: epoch, Head: 41}, load(t, w, 1).shards[1].Born)
		step("between", backend.Topic{Epoch: epoch + 1}, epoch+1)
		step("after", backend.Topic{Epoch: epoch + 1, Head: 2}, epoch+1)
		step("again", backend.Topic{Epoch: epoch + 2}, epoch+2)
		for _, how := range []backend.Fold{backend.FoldPack, backend.FoldAll} {
			need(t, b.FoldCheckpoints(within(t), how))
			if len(load(t, w, 1).topics) > 0 {
				t.Errorf("%q: it is back", folds)
			}
		}
		if all := silent(t, b, 1); len(all) > 0 {
			t.Errorf("%q: %+v is stored", folds, all)
		}
		epoch += 2
	}
	closeNow(t, w)
	if err := b.NewEpoch(within(t), epoch); !errors.Is(err, backend.ErrConflict) {
		t.Errorf("a new epoch that topics had: %v", err)
	}
}

// silent are all topics of a shard that are stored, whenever that was.
func silent(t *testing.T, b backend.Backend, shard int) (all []backend.SilentTopic) {
	t.Helper()
	for after := ""; ; {
		some, next, err := b.Silent(within(t), shard, after, uint64(time.Now().Add(time.Hour).UnixMicro()))
		need(t, err)
		all = append(all, some...)
		if after = next; next == "" {
			return all
		}
	}
}

// Topics are told by when their stored state changed last, a piece of a shard at a time.
func testSilentTopics(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	w := writer(t, b, owner("a"), 1)
	epoch := load(t, w, 1).shards[1].Epoch
	c := &backend.Checkpoint{}
	for i := range backend.SilentLook + 10 {
		c.Topics = append(c.Topics, backend.Topic{Shard: 1, Topic: fmt.Sprintf("t/%05d", i), Epoch: epoch, Head: uint64(i + 1), Oldest: 1})
	}
	store := func(c *backend.Checkpoint) []backend.SilentTopic {
		need(t, w.Checkpoint(within(t), c))
		need(t, b.FoldCheckpoints(within(t), backend.FoldAll))
		return silent(t, b, 1)
	}
	before := uint64(time.Now().Add(-time.Minute).UnixMicro())
	first := store(c)
	if some, next, err := b.Silent(within(t), 1, "", before); err != nil || len(some) > 0 || len(first) != len(c.Topics) || next != first[backend.SilentLook-1].Topic.Topic {
		t.Fatalf("of %d topics %d before they were stored, then %q: %v", len(first), len(some), next, err)
	}
	c.Topics[3].Head = 9
	for i, x := range store(&backend.Checkpoint{Topics: c.Topics[3:4]}) {
		if x.Topic != c.Topics[i] || (x.At > first[i].At) != (i == 3) {
			t.Fatalf("%+v after %+v, want %+v", x, first[i], c.Topics[i])
		}
	}
	need(t, errors.Join(b.ForgetTopics(within(t)), b.ForgetTopics(within(t))))
}
