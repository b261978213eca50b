// Package turns has the connections of a server take turns at being read, so that who sends very
// much does not hold up who sends little.
//
// Go runs goroutines in the order in which they can run, whoever they work for. Ten thousand calls
// that arrive at once, or a hundred streams that always have more to read, stand before the one
// call of somebody else. So a connection is read in pieces of about a millisecond of work. Where
// more connections have something than may be worked for at a time, the address that has had the
// least is next.
//
// That costs something, and helps nobody where the server is in time, or where one address alone
// calls: then nobody takes turns.
package turns

import (
	"container/heap"
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/address"
	"github.com/pushmesh/pushmesh/internal/cores"
)

const (
	// least is what a turn is charged when it begins.
	least = 20 * time.Microsecond
	// most is what a turn is charged at most: who works for it may have waited for others.
	most = 2 * time.Millisecond
	// credit is how far an address that had less than its share comes before those that had it.
	credit = 100 * time.Millisecond
	// stuck is after how long a turn that others wait for ends without its connection, after twice
	// of it at most: gRPC does not read on while a client takes none of its answers.
	stuck = 5 * time.Millisecond
	// together is for how long turns are taken after another address than the one before came.
	together = 10 * time.Second
)

// Turns of a server's connections. It is safe for concurrent use.
type Turns struct {
	late   func() bool
	began  time.Time
	last   atomic.Pointer[source] // which came last
	until  atomic.Int64           // turns are taken, in nanoseconds after began
	waited atomic.Uint64          // turns that were waited for

	mu      sync.Mutex
	free    int
	now     time.Duration // what who is worked for has had; it only grows
	sources map[netip.Addr]*source
	waiting line
	holders []*Turn
	watched bool // a timer looks at the holders
}

// source is an address with connections.
type source struct {
	addr  netip.Addr
	users int           // turns that may be taken for it
	had   time.Duration // work, and what it was behind others by
	queue []*Turn       // that wait, the first one first
	place int           // in the line
}

// New makes turns of which as many are taken at a time as the process has cores, while late says
// that the server is not in time. late is asked at each turn, by any goroutine.
func New(late func() bool) *Turns {
	return &Turns{late: late, began: time.Now(), free: cores.Usable(), sources: map[netip.Addr]*source{}}
}

// Waited is how many turns were waited for.
func (t *Turns) Waited() uint64 { return t.waited.Load() }

// Register adds what is counted, for a router.
func (t *Turns) Register(reg prometheus.Registerer) {
	if reg == nil {
		return
	}
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "pushmesh_router_turns_waited_total", Help: "Reads of callers' connections and streams that waited for other addresses.",
	}, func() float64 { return float64(t.Waited()) }))
}

// Listen has the connections of a listener take turns.
func (t *Turns) Listen(l net.Listener) net.Listener { return &listener{l, t} }

type listener struct {
	net.Listener
	turns *Turns
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, turn: l.turns.of(address.Of(c.RemoteAddr())), piece: mostPiece}, nil
}

// Of is the turns of a call, by its caller's address. It has to be closed. That of nil Turns is
// nil, which is always its turn.
func (t *Turns) Of(ctx context.Context) *Turn {
	if t == nil {
		return nil
	}
	return t.of(address.OfCall(ctx))
}

func (t *Turns) of(addr netip.Addr) *Turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sources[addr]
	if s == nil {
		s = &source{addr: addr, had: t.now}
		t.sources[addr] = s
	}
	s.users++
	return &Turn{turns: t, source: s, came: make(chan struct{}, 1)}
}

// Turn is what a connection or a stream takes, again and again. One goroutine enters and leaves.
type Turn struct {
	turns  *Turns
	source *source
	came   chan struct{} // 1: it is its turn
	began  time.Time     // zero: it has none

	// under turns.mu
	holds  bool
	seen   bool // by who looks after turns that don't end
	closed bool
}

// Enter waits for the turn, if there is a need of turns. It is not to be held while its goroutine
// waits for anything else.
func (c *Turn) Enter() {
	if c == nil || !c.began.IsZero() || !c.turns.needed(c.source) {
		return
	}
	c.turns.enter(c)
	c.began = time.Now()
}

// Leave ends the turn, if there is one, and tells how long it took.
func (c *Turn) Leave() (took time.Duration) {
	if c == nil || c.began.IsZero() {
		return 0
	}
	took = time.Since(c.began)
	c.leave(took)
	return took
}

// leave ends the turn, for which so much is charged.
func (c *Turn) leave(cost time.Duration) {
	c.began = time.Time{}
	c.turns.leave(c, cost)
}

// Close ends the turn, and has no more of them. Any goroutine may close it.
func (c *Turn) Close() {
	if c == nil {
		return
	}
	t := c.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	t.release(c)
	if c.source.users--; c.source.users == 0 {
		delete(t.sources, c.source.addr)
	}
}

// needed reports whether turns are to be taken, now that an address came.
func (t *Turns) needed(s *source) bool {
	if t.late == nil {
		return true
	}
	late := t.late()
	if last := t.last.Load(); last != nil && last.addr == s.addr { // it may have come anew
		return late && int64(time.Since(t.began)) < t.until.Load()
	}
	if t.last.Swap(s) == nil {
		return false // it is the only one yet
	}
	t.until.Store(int64(time.Since(t.began) + together))
	return late
}

// enter waits for a turn.
func (t *Turns) enter(c *Turn) {
	t.mu.Lock()
	if c.closed {
		t.mu.Unlock()
		return
	}
	s := c.source
	if len(s.queue) == 0 {
		s.had = max(s.had, t.now-credit)
	}
	if t.free > 0 {
		t.free--
		t.hold(c)
		t.mu.Unlock()
		return
	}
	s.queue = append(s.queue, c)
	if len(s.queue) == 1 {
		heap.Push(&t.waiting, s)
	}
	t.watch()
	t.mu.Unlock()
	t.waited.Add(1)
	<-c.came
}

// hold begins a turn. t.mu is held.
func (t *Turns) hold(c *Turn) {
	s := c.source
	s.had += least
	t.now = max(t.now, s.had)
	c.holds, c.seen = true, false
	t.holders = append(t.holders, c)
}

// leave charges a turn, and ends it if it has not ended.
func (t *Turns) leave(c *Turn, cost time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if cost > least {
		t.charge(c.source, min(cost, most)-least)
	}
	t.release(c)
}

// charge says that work was done for an address, which may be in the line. t.mu is held.
func (t *Turns) charge(s *source, d time.Duration) {
	s.had += d
	if len(s.queue) > 0 {
		heap.Fix(&t.waiting, s.place)
	}
}

// release hands a turn on. t.mu is held.
func (t *Turns) release(c *Turn) {
	if !c.holds {
		return
	}
	c.holds = false
	i := slices.Index(t.holders, c)
	last := len(t.holders) - 1
	t.holders[i], t.holders[last] = t.holders[last], nil
	t.holders = t.holders[:last]
	next := t.next()
	if next == nil {
		t.free++
		return
	}
	t.hold(next)
	if s := next.source; len(s.queue) > 0 {
		heap.Fix(&t.waiting, s.place)
	}
	next.came <- struct{}{}
}

// next takes who is next out of the line; nil: nobody waits. t.mu is held.
func (t *Turns) next() *Turn {
	for len(t.waiting) > 0 {
		s := t.waiting[0]
		c := s.queue[0]
		s.queue[0] = nil
		if s.queue = s.queue[1:]; len(s.queue) == 0 {
			s.queue = nil
			heap.Pop(&t.waiting)
		}
		if !c.closed {
			return c
		}
		c.came <- struct{}{} // it goes on without a turn
	}
	return nil
}

// watch looks after turns that don't end, while somebody waits. t.mu is held.
func (t *Turns) watch() {
	if !t.watched {
		t.watched = true
		time.AfterFunc(stuck, t.look)
	}
}

func (t *Turns) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watched = false
	for i := len(t.holders) - 1; i >= 0; i-- {
		if c := t.holders[i]; c.seen {
			t.charge(c.source, 2*stuck) // others waited for it
			t.release(c)
		}
	}
	for _, c := range t.holders {
		c.seen = true
	}
	if len(t.waiting) > 0 {
		t.watch()
	}
}

// line is addresses that wait, as a heap: the one that has had the least is first.
type line []*source

// Len implements heap.Interface.
func (l line) Len() int { return len(l) }

// Less implements heap.Interface.
func (l line) Less(i, j int) bool { return l[i].had < l[j].had }

// Swap implements heap.Interface.
func (l line) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].place, l[j].place = i, j
}

// Push implements heap.Interface.
func (l *line) Push(x any) {
	s := x.(*source)
	s.place = len(*l)
	*l = append(*l, s)
}

// Pop implements heap.Interface.
func (l *line) Pop() any {
	last := len(*l) - 1
	s := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	return s
}
