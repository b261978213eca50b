// Package publish carries what clients publish to a router. Each connection's messages go to one
// router, one request at a time, so that their order holds; where the router goes, to another one
// (request.go).
package publish

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/routerlink"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/serial"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Bounds.
const (
	itemsWaiting    = 32_768
	bytesWaiting    = 64 << 20
	itemsInARequest = 128
	bytesInARequest = 512 << 10 // a larger item goes alone
	// requestsAtATime is far above what routers need: those of clients that are beyond their limits
	// take up to a second each, and others must not wait for them.
	requestsAtATime = 4096
	perItemOverhead = 64
	// crowded: where one part in so many of what may wait does, one address may have one part in
	// addressParts.
	crowded      = 2
	addressParts = 4
)

// Config of a Publisher.
type Config struct {
	Edge string
	// Request asks over NATS.
	Request func(ctx context.Context, subject string, data []byte) ([]byte, error)
	// Routers that are alive.
	Routers func() []routerlink.Live
	// Durable reports whether a topic has a log, which knows messages by their dedupe_key.
	Durable func(topic string) bool
	// AddressTopics are the topics that clients of one address may make in an hour, and at once,
	// and UserTopics those of one user; 0: no bound.
	AddressTopics, UserTopics int
	// Post hands an event to a loop.
	Post func(loop uint16, e exchange.Event)
}

// Publisher is a lifecycle.Part. One goroutine owns the lines; requests have their own.
type Publisher struct {
	cfg   Config
	ops   *serial.Queue
	group *lifecycle.Group

	// The goroutine's own.
	lines map[exchange.Conn]*line
	// have something to send and no request under way; addresses take turns
	ready walk.Turns[payer, *line]
	busy  int

	topics, users *quota // of addresses, and of users

	mu      sync.Mutex
	all     share
	origins map[string]share // by address
	// Published messages by outcome: Sent ones were answered by a router, Refused ones found too
	// much waiting (OVERLOADED), Unavailable ones no router or no answer.
	Sent, Refused, Unavailable atomic.Uint64
}

// share is what waits.
type share struct{ items, bytes int64 }

func (s share) plus(items, bytes int64) share { return share{s.items + items, s.bytes + bytes} }

// payer takes turns with others: an address, or where that counts for nothing a connection.
type payer struct {
	origin string
	conn   exchange.Conn
}

// line of one connection.
type line struct {
	conn  exchange.Conn
	payer payer
	items []item
	busy  bool
}

type item struct {
	id     uint32
	size   int64
	origin string
	item   *meshv1.ClientPublish_Item
}

// New makes a publisher.
func New(cfg Config) *Publisher {
	return &Publisher{
		cfg: cfg, ops: serial.New(), lines: map[exchange.Conn]*line{}, origins: map[string]share{}, topics: newQuota(cfg.AddressTopics, "clients of this address have", "--address-topics"),
		users: newQuota(cfg.UserTopics, "this user has", "--user-topics"),
	}
}

// TooManyTopics is how many messages were refused because their address or their user had made too
// many topics.
func (p *Publisher) TooManyTopics() uint64 {
	return p.topics.refused.Load() + p.users.refused.Load()
}

// Start begins to serve.
func (p *Publisher) Start(context.Context) error {
	p.group = lifecycle.NewGroup(context.Background())
	p.group.Go("edge-publish", p.ops.Serve)
	return nil
}

// Stop ends requests under way.
func (p *Publisher) Stop(ctx context.Context) error { return p.group.Stop(ctx) }

// Publish hands a message on; it is answered by Published whatever happens. origin is the address
// that it counts for; "": none.
func (p *Publisher) Publish(conn exchange.Conn, origin string, id uint32, it *meshv1.ClientPublish_Item) {
	size := int64(len(it.GetPayload()) + len(it.GetTopic()) + perItemOverhead)
	for k, v := range it.GetHeaders() {
		size += int64(len(k) + len(v))
	}
	if why := p.count(origin, 1, size); why != nil {
		p.Refused.Add(1)
		p.answer(conn, item{id: id, size: size, origin: origin}, failed(why))
		return
	}
	if p.cfg.Durable(it.GetTopic()) {
		why := p.topics.check(origin, it.GetTopic())
		if why == nil {
			why = p.users.check(it.GetUser(), it.GetTopic())
		}
		if why != nil {
			p.answer(conn, item{id: id, size: size, origin: origin}, failed(why))
			return
		}
	}
	p.ops.Do(func() {
		l := p.lines[conn]
		if l == nil {
			l = &line{conn: conn, payer: payer{origin: origin}}
			if origin == "" {
				l.payer.conn = conn
			}
			p.lines[conn] = l
		}
		l.items = append(l.items, item{id, size, origin, it})
		if len(l.items) == 1 && !l.busy {
			p.ready.Push(l.payer, l)
		}
		p.send()
	})
}

var (
	tooMuch          = code.Retry(wirev1.Code_CODE_OVERLOADED, retryAfter, "too many messages of clients wait")
	tooMuchOfAddress = code.Retry(wirev1.Code_CODE_OVERLOADED, retryAfter, "too many messages of this client's address wait, beside those of others")
)

// count counts what waits from now on, or below 0 no more, and says why it may not.
func (p *Publisher) count(origin string, items, bytes int64) *code.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = p.all.plus(items, bytes)
	var own share
	if origin != "" {
		if own = p.origins[origin].plus(items, bytes); own.items > 0 {
			p.origins[origin] = own
		} else {
			delete(p.origins, origin)
		}
	}
	switch {
	case p.all.items > itemsWaiting || p.all.bytes > bytesWaiting:
		return tooMuch
	case p.all.items > itemsWaiting/crowded && own.items > itemsWaiting/addressParts, p.all.bytes > bytesWaiting/crowded && own.bytes > bytesWaiting/addressParts:
		return tooMuchOfAddress
	}
	return nil
}

func (p *Publisher) answer(conn exchange.Conn, it item, r *meshv1.ClientPublishReply_Result) {
	_ = p.count(it.origin, -1, -it.size)
	p.cfg.Post(conn.Loop, exchange.Published{Conn: conn, ID: it.id, Result: r})
}

func failed(err *code.Error) *meshv1.ClientPublishReply_Result {
	return &meshv1.ClientPublishReply_Result{Code: err.Code, Error: err.Message, RetryAfterMs: uint32(err.RetryAfter.Milliseconds())}
}

// send begins requests for lines that are ready.
func (p *Publisher) send() {
	for p.busy < requestsAtATime && p.ready.Len() > 0 {
		l, _ := p.ready.Pop()
		batch := l.take()
		l.busy = true
		p.busy++
		p.group.Go("edge-publish-request", func(ctx context.Context) {
			results := p.request(ctx, l.conn, batch)
			p.ops.Do(func() { p.done(l, batch, results) })
		})
	}
}

// take takes what one request carries.
func (l *line) take() []item {
	n, size := 0, int64(0)
	for n < len(l.items) && n < itemsInARequest {
		if size += l.items[n].size; n > 0 && size > bytesInARequest {
			break
		}
		n++
	}
	batch := l.items[:n:n]
	if l.items = l.items[n:]; len(l.items) == 0 {
		l.items = nil
	}
	return batch
}

func (p *Publisher) done(l *line, batch []item, results []*meshv1.ClientPublishReply_Result) {
	for i, it := range batch {
		p.topics.note(it.origin, it.item.GetTopic(), results[i])
		p.users.note(it.item.GetUser(), it.item.GetTopic(), results[i])
		p.answer(l.conn, it, results[i])
	}
	l.busy = false
	p.busy--
	if len(l.items) > 0 {
		p.ready.Push(l.payer, l)
	} else {
		delete(p.lines, l.conn)
	}
	p.send()
}
