package history

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Store is what a Reader and Heads need of the store.
type Store interface {
	Heads(ctx context.Context, topics, filters []string, limit uint32) ([]*meshv1.Head, error)
	ReadLog(ctx context.Context, req *meshv1.ReadLogRequest, take func(*meshv1.ReadLogResponse) error) error
}

// Limits of a Reader.
const (
	attempts    = 3
	readTimeout = 5 * time.Second
	firstPause  = 100 * time.Millisecond
)

// Key of a read: equal ones are shared.
type Key struct {
	Topic           string
	Epoch, From, To uint64
	MaxBytes        int
}

// Reader reads ranges. Reads are kept apart by the store that owns their topic's shard, each of
// which has as many under way at a time, and as many that wait: one that is slow or away holds up
// what is its own. It owns its goroutines. It is safe for concurrent use.
type Reader struct {
	store  Store
	owner  func(topic string) string
	traced bool
	most   int // reads that wait for one owner
	group  *lifecycle.Group

	mu      sync.Mutex
	workers int // of one owner
	flights map[Key]*flight
	lines   map[string]*line // by owner
	waiting int

	// Reads of the store, those Shared with one under way, and Refused ones.
	Reads, Shared, Refused, Failed atomic.Uint64
}

// flight is a read that waits or is under way.
type flight struct {
	key  Key
	done []func(exchange.Range)
}

// line is the reads that wait for one owner. It is there as long as it has any, or a worker.
type line struct {
	waiting []*flight
	workers int
}

// NewReader makes a reader of which waiting reads may wait for each store. owner is the one that
// owns a topic, as far as is known.
func NewReader(store Store, owner func(topic string) string, waiting int, traced bool) *Reader {
	return &Reader{
		store: store, owner: owner, traced: traced, most: waiting, group: lifecycle.NewGroup(context.Background()), flights: map[Key]*flight{}, lines: map[string]*line{},
	}
}

// Start begins to read, at most workers at a time for each store.
func (r *Reader) Start(workers int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workers = workers
	for owner, l := range r.lines {
		for range l.waiting {
			r.hire(owner, l)
		}
	}
}

// Stop ends reads under way.
func (r *Reader) Stop(ctx context.Context) error { return r.group.Stop(ctx) }

// Waiting reads.
func (r *Reader) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting
}

// Read calls done once with the answer, in a goroutine of the reader; at once, with OVERLOADED,
// where too many reads wait for the topic's store.
func (r *Reader) Read(k Key, done func(exchange.Range)) {
	owner := r.owner(k.Topic)
	r.mu.Lock()
	if f := r.flights[k]; f != nil {
		f.done = append(f.done, done)
		r.mu.Unlock()
		r.Shared.Add(1)
		return
	}
	l := r.lines[owner]
	if l == nil {
		l = &line{}
		r.lines[owner] = l
	}
	if len(l.waiting) < r.most {
		f := &flight{key: k, done: []func(exchange.Range){done}}
		r.flights[k] = f
		l.waiting = append(l.waiting, f)
		r.waiting++
		r.hire(owner, l)
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	r.Refused.Add(1)
	done(exchange.Range{
		Topic: k.Topic, From: k.From,
		Err: code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too many reads of logs wait"),
	})
}

// hire begins another worker for a line, where it may have one. r.mu is held.
func (r *Reader) hire(owner string, l *line) {
	if l.workers < r.workers && r.group.Context().Err() == nil {
		l.workers++
		r.group.Go("edge-history", func(ctx context.Context) { r.work(ctx, owner, l) })
	}
}

// next takes the read that has waited for longest; nil where none does, and the worker ends.
func (r *Reader) next(ctx context.Context, owner string, l *line) *flight {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(l.waiting) == 0 || ctx.Err() != nil {
		if l.workers--; l.workers == 0 && len(l.waiting) == 0 {
			delete(r.lines, owner)
		}
		return nil
	}
	f := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	r.waiting--
	return f
}

func (r *Reader) work(ctx context.Context, owner string, l *line) {
	for f := r.next(ctx, owner, l); f != nil; f = r.next(ctx, owner, l) {
		out := r.try(ctx, f.key)
		r.mu.Lock()
		delete(r.flights, f.key)
		done := f.done
		r.mu.Unlock()
		for _, d := range done {
			d(out)
		}
	}
}

// try reads, and again a few times where that can help.
func (r *Reader) try(ctx context.Context, k Key) exchange.Range {
	pause := firstPause
	for n := 1; ; n++ {
		r.Reads.Add(1)
		out := r.read(ctx, k)
		if out.Err == nil || n == attempts || !code.Retryable(code.Of(out.Err)) || !sleep(ctx, pause) {
			if out.Err != nil && code.Of(out.Err) != wirev1.Code_CODE_EPOCH_CHANGED {
				r.Failed.Add(1)
			}
			return out
		}
		pause *= 4
	}
}

func (r *Reader) read(ctx context.Context, k Key) exchange.Range {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	out := exchange.Range{Topic: k.Topic, From: k.From}
	req := &meshv1.ReadLogRequest{Topic: k.Topic, Epoch: k.Epoch, FromSeq: k.From, ToSeq: k.To, MaxBytes: uint64(max(k.MaxBytes, 0))}
	err := r.store.ReadLog(ctx, req, func(resp *meshv1.ReadLogResponse) error {
		if resp.GetEpoch() != 0 {
			out.Epoch, out.Head, out.Oldest = resp.GetEpoch(), resp.GetHead(), resp.GetOldest()
		}
		parts := make([]Parts, 0, len(resp.GetRecords()))
		for _, rec := range resp.GetRecords() {
			parts = append(parts, Parts{k.Topic, out.Epoch, rec.GetSeq(), rec.GetExpiresAt(), rec.GetBody()})
		}
		out.Messages = Encode(out.Messages, parts, r.traced)
		return nil
	})
	switch {
	case err == nil, len(out.Messages) > 0: // the caller reads on from there
	case code.Of(err) == wirev1.Code_CODE_EPOCH_CHANGED:
		out = r.present(ctx, out, err)
	default:
		out.Err = code.From(err)
	}
	return out
}

// present adds what the store has instead of an epoch that is gone.
func (r *Reader) present(ctx context.Context, out exchange.Range, gone error) exchange.Range {
	heads, err := r.store.Heads(ctx, []string{out.Topic}, nil, 0)
	switch {
	case err != nil:
		out.Err = code.From(err)
	case len(heads) != 1:
		out.Err = code.New(wirev1.Code_CODE_INTERNAL, "the store did not answer for the topic")
	default:
		out.Epoch, out.Head, out.Oldest = heads[0].GetEpoch(), heads[0].GetHead(), heads[0].GetOldest()
		out.Err = code.From(gone)
	}
	return out
}

// sleep for about d; false where ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
