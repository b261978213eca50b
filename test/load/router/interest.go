package router

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	interestTopics = 10_000_000
	entryGoal      = 100 // B
	lookupGoal     = 300 // ns
	announceGoal   = 1_000_000
	readyGoal      = 10   // s
	wildGoal       = 2000 // ns
	hostileGoal    = 200  // µs
)

// interest measures the router's table of who wants what, with its own benchmarks.
func (b *bench) interest(ctx context.Context) error {
	return errors.Join(b.memory(ctx), b.lookups(ctx))
}

func (b *bench) memory(ctx context.Context) error {
	for run, name := range map[string]string{
		"Memory/half_each": "router memory per (topic, edge), 10 million topics, half of them on each of two edges",
		"Memory/both":      "the same, all of them on both edges",
	} {
		m, err := b.ownBenchmark(ctx, run) // a process for each: its memory is the figure
		if err != nil {
			return err
		}
		b.Add(table.AtMost(name, m[run]["rss-B/entry"], "B", entryGoal, fmt.Sprintf("RSS; on the heap %.3g B", m[run]["heap-B/entry"])))
	}
	return nil
}

func (b *bench) lookups(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.ownBenchmark(ctx, "^BenchmarkInterest$"))
	alone, beside := m["Interest/lookup"], m["Interest/lookup_beside_announcing"]
	b.Add(
		table.AtMost("lookup of a topic among 10 million", alone["ns/op"], "ns", lookupGoal,
			fmt.Sprintf("random topics; of a topic that nobody wants %.0f ns", m["Interest/lookup_miss"]["ns/op"])),
		table.AtMost("the same beside announcements", beside["ns/op"], "ns", lookupGoal, fmt.Sprintf("%.0f announced/s beside it", beside["announced/s"])),
		table.AtLeast("announcements applied by one core", m["Interest/apply"]["announced/s"], "topics/s", announceGoal, "500 topics a message"),
		table.AtLeast("announcements decoded and applied by one core", m["Interest/apply_decoded"]["announced/s"], "topics/s", announceGoal, "one topic a message"),
	)
	m = try.Get(b.ownBenchmark(ctx, "Snapshot"))
	s := m["Snapshot"]
	b.Add(table.Figure("longest lookup while snapshots of 10 million topics are taken in", s["max-µs"], "µs",
		fmt.Sprintf("p99.99 %.3g µs; %.3g million topics a second taken in, decoding included", s["p99.99-µs"], s["taken/s"]/1e6)))
	return nil
}

func (b *bench) wildcards(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.ownBenchmark(ctx, "Wildcards"))
	b.Add(
		table.AtMost("match of a topic among a million wildcard filters", m["Wildcards/hit"]["ns/op"], "ns", wildGoal, "random users of whom some are wanted"),
		table.AtMost("the same, five levels deep", m["Wildcards/deep"]["ns/op"], "ns", wildGoal, ""),
		table.AtMost("the same, nothing matches", m["Wildcards/miss"]["ns/op"], "ns", wildGoal, ""),
		table.AtMost("the same with 2^18 filters made to cost", m["Wildcards/hostile"]["ns/op"]/1000, "µs", hostileGoal,
			"each choice of a level or + for 18 levels; the match gives up and takes every edge with wildcards"),
	)
	return nil
}

// ownBenchmark runs the interest table's own benchmarks and returns their figures by name and unit.
func (b *bench) ownBenchmark(ctx context.Context, run string) (map[string]map[string]float64, error) {
	all, err := b.Benchmark(ctx, "interest.test", run, "1s", 1, "PUSHMESH_INTEREST_TOPICS="+strconv.Itoa(interestTopics))
	found := map[string]map[string]float64{}
	for name, units := range all {
		found[name] = map[string]float64{}
		for unit, v := range units {
			found[name][unit] = v[0]
		}
	}
	return found, err
}

// newRouter starts a router in a mesh of two edges that want five million topics each.
func (b *bench) newRouter(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, 0))
	defer m.Stop()
	local.Stop(m.Router)
	began := time.Now()
	var edges [2]*suite.Worker
	failed := suite.Each(len(edges), len(edges), func(_, i int) (err error) {
		half := interestTopics / len(edges)
		edges[i], err = b.hold(m, fmt.Sprintf("hold-%d", i), "user/%d/inbox", i*half, (i+1)*half)
		return err
	})
	for _, p := range edges {
		if p != nil {
			defer p.Kill()
		}
	}
	try.Do(failed)
	filled := time.Since(began)
	began = time.Now()
	p, err := m.AnotherRouter(ctx, "router-2")
	if p != nil {
		defer local.Stop(p)
	}
	if err != nil {
		return err
	}
	took := time.Since(began)
	rss := try.Get(procfs.RSS(p.PID()))
	b.Add(table.AtMost("new router ready, 10 million topics on two edges", took.Seconds(), "s", readyGoal,
		fmt.Sprintf("from the start of its process; RSS %d MiB then; the edges took %.0f s to subscribe", rss>>20, filled.Seconds())))
	return nil
}
