// Package handshake shakes hands with TLS clients, off the event loops. So many handshakes may be
// under way, each with a goroutine that waits for its client's next record most of the time; so
// many compute at a time, so that loops keep their cores. Loops hand in what they read, are told
// when there is something to send, and own the connection again once hands are shaken.
package handshake

import (
	"container/list"
	"context"
	"crypto/tls"
	"log/slog"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/record"
)

// Config of a pool.
type Config struct {
	// TLS of the server; what the record layer wants of it New sees to.
	TLS *tls.Config
	// Workers is how many handshakes compute at a time.
	Workers int
	// Most is how many may be under way, those that compute, that wait for a worker, and that wait
	// for their client.
	Most int
	// Patience is how long a client may leave its handshake waiting where all are taken: then it
	// gives way to a newcomer. 0: a second.
	Patience time.Duration
	// Post brings an event to a loop's mailbox; false where that is full.
	Post func(loop uint16, e exchange.Event) bool
	// Log is told of handshakes that panic; nil: slog.Default().
	Log *slog.Logger
}

// Pool is a lifecycle.Part. It owns the goroutines of its handshakes.
type Pool struct {
	cfg     Config
	working chan struct{} // holds one for each handshake that computes
	stats   counters
	group   sync.WaitGroup

	mu      sync.Mutex
	under   map[*Handshake]struct{}
	waiting list.List // of those that wait for their clients, the longest first
	closed  bool
}

type counters struct{ full, resumed, failed, gaveWay, refused atomic.Uint64 }

// Stats of a pool.
type Stats struct {
	UnderWay int
	// Full and Resumed handshakes succeeded; Failed ones did not, or were ended; GaveWay ended
	// because another needed the place; Refused never began.
	Full, Resumed, Failed, GaveWay, Refused uint64
}

// New makes a pool.
func New(cfg Config) *Pool {
	if cfg.Patience == 0 {
		cfg.Patience = time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	cfg.TLS = record.Prepare(cfg.TLS)
	return &Pool{cfg: cfg, working: make(chan struct{}, cfg.Workers), under: map[*Handshake]struct{}{}}
}

// Start implements lifecycle.Part.
func (p *Pool) Start(context.Context) error { return nil }

// Stop implements lifecycle.Part: it ends every handshake, and waits for their goroutines.
func (p *Pool) Stop(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	for h := range p.under {
		h.endWith(errEnded)
	}
	p.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		p.group.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Begin begins the handshake of a connection whose first whole record is in hello, which becomes
// the handshake's. nil: there is no place. It takes a lock for a moment, as all that loops call
// does, and never waits.
func (p *Pool) Begin(conn exchange.Conn, hello []byte) *Handshake {
	h := &Handshake{pool: p, conn: conn, in: hello, more: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.under) >= p.cfg.Most && !p.makeWay() {
		p.stats.refused.Add(1)
		return nil
	}
	p.under[h] = struct{}{}
	p.group.Add(1)
	go pprof.Do(context.Background(), pprof.Labels("goroutine", "edge-handshake"), func(context.Context) {
		defer p.group.Done()
		h.run()
	})
	return h
}

// makeWay ends the handshake whose client has let it wait for longest, where that is for too long.
func (p *Pool) makeWay() bool {
	first := p.waiting.Front()
	if first == nil {
		return false
	}
	h := first.Value.(*Handshake)
	if time.Since(h.since) < p.cfg.Patience {
		return false
	}
	p.waiting.Remove(first)
	h.place = nil
	delete(p.under, h)
	h.endWith(errGaveWay)
	return true
}

// waits notes that h waits for its client, or does no more.
func (p *Pool) waits(h *Handshake, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch _, under := p.under[h]; {
	case is && under:
		h.since = time.Now()
		h.place = p.waiting.PushBack(h)
	case h.place != nil:
		p.waiting.Remove(h.place)
		h.place = nil
	}
}

func (p *Pool) leaves(h *Handshake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.under, h)
}

// Stats may be called at any time.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	under := len(p.under)
	p.mu.Unlock()
	return Stats{
		UnderWay: under, Full: p.stats.full.Load(), Resumed: p.stats.resumed.Load(), Failed: p.stats.failed.Load(), GaveWay: p.stats.gaveWay.Load(), Refused: p.stats.refused.Load(),
	}
}
