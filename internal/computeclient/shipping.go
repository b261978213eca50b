package computeclient

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/candidates"
	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// worthwhile is how many times the cost of shipping a job its work must be.
const worthwhile = 10

// smallJob is of so few bytes that its way costs what any way costs.
const smallJob = 16 << 10

// shipping measures what a job costs beside its work: encoding and decoding by the byte, and the
// way there and back. It is safe for concurrent use.
type shipping struct {
	once    sync.Once
	perByte float64 // ns, encoded and decoded

	mu   sync.Mutex
	base time.Duration // of the quickest small jobs of late; 0: not known
}

// learn takes in how long an answer took from when the job was put.
func (s *shipping) learn(f *form, took time.Duration, resp *meshv1.RankJobResponse) {
	if f.size > smallJob {
		return
	}
	way := took - time.Duration(resp.GetWaitedUs()+resp.GetRanUs())*time.Microsecond
	if way <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base += s.base/64 + 1 // forgets a way that has become longer
	if s.base > way || s.base <= 1 {
		s.base = way
	}
}

// of a job of so many bytes.
func (s *shipping) of(bytes int) time.Duration {
	s.once.Do(func() { s.perByte = measure() })
	s.mu.Lock()
	base := s.base
	s.mu.Unlock()
	return base + time.Duration(s.perByte*float64(bytes))
}

// measure packs, encodes, decodes and unpacks 100 candidates some times, and returns what the best
// of them took by the byte.
func measure() float64 {
	all, needs := make([]score.Candidate, 100), score.Needs{Features: true}
	for i := range all {
		for f := range 8 {
			all[i].Features.Pairs = append(all[i].Features.Pairs, expr.Pair[float64]{Name: fmt.Sprint("feature", f), Value: float64(f * i)})
		}
	}
	best := time.Hour
	var size int
	for range 5 {
		began := time.Now()
		packed, err := candidates.Pack(all, &needs)
		if err != nil {
			panic(err) // of candidates that are made here
		}
		b, err := proto.Marshal(packed)
		if err != nil {
			panic(err)
		}
		got := &meshv1.PackedCandidates{}
		if err := proto.Unmarshal(b, got); err != nil {
			panic(err)
		}
		if _, err := candidates.Unpack(got); err != nil {
			panic(err)
		}
		best, size = min(best, time.Since(began)), len(b)
	}
	return float64(best.Nanoseconds()) / float64(size)
}

// Shipping is what a job of so many bytes costs beside its work, as measured: encoding, the way
// there and back, decoding.
func (c *Client) Shipping(bytes int) time.Duration { return c.ships.of(bytes) }

// Worthwhile reports whether work is enough to ship a job of so many bytes: ten times what that
// costs.
func (c *Client) Worthwhile(work time.Duration, bytes int) bool {
	return work >= worthwhile*c.ships.of(bytes)
}
