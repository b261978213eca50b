package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/computeclient"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/test/load/local"
)

const (
	// isolatedWork is what each job takes that a node is saturated with.
	isolatedWork = 200 * time.Millisecond
	// feedFlag has this program be the one that asks: a process of its own, behind everything else,
	// for who asks is elsewhere.
	feedFlag = "-feed"
)

// startFeeder starts one that keeps so many jobs at a node while it is on.
func (b *bench) startFeeder(addr string, atOnce int) (p *local.Ordered, took string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	return b.dir.StartOrdered("feeder", "nice", "-n", "19", self, feedFlag, addr, strconv.Itoa(atOnce))
}

// feed is that process: "on" begins, "off" ends and answers how many jobs were done.
func feed(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	if len(args) != 2 {
		return fmt.Errorf("%s ADDRESS JOBS", feedFlag)
	}
	atOnce, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	c := computeclient.New(computeclient.Config{Addrs: args[:1], Caller: "bench"})
	if err := c.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	c.Begun(ctx)
	job, took, err := jobOf(isolatedWork, 100)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "ready %.0f ms\n", took.Seconds()*1000); err != nil {
		return err
	}
	s := &saturation{client: c, job: job, atOnce: atOnce}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		switch lines.Text() {
		case "on":
			s.start(ctx)
		case "off":
			if err := s.stop(); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(out, s.done.Load()); err != nil {
			return err
		}
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
