package backendtest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

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
	born := in.Newest()
	var gone []backend.Topic
	for _, name := range slices.Sorted(maps.Keys(s.topics)) {
		if x := s.topics[name]; x.Shard == in.Shard && r.IntN(2) == 0 {
			gone = append(gone, backend.Topic{Shard: x.Shard, Topic: name, Oldest: 1})
			if x.Epoch == born {
				born++
			}
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
