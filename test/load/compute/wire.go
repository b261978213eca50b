package compute

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	candidate "github.com/pushmesh/pushmesh/internal/candidates"
	"github.com/pushmesh/pushmesh/internal/computeclient"
	"github.com/pushmesh/pushmesh/internal/cpupool"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// inFlight jobs of the whole way.
const inFlight = 64

// load is one kind of job on its way to a compute node.
type load struct {
	name     string
	job      *meshv1.RankJobRequest
	pairs    int // of a candidate and a profile
	rate     []float64
	server   []float64 // µs of CPU for a job
	client   []float64
	work     []float64 // the ranking itself, in this process
	alone    []time.Duration
	shipping []time.Duration // of those: less the work and the wait
}

// wire has a compute node of its own process rank, over the stream that routers use.
func (b *bench) wire(ctx context.Context) (err error) {
	defer try.Catch(&err)
	p, c := try.Get2(b.startCompute(ctx, nil))
	defer local.Stop(p)
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	now := time.Now()
	weighted := func(n int) *pushmeshv1.RankRequest {
		return &pushmeshv1.RankRequest{Candidates: candidates(n, now), Weighted: weightedScorer(), Profile: profile(7), TopK: 10}
	}
	many := &meshv1.RankJobRequest{Rank: &pushmeshv1.RankRequest{Candidates: candidates(1000, now), Expression: &pushmeshv1.ExpressionScorer{Expression: usualExpression}}}
	for i := range 100 {
		many.Profiles = append(many.Profiles, &meshv1.RankProfile{Features: profile(i), TopK: 10})
	}
	alike := &meshv1.RankJobRequest{Rank: &pushmeshv1.RankRequest{Candidates: candidates(1000, now), Embedding: &pushmeshv1.EmbeddingScorer{}}}
	for i, c := range alike.GetRank().GetCandidates() {
		c.Vector = vectorOf(i)
	}
	for i := range 100 {
		alike.Profiles = append(alike.Profiles, &meshv1.RankProfile{Vector: vectorOf(7 * i), TopK: 10})
	}
	loads := []*load{
		{name: "100 candidates, weighted", job: &meshv1.RankJobRequest{Rank: weighted(100)}, pairs: 100},
		{name: "1000 candidates, weighted", job: &meshv1.RankJobRequest{Rank: weighted(1000)}, pairs: 1000},
		{name: "1000 candidates × 100 profiles, expression", job: many, pairs: 100_000},
		{name: "1000 candidates × 100 profiles, embedding", job: alike, pairs: 100_000},
	}
	for range b.Rounds {
		for _, l := range loads {
			if err := l.round(ctx, c, p, b.Span); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	for _, l := range loads {
		b.wireRows(c, l)
	}
	if b.Profile == "" {
		return nil
	}
	for i, l := range loads {
		done := b.Profiles(ctx, fmt.Sprintf("wire-%d", i), 3, p)
		_, err := l.flood(ctx, c, 4*time.Second)
		try.Do(errors.Join(err, done()))
	}
	return nil
}

// packedSize is that of a job as the client ships it; 0: it can't.
func packedSize(job *meshv1.RankJobRequest) int {
	needs := score.NeedsOf(job.GetRank())
	packed, err := candidate.Pack(score.Candidates(job.GetRank().GetCandidates()), &needs)
	if err != nil {
		return 0
	}
	return proto.Size(&meshv1.RankJobRequest{Packed: packed, Profiles: job.GetProfiles()})
}

// vectorOf is one of 128 dimensions.
func vectorOf(n int) []float32 {
	v := make([]float32, 128)
	for i := range v {
		v[i] = float32((n*31+i*17)%100) / 100
	}
	return v
}

// startCompute starts a node and a client of it, connected.
func (b *bench) startCompute(ctx context.Context, by []string, more ...string) (_ *local.Process, _ *computeclient.Client, err error) {
	defer try.Catch(&err)
	p := try.Get(b.Dir.StartCompute(ctx, b.Programs, "compute-1", by, more...))
	c := computeclient.New(computeclient.Config{Addrs: []string{p.Addr}, Caller: "bench"})
	if err := c.Start(ctx); err != nil {
		local.Stop(p)
		return nil, nil, err
	}
	c.Begun(ctx)
	return p, c, nil
}

// round measures jobs side by side, then one after the other.
func (l *load) round(ctx context.Context, c *computeclient.Client, p *local.Process, span time.Duration) (err error) {
	defer try.Catch(&err)
	server := try.Get(procfs.CPU(p.PID()))
	own, began := cpu(), time.Now()
	jobs := try.Get(l.flood(ctx, c, span))
	took := time.Since(began)
	after := try.Get(procfs.CPU(p.PID()))
	n := float64(jobs)
	l.rate = append(l.rate, n/took.Seconds())
	l.server = append(l.server, (after-server).Seconds()*1e6/n)
	l.client = append(l.client, (cpu()-own).Seconds()*1e6/n)
	try.Do(l.rank())
	for began := time.Now(); time.Since(began) < span/2; {
		sent := time.Now()
		resp := try.Get(c.Do(ctx, l.job))
		took := time.Since(sent)
		l.alone = append(l.alone, took)
		l.shipping = append(l.shipping, took-time.Duration(resp.GetRanUs()+resp.GetWaitedUs())*time.Microsecond)
	}
	return nil
}

// rank measures what the job takes once it is there: a node's clock would count what else runs on
// its core.
func (l *load) rank() (err error) {
	defer try.Catch(&err)
	r := l.job.GetRank()
	spec := try.Get(score.Compile(r, score.Parts{}))
	profiles := []score.Profile{{Features: r.GetProfile(), Keep: int(r.GetTopK())}}
	if named := l.job.GetProfiles(); len(named) > 0 {
		profiles = profiles[:0]
		for _, p := range named {
			profiles = append(profiles, score.Profile{Features: p.GetFeatures(), Vector: p.GetVector(), Keep: int(p.GetTopK())})
		}
	}
	all := score.Candidates(r.GetCandidates())
	v, err := perSecond(100*time.Millisecond, 1, func() error {
		j, err := spec.Job(all, profiles, time.Now())
		for done := false; err == nil && !done; {
			done, err = j.Step(cpupool.Slice)
		}
		return err
	})
	l.work = append(l.work, 1e6/v)
	return err
}

// flood keeps so many jobs in flight for a while, and says how many were done.
func (l *load) flood(ctx context.Context, c *computeclient.Client, span time.Duration) (int64, error) {
	var jobs atomic.Int64
	var all sync.WaitGroup
	ended, errs := time.Now().Add(span), make(chan error, inFlight)
	for range inFlight {
		all.Go(func() {
			for time.Now().Before(ended) {
				if _, err := c.Do(ctx, l.job); err != nil {
					errs <- err
					return
				}
				jobs.Add(1)
			}
		})
	}
	all.Wait()
	close(errs)
	return jobs.Load(), <-errs
}

func (b *bench) wireRows(c *computeclient.Client, l *load) {
	rate := table.Median(l.rate)
	server, client, work := table.Median(l.server), table.Median(l.client), table.Median(l.work)
	size := packedSize(l.job)
	b.Add(
		table.Figure("over the wire, "+l.name+": candidates scored", rate*float64(l.pairs)/1e6, "M/s",
			fmt.Sprintf("%.0f jobs/s (%s), %d in flight, %d B a job, client and node on the same cores", rate, table.Spread(l.rate), inFlight, size)),
		table.Figure("over the wire, "+l.name+": CPU beside the work", server+client-work, "µs/job",
			fmt.Sprintf("node %.0f, client %.0f; the work %.0f, as measured in this process", server, client, work)),
		table.Figure("over the wire, "+l.name+": a job alone, shipping p50", table.Quantile(l.shipping, .5)*1000, "µs",
			fmt.Sprintf("p99 %.0f; all of it p50 %.0f, p99 %.0f; the client takes shipping for %.0f", table.Quantile(l.shipping, .99)*1000,
				table.Quantile(l.alone, .5)*1000, table.Quantile(l.alone, .99)*1000, float64(c.Shipping(size).Microseconds()))),
	)
}
