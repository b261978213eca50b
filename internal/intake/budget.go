// Package intake bounds the memory that callers of a gRPC server can make it take: what their calls
// need, requests that are received and not done with, and answers that they don't read, in bytes,
// all together and by the caller's address and name.
//
// A request is charged before its bytes are received, since gRPC lets a caller send no more than a
// window before somebody asks for a whole message; and again before it is decoded, for what it will
// take up then.
package intake

import (
	"container/list"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/pushmesh/pushmesh/internal/address"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// large is the part of the budget from which on a request is large: an address may have one
	// beyond its share.
	large = 16
	// forgiven is how many refusals an address has in a second before it is answered late.
	forgiven = 100
	// penalty is how late, and penalised how many calls may wait so at a time.
	penalty   = 250 * time.Millisecond
	penalised = 4096
	// comeBack is when to try again, up to a half more or less.
	comeBack = 200 * time.Millisecond
)

// Budget of a server. It is safe for concurrent use, and never does I/O.
//
// An address may hold as much as is free. So one alone gets a half at most, two a third each, and
// whoever comes next always finds room (dynamic thresholds: Choudhury and Hahne, 1998). Of what an
// address may still have, each name of a caller may hold as much again: names keep apart those who
// share an address, but prove nothing, so that they bound nobody who changes them.
type Budget struct {
	all   int64
	turns turns
	count counts

	mu      sync.Mutex
	used    int64
	origins map[netip.Addr]*origin
	larges  int       // requests of all that are large
	ring    list.List // of *origin, with somebody who waits; the first one is next
	waiting int       // in all
	late    int       // calls whose refusal is kept back
}

// origin is an address with calls under way.
type origin struct {
	addr    netip.Addr
	used    int64
	bulk    int64 // of them, of large requests
	large   int   // requests
	beyond  bool  // a request is let in beyond what there is room for
	callers map[string]*caller
	queue   queue
	waiters list.List     // of *waiter
	place   *list.Element // where it has some

	refusals int       // since
	since    time.Time // when the second began
}

// caller is a name at an address.
type caller struct {
	origin *origin
	name   string
	calls  int
	used   int64
	bulk   int64 // of them, of large requests
	line   line
}

// New makes a budget of so many bytes.
func New(all int) *Budget {
	b := &Budget{all: int64(all), origins: map[netip.Addr]*origin{}}
	b.turns.init()
	return b
}

// enter finds who makes a call, and charges n bytes for it.
func (b *Budget) enter(ctx context.Context, n int64) (*caller, error) {
	addr, name := address.OfCall(ctx), nameOf(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.origins[addr]
	if o == nil {
		o = &origin{addr: addr, callers: map[string]*caller{}}
	}
	c := o.callers[name]
	if c == nil {
		c = &caller{origin: o, name: name}
		c.line.queue = &o.queue
	}
	if !b.fits(c, 0, n, false) {
		return nil, b.refuse("too many calls of this caller or its address are under way")
	}
	b.origins[addr], o.callers[name] = o, c
	c.calls++
	b.add(c, n)
	return c, nil
}

// leave gives back what a call has left, and forgets who has no calls.
func (b *Budget) leave(c *caller, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(c, -n)
	if c.calls--; c.calls == 0 {
		delete(c.origin.callers, c.name)
		if len(c.origin.callers) == 0 {
			delete(b.origins, c.origin.addr)
		}
	}
	b.grant()
}

// fits reports whether a request of a caller may go from so many bytes to others; one that is
// waiting does not count as large. Large ones are not held against those that are not: a caller can
// publish while it has something ranked. b.mu is held.
func (b *Budget) fits(c *caller, from, to int64, waiting bool) bool {
	more, o := b.charged(to)-from, c.origin
	free := b.all - b.used
	held, own := o.used, c.used
	if !b.large(to) {
		held, own = held-o.bulk, own-c.bulk
	}
	alone := to > b.most()
	if more <= 0 || !alone && held+more <= free && own+more <= free-held {
		return true
	}
	others, all := o.large, b.larges
	if b.large(from) && !waiting {
		others, all = others-1, all-1
	}
	if !b.large(to) {
		return false
	}
	return !alone && others == 0 && b.used+more <= b.most() || all == 0 && b.used+more <= b.all
}

func (b *Budget) large(n int64) bool { return n > b.all/large }

// most is what one request is charged at most, in bytes: it leaves others a quarter. One that takes
// more is let in where no other large one is under way.
func (b *Budget) most() int64 { return b.all / 4 * 3 }

// charged is what a request that takes n bytes is charged.
func (b *Budget) charged(n int64) int64 { return min(n, b.most()) }

// limit is what one request may take, in bytes. A ranking of MaxRequest bytes does not take twice
// the default budget; what does is made for that.
func (b *Budget) limit() int64 { return 2 * b.all }

// countLarge counts a large request of an address, or that it is none any more. b.mu is held.
func (b *Budget) countLarge(o *origin, n int) {
	o.large += n
	b.larges += n
}

func (b *Budget) add(c *caller, n int64) {
	b.used += n
	c.origin.used += n
	c.used += n
}

// charge a request that goes from so many bytes to others. b.mu is held.
func (b *Budget) charge(c *caller, from, to int64) {
	b.add(c, to-from)
	if b.large(from) {
		b.countLarge(c.origin, -1)
		c.origin.bulk, c.bulk = c.origin.bulk-from, c.bulk-from
	}
	if b.large(to) {
		b.countLarge(c.origin, 1)
		c.origin.bulk, c.bulk = c.origin.bulk+to, c.bulk+to
	}
}

// take charges a request for what it grows by, or refuses that.
func (b *Budget) take(c *caller, from, to int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if to > b.limit() {
		return tooLarge(to, b.limit())
	}
	if !b.fits(c, from, to, false) {
		return b.refuse("too many bytes of requests of this caller or its address are under way")
	}
	b.charge(c, from, b.charged(to))
	if to < from {
		b.grant()
	}
	return nil
}

// set charges what is in memory already, whatever there is, or gives back.
func (b *Budget) set(c *caller, from, to int64) {
	if from == to {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.charge(c, from, to)
	if to < from {
		b.grant()
	}
}

// keep charges n bytes that are in memory already, as far as the address has room for them, or
// gives back. It returns what it has charged.
func (b *Budget) keep(c *caller, n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, b.share(c))
	b.add(c, n)
	if n < 0 {
		b.grant()
	}
	return n
}

// share is what an address may be charged more without being asked. It never takes more than the
// half of what is free, so that others find room. b.mu is held.
func (b *Budget) share(c *caller) int64 {
	return max(0, (b.all-b.used-(c.origin.used-c.origin.bulk))/2)
}

// done gives a request back, and charges n bytes that are left of it instead: as many as it was
// charged, and what there is room for. It returns what it has charged.
func (b *Budget) done(c *caller, charged, beyond, n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, charged+b.share(c))
	b.within(c.origin, charged, beyond)
	b.charge(c, charged, 0)
	b.add(c, n)
	b.grant()
	return n
}

// punish keeps a refusal back that was just given to an address that comes again and again without
// the pause that it was told to make: answers are what it costs others.
func (b *Budget) punish(ctx context.Context, now time.Time) {
	if !b.deserved(address.OfCall(ctx), now) {
		return
	}
	timer := time.NewTimer(penalty)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	b.late--
	b.mu.Unlock()
}

// deserved counts a refusal, and reports whether it is to be kept back. An address that has nothing
// under way is not.
func (b *Budget) deserved(addr netip.Addr, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.origins[addr]
	if o == nil {
		return false
	}
	if now.Sub(o.since) > time.Second {
		o.since, o.refusals = now, 0
	}
	if o.refusals++; o.refusals <= forgiven || b.late >= penalised {
		return false
	}
	b.late++
	return true
}

func (b *Budget) refuse(why string) error {
	b.count.refused.Inc()
	wait := time.Duration(float64(comeBack) * (0.5 + rand.Float64()))
	return code.Retry(wirev1.Code_CODE_OVERLOADED, wait, why)
}

func tooLarge(n, most int64) error {
	return code.New(wirev1.Code_CODE_PAYLOAD_TOO_LARGE, fmt.Sprintf("the request would take about %d bytes of memory, %d at most", n, most))
}

// nameOf is what a caller calls itself by its token, which nobody has proved.
func nameOf(ctx context.Context) string {
	if name := address.CertificateOf(ctx); name != "" {
		return "cert:" + name
	}
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
		return values[0]
	}
	return ""
}
