package pushmesh

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/window"
)

// ProducerConfig of NewProducer. Only Addrs is required.
type ProducerConfig struct {
	// Addrs of routers, host:port. One is picked at random; the others are tried, in random order,
	// when it fails. A name counts as many times as it has addresses, which are looked up again for
	// every round; what gRPC has a scheme for ("unix:…", "dns:///…") is gRPC's matter.
	Addrs []string
	// DialOptions of gRPC; none: plaintext. TLS is grpc.WithTransportCredentials with
	// credentials.NewTLS: the certificate must be for the host in Addrs.
	DialOptions []grpc.DialOption
	// Window is the most messages unanswered; the router may allow fewer. 0: what the router
	// allows.
	Window int
	// Buffer is the most messages that wait or are unanswered; beyond it publishing blocks. 0:
	// 1,024.
	Buffer int
	// MaxWait is for callers that can do without a message, but not with a late one: how long a
	// message should wait for its answer at most where the mesh can't keep up. The producer then
	// has no more unanswered than is answered in half of that time, which it learns from the
	// answers, and refuses the rest itself, low priorities first: publishing never blocks, and
	// returns an *Error with OVERLOADED and RetryAfter at once. What a router refuses for want of
	// room or time, or what could not be sent so long (UNAVAILABLE where there is no router), is
	// not tried again beyond it. What was sent waits for its answer, or, where that is lost, is
	// sent again until there is one. 0: publishing waits, and messages are tried again until they
	// are taken.
	MaxWait time.Duration
	// MinBackoff and MaxBackoff bound the wait between rounds over Addrs; 0: 50 ms and 5 s.
	MinBackoff, MaxBackoff time.Duration
	// DialTimeout bounds the making of a connection; 0: 3 s.
	DialTimeout time.Duration
	// SilentTimeout is how long a router may say nothing to a question for its health, asked when
	// it leaves messages unanswered for half as long, before another one is taken; 0: 2 s.
	SilentTimeout time.Duration
	// AnswerTimeout after which a router that leaves a message unanswered is given up, however
	// healthy it says it is; 0: 15 s.
	AnswerTimeout time.Duration
	// MoveAfter is how long the producer stays with a router, half of it at least and one and a
	// half at most, before it goes to whichever it picks then: so routers that come back get their
	// share. 0: 10 minutes; below 0: as long as it may.
	MoveAfter time.Duration
	// Logger is told of routers that are connected to, and of what went wrong; nil: nobody is.
	Logger *slog.Logger
	// OnConnect is called with the address of a router once there is a stream to it, OnDisconnect
	// after every end of a stream, and OnConnectFailed after every attempt that failed, which is
	// then tried again. They must not block.
	OnConnect       func(addr string)
	OnDisconnect    func(error)
	OnConnectFailed func(error)

	lookup reconnect.Lookup
}

const (
	// defaultInFlight is what a router allows that doesn't say otherwise.
	defaultInFlight = 50
	// maxProducerTopics is how many topics one producer id numbers. At the bound the producer takes
	// a new id for those that follow, and for those whose messages are all answered: it need not
	// remember them any more.
	maxProducerTopics = 1 << 16
	producerIDSize    = 16
)

// Producer publishes over one pipelined stream to a router: in order for each topic, and exactly
// once to durable ones, whichever processes are killed in between. A message is sent again until it
// is answered; numbers for each topic let the mesh tell a repetition. It is safe for concurrent
// use: what one goroutine publishes to a topic keeps its order.
type Producer struct {
	cfg    ProducerConfig
	ctx    context.Context // of streams; ends with Close
	cancel context.CancelFunc
	ended  chan struct{}
	// expiring is who looks for what has waited too long, with MaxWait.
	expiring sync.WaitGroup

	mu      sync.Mutex
	wake    chan struct{}    // 1: the sender has something to look at
	changed chan struct{}    // closed and replaced when a message was answered
	id      []byte           // of lanes that begin now
	lanes   int              // that the id numbers
	most    int              // lanes of an id
	topics  map[string]*lane // with unanswered messages or, of the present id, idle
	ready   []*lane          // lanes with something to send, each once
	size    int              // messages not answered
	calling int              // answered, and their callbacks not called yet
	flying  int              // messages sent and not answered
	window  int
	credit  *window.Window       // nil: without MaxWait
	online  bool                 // there is a stream
	reached bool                 // there was one since made was asked
	failure error                // of the last stream, or of the last attempt to make one
	refs    map[uint64]*outgoing // flying, by ref
	lastRef uint64
	held    time.Time // nothing is sent before
	looked  time.Time // for messages that wait too long
	renew   bool      // a new id is wanted, once nothing flies
	heard   time.Time // the last answers, or when the first message that waits for one was sent
	leaving *moving   // the stream is left for another router; nil: it is not
	sick    *lane     // refused by this router, and another one might not; nil: none is
	sickAt  time.Time // since when
	hops    int       // in a row, because of a sick lane
	closing bool
	err     error // why it ended
}

// NewProducer makes a producer that connects in the background and keeps trying until Close.
func NewProducer(cfg ProducerConfig) (*Producer, error) {
	if len(cfg.Addrs) == 0 {
		return nil, misconfigured("ProducerConfig.Addrs", "is empty: name routers, like 127.0.0.1:7401")
	}
	for _, addr := range cfg.Addrs {
		if err := checkTarget("ProducerConfig.Addrs", addr); err != nil {
			return nil, err
		}
	}
	if cfg.Window < 0 || cfg.Buffer < 0 || cfg.MaxWait < 0 {
		return nil, misconfigured("ProducerConfig.Window", "is %d, Buffer %d and MaxWait %v: none may be below 0", cfg.Window, cfg.Buffer, cfg.MaxWait)
	}
	setDefault(&cfg.Buffer, 1024)
	setDefault(&cfg.MinBackoff, 50*time.Millisecond)
	setDefault(&cfg.MaxBackoff, 5*time.Second)
	setDefault(&cfg.DialTimeout, 3*time.Second)
	setDefault(&cfg.SilentTimeout, 2*time.Second)
	setDefault(&cfg.AnswerTimeout, 15*time.Second)
	setDefault(&cfg.MoveAfter, 10*time.Minute)
	setDefault(&cfg.Logger, silent)
	setDefaultLookup(&cfg.lookup)
	if len(cfg.DialOptions) == 0 {
		cfg.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	p := &Producer{
		cfg: cfg, ended: make(chan struct{}), wake: make(chan struct{}, 1), changed: make(chan struct{}),
		topics: map[string]*lane{}, refs: map[uint64]*outgoing{}, window: defaultInFlight, most: maxProducerTopics,
	}
	p.allow(0)
	p.newID()
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if cfg.MaxWait > 0 {
		p.credit = window.New(cfg.MaxWait/2, cfg.Buffer)
		p.expiring.Go(p.expire)
	}
	go p.run()
	return p, nil
}

// Publish publishes a message and waits for the answer. Where ctx ends first, a message that was
// not sent is withdrawn; one that was sent may be published nevertheless, as the error then says
// (it wraps ctx's).
func (p *Producer) Publish(ctx context.Context, m Message) (Result, error) {
	done := make(chan outcome, 1)
	o, err := p.enqueue(ctx, m, func(r Result, err error) { done <- outcome{result: r, err: err} })
	if err != nil {
		return Result{}, err
	}
	select {
	case a := <-done:
		return a.result, a.err
	case <-ctx.Done():
	}
	if p.withdraw(o) {
		return Result{}, waited(ctx, "not published", p.fault())
	}
	select {
	case a := <-done: // it was answered meanwhile
		return a.result, a.err
	default:
		return Result{}, &unknownOutcome{err: ctx.Err(), why: p.obstacle(o)}
	}
}

// PublishAsync publishes a message and calls done with the answer, from a goroutine of the producer
// that must not be blocked; nil: nobody wants to know. It waits while Buffer messages are
// unanswered; ctx bounds that wait alone.
func (p *Producer) PublishAsync(ctx context.Context, m Message, done func(Result, error)) error {
	if done == nil {
		done = func(Result, error) {}
	}
	_, err := p.enqueue(ctx, m, done)
	return err
}

// Future is the answer to a message that was published without waiting.
type Future struct {
	done   ext.Latch
	result Result
	err    error
}

// Done is closed once there is an answer.
func (f *Future) Done() <-chan struct{} { return f.done }

// Wait waits for the answer. Where ctx ends first, the message may be published nevertheless, and
// the answer can be waited for again.
func (f *Future) Wait(ctx context.Context) (Result, error) {
	select {
	case <-f.done:
		return f.result, f.err
	case <-ctx.Done():
		return Result{}, &unknownOutcome{err: ctx.Err()}
	}
}

// PublishFuture is PublishAsync for who wants to wait for the answer later.
func (p *Producer) PublishFuture(ctx context.Context, m Message) (*Future, error) {
	f := &Future{done: make(ext.Latch)}
	err := p.PublishAsync(ctx, m, func(r Result, err error) {
		f.result, f.err = r, err
		close(f.done)
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Flush waits until everything published before has been answered, well or not, and the callbacks
// have returned: a callback must not call it.
func (p *Producer) Flush(ctx context.Context) error {
	for {
		p.mu.Lock()
		left, changed := p.size+p.calling, p.changed
		p.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return waited(ctx, "messages have no answer", p.fault())
		}
	}
}

// Close refuses new messages, waits for the answers of the others and ends. Where ctx ends first it
// returns an error: messages were left without an answer; their callbacks got one.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closing = true
	p.resolved()
	p.mu.Unlock()
	err := p.Flush(ctx)
	left := p.unanswered()
	p.cancel()
	<-p.ended
	p.expiring.Wait()
	if err != nil {
		return fmt.Errorf("pushmesh: %d messages were left without an answer: %w", left, err)
	}
	return nil
}

// Connected waits until there is a stream to a router. It is not needed before publishing, which
// waits itself.
func (p *Producer) Connected(ctx context.Context) error {
	for {
		p.mu.Lock()
		online, changed, closing, err := p.online, p.changed, p.closing, p.err
		p.mu.Unlock()
		switch {
		case err != nil:
			return err
		case closing:
			return ErrClosed
		case online:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return waited(ctx, "not connected", p.fault())
		}
	}
}

// unanswered is how many messages have no answer.
func (p *Producer) unanswered() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}

// obstacle is why a message that was sent has no answer, as far as that is known.
func (p *Producer) obstacle(o *outgoing) error {
	if why := p.fault(); why != nil {
		return why
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.refusal == nil {
		return nil
	}
	return o.refusal
}

// unknownOutcome is the end of a wait for the answer to what had been sent.
type unknownOutcome struct {
	what string // may have happened; "": the message may have been published
	err  error
	why  error // nil: not known
}

func (e *unknownOutcome) Error() string {
	text := "pushmesh: no answer yet, " + cmp.Or(e.what, "the message may have been published") + ": " + strings.TrimPrefix(e.err.Error(), "pushmesh: ")
	if e.why != nil {
		text += "; " + strings.TrimPrefix(e.why.Error(), "pushmesh: ")
	}
	return text
}

// Unwrap has an *Error first, which says Unknown as every other does.
func (e *unknownOutcome) Unwrap() []error {
	said := &Error{Code: CodeOf(e.why), Message: "no answer yet", Unknown: true}
	if said.Code == CodeOK || said.Code == CodeNone {
		said.Code = CodeUnavailable
	}
	if e.why == nil {
		return []error{said, e.err}
	}
	return []error{said, e.err, e.why}
}

func (p *Producer) newID() {
	p.id, p.lanes = make([]byte, producerIDSize), 0
	_, _ = rand.Read(p.id) // never fails since Go 1.24
}

// allow sets the window to what the router allows; 0: it didn't say.
func (p *Producer) allow(n int) {
	if n <= 0 {
		n = defaultInFlight
	}
	if p.cfg.Window > 0 {
		n = min(n, p.cfg.Window)
	}
	p.window = n
}

// nudge has the sender look again.
func (p *Producer) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// resolved wakes Flush and whoever waits for room. Called with p.mu held.
func (p *Producer) resolved() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// CancelScheduled withdraws a message that waits for its DeliverAt; id is the ID of its
// Result. After nil it will not be delivered. An *Error with CONFLICT: it was delivered already;
// NOT_FOUND: the mesh doesn't know it, any more (a day after its delivery) or at all. It may be
// repeated, and repeats itself, over all routers, until one answers, ctx ends or the producer is
// closed.
func (p *Producer) CancelScheduled(ctx context.Context, id ID) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	route := reconnect.NewRoute(p.cfg.Addrs, p.cfg.lookup)
	wait := reconnect.Backoff{Low: p.cfg.MinBackoff, High: p.cfg.MaxBackoff}
	for {
		e := p.cancelAt(ctx, route.Next(ctx), id)
		switch {
		case e == nil:
			return nil
		case p.ctx.Err() != nil:
			return ErrClosed
		case ctx.Err() != nil:
			return waited(ctx, "no answer to CancelScheduled", e)
		case !e.Retryable():
			return e
		}
		if route.Round() || e.RetryAfter > 0 {
			reconnect.Pause(ctx, wait.Next(e.RetryAfter))
		}
	}
}

// cancelAt asks one router.
func (p *Producer) cancelAt(ctx context.Context, at reconnect.Place, id ID) *Error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.AnswerTimeout)
	defer cancel()
	conn, err := p.dial(at)
	if err != nil {
		return &Error{Code: CodeUnavailable, Message: err.Error()}
	}
	defer func() { _ = conn.Close() }() // the call's own error says more
	_, err = pushmeshv1.NewPublishServiceClient(conn).CancelScheduled(ctx, &pushmeshv1.CancelScheduledRequest{MessageId: id[:]})
	if err == nil {
		return nil
	}
	return connFault(at.Addr, err)
}
