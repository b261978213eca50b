package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/test/load/firehose"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	// wildcardRate is how many wildcards a second are asked beside publishing.
	wildcardRate = 13
	wildcards    = 200
	topicRate    = 500 // frames a second of one message, beside wildcards
)

// manyTopics starts a store whose log has so many topics, and asks it for wildcards with ten
// matches while it is published to.
func (b *bench) manyTopics(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.mesh(ctx, 0))
	defer func() { err = errors.Join(err, m.end()) }()
	try.Do(m.Store.Stop(time.Minute))
	try.Do(m.Store.Start())
	try.Do(m.Store.Ready(ctx))
	empty := try.Get(memoryOf(ctx, m))
	try.Do(m.Store.Stop(time.Minute))
	try.Do(insertTopics(ctx, m.url, b.topics))
	began := time.Now()
	try.Do(m.Store.Start())
	try.Do(m.Store.Ready(ctx))
	took := time.Since(began)
	full := try.Get(memoryOf(ctx, m))
	each := func(full, empty float64) float64 { return (full - empty) / float64(b.topics) }
	many := fmt.Sprintf("%d topics", b.topics)
	b.Add(
		table.AtMost(many+": memory of a store for each", each(full.heap, empty.heap), "B", 100, fmt.Sprintf("in use after a collection; RSS after the takeover %.0f B for each; names of 20 to 27 bytes", each(full.rss, empty.rss))),
		table.AtMost(fmt.Sprintf("%s: a store takes %d shards", many, topic.Shards), took.Seconds(), "s", 10, "from the start of its process until it is ready"),
	)
	conn := try.Get(suite.Dial(m.Store.Addr))
	defer func() { _ = conn.Close() }()
	store := meshv1.NewStoreServiceClient(conn)
	asked := try.Get(askWildcards(ctx, store, b.topics, 0))
	b.Add(table.AtMost(many+": a wildcard with 10 matches, p99", table.Quantile(asked, .99), "ms", 5, fmt.Sprintf("p50 %s, of %d, nothing beside", ms(asked, .5), len(asked))))
	calm := try.Get(published(ctx, m, func() error { return nil }))
	beside := try.Get(published(ctx, m, func() (err error) {
		asked, err = askWildcards(ctx, store, b.topics, wildcardRate)
		return err
	}))
	b.Add(table.AtMost(fmt.Sprintf("%s: publish p99 beside %d such wildcards a second, less calm", many, wildcardRate), table.Quantile(beside, .99)-table.Quantile(calm, .99), "ms", 10,
		fmt.Sprintf("%s, calm %s; max %s, calm %s; the wildcards' p99 %s", ms(beside, .99), ms(calm, .99), ms(beside, 1), ms(calm, 1), ms(asked, .99))))
	return nil
}

// published is how long answers to single messages take while beside runs.
func published(ctx context.Context, m *mesh, beside func() error) (took []time.Duration, err error) {
	defer try.Catch(&err)
	h := try.Get(firehose.Dial(ctx, firehose.Config{Addr: m.Router.Addr, Topics: []string{"room/0/chat"}, Size: payload, Window: 64, Rate: topicRate}))
	ended := make(chan error, 1)
	go func() { ended <- beside() }()
	took = try.Get(h.Run(ctx, wildcards*time.Second/wildcardRate))
	return took, <-ended
}

// askWildcards asks for wildcards with ten matches each, one after the other, so many a second (0:
// at once).
func askWildcards(ctx context.Context, store meshv1.StoreServiceClient, topics int64, rate int) (took []time.Duration, err error) {
	began := time.Now()
	for i := range wildcards {
		if rate > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		}
		asked := time.Now()
		resp, err := store.Heads(ctx, &meshv1.HeadsRequest{Filters: []string{fmt.Sprintf("room/+/rare%d", int64(i)%rareWords(topics))}, Limit: 1000})
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(asked))
		if n := len(resp.GetHeads()); n != 10 {
			return nil, fmt.Errorf("%d topics match, want 10", n)
		}
	}
	slices.Sort(took)
	return took, nil
}

// rareWords is how many last levels ten topics have in common.
func rareWords(topics int64) int64 { return max(topics/100_000, 1) }

// topicName is the i-th of so many: chats of rooms, and ten in 100,000 that have a rare word.
func topicName(i, topics int64) string {
	if i%10_000 == 1 && i/10_000 < 10*rareWords(topics) {
		return fmt.Sprintf("room/%d/rare%d", i, i/10_000%rareWords(topics))
	}
	return fmt.Sprintf("room/%d/chat", i)
}

// insertTopics writes what checkpoints of so many topics would have left.
func insertTopics(ctx context.Context, url string, topics int64) (err error) {
	defer try.Catch(&err)
	conn := try.Get(pgx.Connect(ctx, url))
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var epoch int64
	try.Do(conn.QueryRow(ctx, "SELECT max(epoch) FROM pushmesh.shard").Scan(&epoch))
	i := int64(-1)
	try.Get(conn.CopyFrom(ctx, pgx.Identifier{"pushmesh", "topic"}, []string{"shard", "topic", "epoch", "head", "oldest"}, pgx.CopyFromFunc(func() ([]any, error) {
		if i++; i == topics {
			return nil, nil
		}
		name := topicName(i, topics)
		return []any{int32(topic.Shard(name)), name, epoch, int64(10), int64(1)}, nil
	})))
	try.Get(conn.Exec(ctx, "VACUUM (ANALYZE) pushmesh.topic"))
	return nil
}

// memory of a store, in bytes.
type memory struct{ heap, rss float64 }

// memoryOf is what the store has in use.
func memoryOf(ctx context.Context, m *mesh) (_ memory, err error) {
	defer try.Catch(&err)
	rss := try.Get(procfs.RSS(m.Store.PID()))
	try.Get(m.Store.Get(ctx, "/debug/pprof/heap?gc=1"))
	metrics := try.Get(m.Store.Metrics(ctx))
	return memory{metrics["go_memstats_heap_alloc_bytes"], float64(rss)}, nil
}
