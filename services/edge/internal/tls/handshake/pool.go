// Package handshake shakes hands with TLS clients, off the event loops. So many handshakes may be
// under way, each with a goroutine that waits for its client's next record most of the time; so
// many compute at a time, so that loops keep their cores. Places and turns to compute are shared by
// address: who begins very many handshakes at a time waits for itself, and gives way to others.
// Loops hand in what they read, are told when there is something to send, and own the connection
// again once hands are shaken.
package handshake

import (
	"container/heap"
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
	// Tier is the name that other tiers ask for, whom TLS lets in by their certificates alone; "":
	// none come.
	Tier string
	// Workers is how many handshakes compute at a time.
	Workers int
	// Most is how many may be under way, those that compute, that wait for a worker, and that wait
	// for their client. Where all are taken, an address that has more of them than another gives
	// way to it.
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
	cfg   Config
	stats counters
	group sync.WaitGroup

	mu      sync.Mutex
	under   map[*Handshake]struct{}
	origins map[string]*origin // by name, but for those without
	sizes   sizes
	silent  list.List // of those that wait for their clients, the longest first
	free    int       // workers
	line    list.List // of origins with handshakes that wait for a worker: whose turn is next
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
	return &Pool{cfg: cfg, free: cfg.Workers, under: map[*Handshake]struct{}{}, origins: map[string]*origin{}}
}

// Start implements lifecycle.Part.
func (p *Pool) Start(context.Context) error { return nil }

// Stop implements lifecycle.Part: it ends every handshake, and waits for their goroutines.
func (p *Pool) Stop(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	for h := range p.under {
		h.endWith(errEnded)
		if h.queued != nil {
			p.leave(h)
		}
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
// the handshake's. from names the address that it counts for; "": none, so it shares with nobody.
// nil: there is no place. It takes a lock for a moment, as all that loops call does, and never
// waits.
func (p *Pool) Begin(conn exchange.Conn, from string, hello []byte) *Handshake {
	h := &Handshake{pool: p, conn: conn, in: hello, more: make(chan struct{}, 1), turn: make(chan bool, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.under) >= p.cfg.Most && !p.makeWay(from) {
		p.stats.refused.Add(1)
		return nil
	}
	p.enter(h, from)
	p.group.Add(1)
	go pprof.Do(context.Background(), pprof.Labels("goroutine", "edge-handshake"), func(context.Context) {
		defer p.group.Done()
		h.run()
	})
	return h
}

// What follows is called with the lock held, where it does not say otherwise.

func (p *Pool) enter(h *Handshake, from string) {
	o := p.origins[from]
	if o == nil {
		o = &origin{name: from}
		if heap.Push(&p.sizes, o); from != "" {
			p.origins[from] = o
		}
	}
	o.under++
	heap.Fix(&p.sizes, o.at)
	h.origin = o
	p.under[h] = struct{}{}
}

// leave takes a handshake out of everything, once.
func (p *Pool) leave(h *Handshake) {
	if _, under := p.under[h]; !under {
		return
	}
	delete(p.under, h)
	p.speaks(h)
	o := h.origin
	if h.queued != nil {
		o.queue.Remove(h.queued)
		h.queued = nil
		h.turn <- false
	}
	if o.under--; o.under > 0 {
		heap.Fix(&p.sizes, o.at)
		return
	}
	if heap.Remove(&p.sizes, o.at); o.name != "" {
		delete(p.origins, o.name)
	}
}

// makeWay ends a handshake for one that comes from an address: of the address with the most, where
// it has more than the newcomer's even so, or one whose client has let it wait for too long.
func (p *Pool) makeWay(from string) bool {
	o := p.origins[from]
	if o == nil {
		o = &origin{}
	}
	h := p.mostOf(o)
	for _, silent := range []*list.List{&p.silent, &o.silent} {
		first := silent.Front()
		if h != nil || first == nil {
			break
		}
		if longest := first.Value.(*Handshake); time.Since(longest.since) >= p.cfg.Patience && longest.origin.under >= o.under {
			h = longest
		}
	}
	if h == nil {
		return false
	}
	h.endWith(errGaveWay)
	p.leave(h)
	return true
}

// mostOf is what gives way to one more of an origin that has fewer: of those that wait for their
// client the first, or else of those that wait for a worker the last. nil: none does.
func (p *Pool) mostOf(o *origin) *Handshake {
	if len(p.sizes) == 0 || p.sizes[0].under <= o.under+1 {
		return nil
	}
	at := p.sizes[0].silent.Front()
	if at == nil {
		at = p.sizes[0].queue.Back()
	}
	if at == nil {
		return nil
	}
	return at.Value.(*Handshake)
}

// speaks notes that the client of h is not waited for.
func (p *Pool) speaks(h *Handshake) {
	if h.silent != nil {
		p.silent.Remove(h.silent)
		h.origin.silent.Remove(h.silentOf)
		h.silent, h.silentOf = nil, nil
	}
}

// yield gives a worker to the next handshake that waits for one, of another address where there is
// one.
func (p *Pool) yield() {
	for at := p.line.Front(); at != nil; at = p.line.Front() {
		o := p.line.Remove(at).(*origin)
		o.inLine = false
		first := o.queue.Front()
		if first == nil {
			continue // it gave way
		}
		h := o.queue.Remove(first).(*Handshake)
		h.queued = nil
		p.lineUp(o)
		h.turn <- true
		return
	}
	p.free++
}

// lineUp gives an origin a turn, where it has something to compute.
func (p *Pool) lineUp(o *origin) {
	if !o.inLine && o.queue.Len() > 0 {
		o.inLine = true
		p.line.PushBack(o)
	}
}

// waitForTurn waits until h may compute; false where it is over before. The lock is not held.
func (p *Pool) waitForTurn(h *Handshake) bool {
	p.mu.Lock()
	_, under := p.under[h]
	switch {
	case !under:
		p.mu.Unlock()
		return false
	case p.free > 0:
		p.free--
		p.mu.Unlock()
		return true
	}
	h.queued = h.origin.queue.PushBack(h)
	p.lineUp(h.origin)
	p.mu.Unlock()
	return <-h.turn
}

// waitsForClient has the next one compute. The lock is not held.
func (p *Pool) waitsForClient(h *Handshake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.yield()
	if _, under := p.under[h]; under {
		h.since = time.Now()
		h.silent, h.silentOf = p.silent.PushBack(h), h.origin.silent.PushBack(h)
	}
}

// heard notes that the client of h has answered. The lock is not held.
func (p *Pool) heard(h *Handshake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.speaks(h)
}

// over notes that h is, and whether it computes until now. The lock is not held.
func (p *Pool) over(h *Handshake, computes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leave(h); computes {
		p.yield()
	}
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
