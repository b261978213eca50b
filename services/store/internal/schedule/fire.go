package schedule

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// mostFlying appends are under way at a time.
	mostFlying = 8192
	// perAppend is how many messages one call of Append takes.
	perAppend = 1024
	// A message that could not be appended is tried again after firstRetry, then later and later.
	firstRetry, lastRetry = 20 * time.Millisecond, 5 * time.Second
)

// flight is one call of Append; refs are places in it, from 1.
type flight struct {
	s    *Schedule
	took []*waiting
}

type result struct {
	w *waiting
	r *meshv1.AppendResult
}

// Results implements shardlog.Sink.
func (f *flight) Results(rs []*meshv1.AppendResult) {
	f.s.mu.Lock()
	for _, r := range rs {
		f.s.results = append(f.s.results, result{f.took[r.GetRef()-1], r})
	}
	f.s.mu.Unlock()
	f.s.wake()
}

// fire appends what is due.
func (s *Schedule) fire() {
	now := s.micros(s.cfg.Now())
	for s.shelf.size()-len(s.shelf.queue) < mostFlying {
		f := &flight{s: s}
		var items []*meshv1.AppendItem
		for len(items) < perAppend {
			w := s.shelf.due(now)
			if w == nil {
				break
			}
			if s.ownerships[w.Shard] == 0 { // its new owner appends it
				s.shelf.drop(w)
				continue
			}
			f.took = append(f.took, w)
			items = append(items, &meshv1.AppendItem{
				Ref: uint64(len(f.took)), Topic: w.Topic, Body: w.Body, MessageId: w.MessageID[:], PublishedAt: w.PublishedAt,
				Traceparent: w.Traceparent, TtlUs: w.TTL, Due: w.Due,
			})
		}
		if len(items) == 0 {
			return
		}
		s.cfg.Append(items, f)
	}
}

// takeResults takes the results of appends. A duplicate was appended before, or cancelled.
func (s *Schedule) takeResults() {
	s.mu.Lock()
	results := s.results
	s.results = nil
	s.mu.Unlock()
	now := s.cfg.Now()
	for _, res := range results {
		w := res.w
		switch {
		case res.r.GetCode() == wirev1.Code_CODE_OK:
			s.shelf.drop(w)
			if !res.r.GetDuplicate() {
				s.metrics.late.Observe(max(0, now.Sub(time.UnixMicro(int64(w.Due))).Seconds()))
			}
		case s.ownerships[w.Shard] == 0:
			s.shelf.drop(w)
		default:
			if w.tries == 0 {
				s.cfg.Logger.Debug("appending a scheduled message failed; it is tried again", "code", code.Name(res.r.GetCode()), "error", res.r.GetError())
			}
			wait := min(firstRetry<<min(w.tries, 10), lastRetry)
			w.tries++
			s.metrics.retries.WithLabelValues(code.Name(res.r.GetCode())).Inc()
			s.shelf.again(w, s.micros(now.Add(wait)))
		}
	}
}
