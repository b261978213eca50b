package compute

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/computeclient"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// isolatedWork is what each job takes that a node is saturated with.
const isolatedWork = 200 * time.Millisecond

// feeding is what a feeder is told: where the node is, and how many jobs it is to have.
type feeding struct {
	Addr string
	Jobs int
}

// startFeeder starts one that keeps so many jobs at a node while it is on: a process of its own,
// behind everything else, for who asks is elsewhere. It says what a job takes.
func (b *bench) startFeeder(addr string, jobs int) (w *suite.Worker, took time.Duration, err error) {
	w, err = b.Hire("feeder", "feed", feeding{addr, jobs}, &took, "nice", "-n", "19")
	return w, took, err
}

// feed is that process: "on" begins, "off" ends and answers how many jobs were done.
func feed(ctx context.Context, arg []byte, orders <-chan string, say func(any) error) (err error) {
	defer try.Catch(&err)
	var f feeding
	try.Do(json.Unmarshal(arg, &f))
	c := computeclient.New(computeclient.Config{Addrs: []string{f.Addr}, Caller: "bench"})
	try.Do(c.Start(ctx))
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	c.Begun(ctx)
	job, took, err := jobOf(isolatedWork, 100)
	try.Do(errors.Join(err, say(took)))
	s := &saturation{client: c, job: job, atOnce: f.Jobs}
	for order := range orders {
		switch order {
		case "on":
			s.start(ctx)
		case "off":
			try.Do(s.stop())
		}
		try.Do(say(s.done.Load()))
	}
	return nil
}

// saturation keeps so many jobs at a node.
type saturation struct {
	client *computeclient.Client
	job    *meshv1.RankJobRequest
	atOnce int
	done   atomic.Int64

	end    context.CancelFunc
	under  sync.WaitGroup
	faults chan error
}

func (s *saturation) start(ctx context.Context) {
	ctx, s.end = context.WithCancel(ctx)
	s.faults = make(chan error, s.atOnce)
	for range s.atOnce {
		s.under.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.client.Do(ctx, s.job); err == nil {
					s.done.Add(1)
				} else if ctx.Err() == nil {
					s.faults <- err
					return
				}
			}
		})
	}
}

func (s *saturation) stop() error {
	s.end()
	s.under.Wait()
	close(s.faults)
	return <-s.faults
}
