package main

import (
	"fmt"
	"io"
	"time"

	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/loop"
)

// every is how often one of the loops ranks.
const every = time.Second

// stall has loops rank. It owns the goroutine that asks them to while it is on.
type stall struct {
	loops []*loop.Loop
	work  time.Duration
	stop  chan struct{} // nil: off
	ended chan struct{}
}

// order carries out one line.
func (s *stall) order(line string, out io.Writer) error {
	answer := "ok"
	switch line {
	case "on":
		s.off()
		s.stop, s.ended = make(chan struct{}), make(chan struct{})
		go s.run(s.stop, s.ended)
	case "off":
		s.off()
	case "lag":
		p99, most := time.Duration(0), time.Duration(0)
		for _, l := range s.loops {
			lag := l.Stats().Lag
			q := lag.Recent()
			p99, most = max(p99, q.P99), max(most, q.Max)
		}
		answer = fmt.Sprintf("%.3f %.3f", p99.Seconds()*1000, most.Seconds()*1000)
	default:
		return fmt.Errorf("no such order: %q", line)
	}
	_, err := fmt.Fprintln(out, answer)
	return err
}

func (s *stall) off() {
	if s.stop != nil {
		close(s.stop)
		<-s.ended
		s.stop = nil
	}
}

func (s *stall) run(stop, ended chan struct{}) {
	defer close(ended)
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for n := 0; ; n++ {
		// A Count's reply is called on the loop.
		s.loops[n%len(s.loops)].Post(exchange.Count{Reply: func([]uint64) { rank(s.work) }})
		select {
		case <-stop:
			return
		case <-ticks.C:
		}
	}
}

// rank ranks for a while.
func rank(work time.Duration) {
	candidates := make([]*pushmeshv1.Candidate, 1000)
	for i := range candidates {
		candidates[i] = &pushmeshv1.Candidate{Features: map[string]float64{"a": float64(i), "b": 1}}
	}
	spec, err := score.Compile(&pushmeshv1.RankRequest{Weighted: &pushmeshv1.WeightedScorer{Weights: map[string]float64{"a": 1, "b": 2}}}, score.Parts{})
	if err != nil {
		panic(err) // of a request that is made here
	}
	for began := time.Now(); time.Since(began) < work; {
		j, err := spec.Job(candidates, []score.Profile{{Keep: 10}}, began)
		for done := false; err == nil && !done; {
			done, err = j.Step(work)
		}
		if err != nil {
			panic(err)
		}
	}
}
