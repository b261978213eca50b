package compute

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// heavy is an expression that takes some µs, so that little has to be shipped for much work: a job
// that has less than ten times the cost of shipping it is not one for a compute node.
var heavy = sum("(features.likes * profile.likes - features.shares * profile.length)", 32)

// sum of n equal terms, n a power of two, nested no deeper than it must be.
func sum(term string, n int) string {
	if n == 1 {
		return term
	}
	half := sum(term, n/2)
	return "(" + half + " + " + half + ")"
}

// jobOf makes a ranking that takes about so long: a number of candidates, for as many profiles as
// it takes. It says what it really takes.
func jobOf(work time.Duration, n int) (*meshv1.RankJobRequest, time.Duration, error) {
	all := candidates(n, time.Now())
	job := &meshv1.RankJobRequest{Rank: &pushmeshv1.RankRequest{Candidates: all, Expression: &pushmeshv1.ExpressionScorer{Expression: heavy}}}
	fill := func(n int) {
		job.Profiles = job.Profiles[:0]
		for i := range n {
			job.Profiles = append(job.Profiles, &meshv1.RankProfile{Features: map[string]float64{"likes": float64(i%100) / 100, "length": 0.5}, TopK: 1})
		}
	}
	l := &load{job: job}
	const sample = 10
	fill(sample)
	if err := l.rank(); err != nil {
		return nil, 0, err
	}
	each := l.work[0] / sample // µs
	fill(max(1, int(float64(work.Microseconds())/each)))
	if len(all)*len(job.GetProfiles()) > score.MaxPairs {
		return nil, 0, errors.New("this machine is too quick for the job")
	}
	err := l.rank()
	return job, time.Duration(l.work[1] * float64(time.Microsecond)), err
}

// nodePool has a compute node do the mix.
func (b *bench) nodePool(ctx context.Context) (err error) {
	defer try.Catch(&err)
	workers := b.mixWorkers
	if workers == 0 { // who asks and what carries jobs need the rest
		workers = max(1, runtime.NumCPU()-1)
	}
	p, c := try.Get2(b.startCompute(ctx, nil, "--workers", fmt.Sprint(workers)))
	defer local.Stop(p)
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	short, shortTook := try.Get2(jobOf(shortWork, 10))
	long, longTook := try.Get2(jobOf(longWork, 200))
	m := mix{workers: workers, load: b.mixLoad, shortWork: shortTook, longWork: longTook, do: func(l bool, done func(time.Duration, error)) {
		job := short
		if l {
			job = long
		}
		go func() {
			resp, err := c.Do(ctx, job)
			done(time.Duration(resp.GetWaitedUs()+resp.GetRanUs())*time.Microsecond, err)
		}()
	}}
	var rounds []outcome
	for i := range b.mixRounds {
		profiled := func() error { return nil }
		if i == 0 {
			profiled = b.Profiles(ctx, "nodepool", 5, p)
		}
		o, err := m.run(ctx, b.mixSpan, uint64(i))
		try.Do(errors.Join(err, profiled()))
		rounds = append(rounds, o)
	}
	b.mixRows("a compute node", rounds, fmt.Sprintf("; %d workers, jobs of %.2f and %.0f ms, of %d and %d B, with their shipping", workers, shortTook.Seconds()*1e3, longTook.Seconds()*1e3, proto.Size(short), proto.Size(long)))
	return nil
}
