package backendtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// Clock is a clock that tests set.
type Clock struct{ micros atomic.Int64 }

// NewClock begins where the suite's time begins.
func NewClock() *Clock {
	c := &Clock{}
	c.micros.Store(int64(begin))
	return c
}

// Now is the clock's time.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.micros.Load()) }

// Add moves it on.
func (c *Clock) Add(d time.Duration) { c.micros.Add(d.Microseconds()) }

// AllShards of the mesh.
func AllShards() []int {
	all := make([]int, topic.Shards)
	for i := range all {
		all[i] = i
	}
	return all
}

// OpenLog starts a log on a backend that wants every shard, and stops it when the test ends, unless
// it was stopped. It takes no database for stalled that the machine keeps from answering, unless a
// change of its settings says so.
func OpenLog(t *testing.T, b backend.Backend, owner backend.Owner, writers int, now func() time.Time, changes ...func(*shardlog.Config)) *Log {
	t.Helper()
	return OpenLogOf(t, AllShards(), b, owner, writers, now, changes...)
}

// OpenLogOf is OpenLog of some shards.
func OpenLogOf(t *testing.T, shards []int, b backend.Backend, owner backend.Owner, writers int, now func() time.Time, changes ...func(*shardlog.Config)) *Log {
	t.Helper()
	table := policy.NewTable(nil)
	cfg := shardlog.Config{
		Backend: b, Owner: owner, Writers: writers, Stall: Patience, Policies: func() *policy.Table { return table }, Now: now,
		Log: slog.New(slog.DiscardHandler), Metrics: shardlog.NewMetrics(prometheus.NewRegistry()), Tracer: noop.NewTracerProvider().Tracer(""),
	}
	for _, change := range changes {
		change(&cfg)
	}
	l := &Log{Log: shardlog.New(cfg)}
	need(t, l.Start(context.Background()))
	t.Cleanup(func() { l.Close(t) })
	l.Want(shards)
	return l
}

// Stalling has a log notice a database that does not answer as soon as a store does.
func Stalling(cfg *shardlog.Config) { cfg.Stall = shardlog.DefaultStall }

// Log is a shardlog.Log for tests.
type Log struct {
	*shardlog.Log
	closing sync.Once
}

// Heads asks as callers do: again where the log isn't sure of its shards, which says no more than
// that the machine stood still.
func (l *Log) Heads(ctx context.Context, topics, filters []string, limit int) ([]*meshv1.Head, error) {
	for {
		heads, shards, err := l.Survey(ctx, topics, filters, limit)
		unsure := err == nil && len(filters) > 0 && !shards.Full()
		if !unsure && code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || ctx.Err() != nil {
			return heads, err
		}
	}
}

// Read asks as Heads does.
func (l *Log) Read(ctx context.Context, topic string, epoch, from, to uint64, at func(shardlog.Position) error, each func(uint64, *run.Record) bool) error {
	for {
		begun := false
		err := l.Log.Read(ctx, topic, epoch, from, to, func(p shardlog.Position) error { begun = true; return at(p) }, each)
		if begun || code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || ctx.Err() != nil {
			return err
		}
	}
}

// Close stops the log, once.
func (l *Log) Close(t *testing.T) {
	t.Helper()
	l.closing.Do(func() { need(t, l.Stop(within(t))) })
}

// WaitReady waits until every shard is owned.
func (l *Log) WaitReady(t *testing.T) {
	t.Helper()
	need(t, l.Ready(within(t)))
}

// Sink keeps results by ref.
type Sink struct {
	mu      sync.Mutex
	changed chan struct{}
	by      map[uint64]*meshv1.AppendResult
	order   []uint64
}

// NewSink makes one.
func NewSink() *Sink {
	return &Sink{by: map[uint64]*meshv1.AppendResult{}, changed: make(chan struct{})}
}

// Results keeps results.
func (s *Sink) Results(rs []*meshv1.AppendResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rs {
		if s.by[r.GetRef()] != nil {
			panic(fmt.Sprintf("two results for ref %d", r.GetRef()))
		}
		s.by[r.GetRef()] = r
		s.order = append(s.order, r.GetRef())
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// Wait waits for the result of a ref.
func (s *Sink) Wait(t *testing.T, ref uint64) *meshv1.AppendResult {
	t.Helper()
	ctx := within(t)
	for {
		s.mu.Lock()
		r, changed := s.by[ref], s.changed
		s.mu.Unlock()
		if r != nil {
			return r
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("no result for ref %d", ref)
		}
	}
}

// Item makes an item with a fresh message id.
func Item(topic, body string) *meshv1.AppendItem {
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	return &meshv1.AppendItem{Topic: topic, Body: []byte(body), MessageId: id, PublishedAt: begin}
}

// Append appends items in order and waits for their results.
func (l *Log) Append(t *testing.T, items ...*meshv1.AppendItem) []*meshv1.AppendResult {
	t.Helper()
	s := NewSink()
	for i, item := range items {
		item.Ref = uint64(i) + 1
	}
	l.Log.Append(items, s)
	results := make([]*meshv1.AppendResult, len(items))
	for i := range items {
		results[i] = s.Wait(t, uint64(i)+1)
	}
	return results
}

// Bodies reads a topic's log from its beginning, checking that seqs have no holes. A busy machine's
// server may not answer in time: then it is read again.
func (l *Log) Bodies(t *testing.T, topic string) (bodies []string) {
	t.Helper()
	for ctx := within(t); ; {
		bodies = nil
		next := uint64(1)
		err := l.Read(ctx, topic, 0, 0, 0, func(p shardlog.Position) error { next = p.Oldest; return nil }, func(seq uint64, r *run.Record) bool {
			if seq != next {
				t.Fatalf("%s: seq %d after %d", topic, seq, next-1)
			}
			next++
			bodies = append(bodies, string(r.Body))
			return true
		})
		if e := code.From(err); e != nil && e.Code == wirev1.Code_CODE_UNAVAILABLE && ctx.Err() == nil {
			continue
		}
		need(t, err)
		return bodies
	}
}

func wantOK(t *testing.T, rs ...*meshv1.AppendResult) {
	t.Helper()
	for _, r := range rs {
		if r.GetCode() != wirev1.Code_CODE_OK {
			t.Fatalf("result: %v", r)
		}
	}
}
