package pushmesh

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/acks"
	"github.com/pushmesh/pushmesh/client/internal/caller"
	"github.com/pushmesh/pushmesh/client/internal/crew"
	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/fifo"
	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/client/internal/topicfilter"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Subscriber is one client of the mesh: a connection that is made again whenever it breaks, and the
// subscriptions on it. It owns one goroutine that connects and reads, and while handlers have work,
// one that runs them. It is safe for concurrent use.
type Subscriber struct {
	cfg    SubscriberConfig
	ctx    context.Context // of dials and waits; ends with Close
	cancel context.CancelFunc
	// Of handlers; ends when Close has waited long enough for them.
	handlerCtx    context.Context
	handlerCancel context.CancelFunc
	ended         chan struct{} // closed when the reading goroutine has ended

	mu      sync.Mutex
	changed *sync.Cond // the queue got room, a handler returned, closing
	link    *link.Conn // nil: not connected
	err     error      // why it ended
	// of the last attempt to connect, or the end of the last connection; nil: connected
	failure error
	closing bool
	client  string // client_id of the last Welcome
	lastID  uint32
	subs    map[uint32]*Subscription
	topics  map[string]*topicState

	queue       fifo.Queue[item]  // of handlers
	dispatching bool              // the goroutine of handlers runs
	handling    bool              // a handler has a durable message
	inside      caller.Goroutines // the program's functions
	awaited     int               // calls that wait for what comes, and that others may wait for
	working     int               // goroutines of crews
	held        int               // messages whose outcome is open
	draining    bool              // nothing more is handed over
	abandoned   bool              // Close waits for handlers no longer

	involved []holder // of deal
	reply    reply    // of handlers that run one at a time
	// not asked for on this connection yet: a handler has a message of theirs
	resuming   []*Subscription
	acks       acks.Pending
	flushTimer *time.Timer
	flushArmed bool
	acked      uint64

	linked  chan struct{} // closed and replaced when the connection changes
	stats   Stats
	gaps    []Gap    // for OnGap
	calls   []func() // of others, for unlock
	scratch Delivery // of Inline

	rooms []room // of features that share the connection
}

// Stats counts since NewSubscriber.
type Stats struct {
	Connected bool
	// Connects is the number of Welcomes.
	Connects uint64
	// Delivered to handlers, Repeated not handed over again, Acked and Nacked.
	Delivered, Repeated, Acked, Nacked uint64
	// RTT of the last Ping; 0: none was answered yet.
	RTT time.Duration
}

// NewBackend makes a Subscriber for a backend: Addrs are routers', host:port or what gRPC has a
// scheme for, and the connection is a gRPC stream of SubscribeService, made with opts; none:
// plaintext. Everything works as over TCP, but that it can't publish (UNSUPPORTED; a Producer can)
// or claim (ClaimService does), and that filters may name the mesh's own topics, such as
// "$events/#". Sessions are apart from those of TCP clients.
func NewBackend(cfg SubscriberConfig, opts ...grpc.DialOption) (*Subscriber, error) {
	for _, f := range []struct {
		name string
		set  bool
	}{{"TLS", cfg.TLS != nil}, {"WebSocket", cfg.WebSocket}, {"Dial", cfg.Dial != nil}} {
		if f.set {
			return nil, misconfigured("SubscriberConfig."+f.name, "is for connections to edges: NewBackend takes gRPC's dial options")
		}
	}
	for _, addr := range cfg.Addrs {
		if err := checkTarget("SubscriberConfig.Addrs", addr); err != nil {
			return nil, err
		}
	}
	cfg.Dial = throughRouter(opts...)
	return NewSubscriber(cfg)
}

// NewSubscriber makes a subscriber that connects in the background and keeps trying until Close, or
// until the mesh refuses it for good (see Done and Err).
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	s := &Subscriber{
		cfg: cfg, inside: caller.Goroutines{Inline: cfg.Inline}, ended: make(chan struct{}), subs: map[uint32]*Subscription{}, topics: map[string]*topicState{},
		linked: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.handlerCtx, s.handlerCancel = context.WithCancel(context.Background())
	s.changed = sync.NewCond(&s.mu)
	s.reply.s = s
	go s.run()
	return s, nil
}

// Start adds a subscription without waiting; see Subscription.Ready. It fails only where filter or
// options can't work.
func (s *Subscriber) Start(filter string, h Handler, opts ...Option) (*Subscription, error) {
	if h == nil {
		return nil, misconfigured("Handler", "of the subscription to %.40q is nil", filter)
	}
	return s.add(filter, h, opts)
}

// add adds a subscription; without a handler the application takes what comes.
func (s *Subscriber) add(filter string, h Handler, opts []Option) (*Subscription, error) {
	w, err := want(filter, opts, &s.cfg, h == nil)
	if err != nil {
		return nil, err
	}
	sub := &Subscription{s: s, handler: h, request: w.Subscribe, manual: w.manual, ready: make(ext.Latch), ended: make(ext.Latch), wait: reconnect.Backoff{Low: s.cfg.MinBackoff, High: s.cfg.MaxBackoff}}
	sub.ctx = context.WithValue(s.handlerCtx, handlerOf{}, sub)
	if h == nil || w.workers > 0 {
		sub.crew = crew.New[posted](w.workers)
	}
	s.mu.Lock()
	if s.closing || s.err != nil {
		defer s.mu.Unlock()
		return nil, s.endError()
	}
	sub.request.Id = s.nextID()
	s.subs[sub.request.GetId()] = sub
	for _, t := range s.topics {
		if topicfilter.Match(filter, t.name) {
			t.add(sub)
		}
	}
	l := s.link
	if l != nil {
		s.sendSubscribe(l, sub)
	}
	s.changed.Broadcast() // the reader reads on for the answer
	s.mu.Unlock()
	if l != nil {
		_ = l.Flush() // a failed write closes the connection; the reader reports it
	}
	return sub, nil
}

// Subscribe adds a subscription and waits until the mesh has promised to deliver; ctx bounds that
// wait alone. Where it ends first there is no subscription, at the edge neither, but for one
// FromSession: the session would lose its place with it. What comes for that until the connection
// ends is not ACKed.
func (s *Subscriber) Subscribe(ctx context.Context, filter string, h Handler, opts ...Option) (*Subscription, error) {
	if err := s.answerable(); err != nil {
		return nil, err
	}
	sub, err := s.Start(filter, h, opts...)
	if err != nil {
		return nil, err
	}
	if err := s.await(ctx, sub); err != nil {
		return nil, err
	}
	return sub, nil
}

// await waits for the mesh's promise, and ends the subscription where that does not come.
func (s *Subscriber) await(ctx context.Context, sub *Subscription) error {
	err := sub.Ready(ctx)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	l := s.link
	// An Unsubscribe takes its filter out of a session, and the session's place with it.
	asked := l != nil && sub.sent && !sub.ending() && sub.request.GetStart() != wirev1.Start_START_SESSION
	sub.end(err)
	if asked {
		// too short to be refused
		_ = l.Put(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: sub.request.GetId()})
	}
	s.mu.Unlock()
	if asked {
		// Nobody waits any more, not even for an edge that takes nothing. A failed write closes the
		// connection; the reader reports it.
		go func() { _ = l.Flush() }()
	}
	return err
}

// Connected waits until there is a connection. It is not needed before anything else, which waits
// itself.
func (s *Subscriber) Connected(ctx context.Context) error {
	for {
		s.mu.Lock()
		linked, change, over := s.link != nil, s.linked, s.closing || s.err != nil
		why, here := s.endError(), !linked && s.inside.OnReader()
		s.mu.Unlock()
		switch {
		case over:
			return why
		case linked:
			return nil
		case here:
			return errWaitByHandler
		}
		select {
		case <-change:
		case <-ctx.Done():
			return waited(ctx, "not connected", s.faultOf())
		}
	}
}

// Done is closed when the subscriber has ended.
func (s *Subscriber) Done() <-chan struct{} { return s.ended }

// Err says why the mesh refused the subscriber for good; nil while it works and after Close.
func (s *Subscriber) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Stats of now.
func (s *Subscriber) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Acked = s.acked
	if s.link != nil {
		st.Connected, st.RTT = true, s.link.RTT()
	}
	return st
}

// closeWithin is how long the end may take once nobody is waited for any more.
const closeWithin = time.Second

// Drain has nothing more handed over of what comes from now on, waits until everything before was
// handled and settled, and closes. Where ctx ends first, it closes all the same, and returns an
// error. What is durable and not ACKed comes again to whoever goes on there. A handler, a callback
// and the body of a loop can't wait for their own ends: called by one, it is an error and does
// nothing.
func (s *Subscriber) Drain(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})()
	s.mu.Lock()
	if at, _ := s.calledAt(ctx); at != caller.Elsewhere || s.looping() {
		s.mu.Unlock()
		return errDrainByHandler
	}
	s.draining = true
	for s.busy() && !s.closing && s.err == nil && ctx.Err() == nil {
		s.changed.Wait()
	}
	busy := s.busy()
	s.mu.Unlock()
	err := s.Close(ctx)
	if err == nil && busy && ctx.Err() != nil {
		err = waited(ctx, "closed", errors.New("messages were not handled"))
	}
	return err
}

// looping reports whether the call comes from the body of a loop over messages. Called with s.mu
// held.
func (s *Subscriber) looping() bool {
	for _, sub := range s.subs {
		if sub.looping() {
			return true
		}
	}
	return false
}

// busy reports whether something that came is not handled, or not settled. Called with s.mu held.
func (s *Subscriber) busy() bool {
	if s.queue.Len() > 0 || s.dispatching || s.working > 0 || s.held > 0 {
		return true
	}
	for _, sub := range s.subs {
		if sub.crew == nil {
			continue
		}
		if n, _ := sub.crew.Waiting(); n > 0 {
			return true
		}
	}
	return false
}

// Close lets the handlers that run finish, sends the ACKs that wait and hangs up. What waited for a
// handler is left un-ACKed. Where ctx ends first, so does the context of handlers; they are waited
// for no longer, and the error says so. A handler and a callback can't wait for their own ends:
// called by one, Close returns an error at once, and the subscriber closes when that has returned.
// Loops over messages are not waited for.
func (s *Subscriber) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	at, _ := s.calledAt(ctx)
	s.changed.Broadcast()
	s.linkChanged()
	l := s.link
	s.mu.Unlock()
	s.cancel()
	if l != nil {
		// wakes the reader; it fails only on a closed connection
		_ = l.ReadUntil(time.Now())
	}
	if at != caller.Elsewhere {
		return errCloseByHandler
	}
	select {
	case <-s.ended:
		return s.Err()
	case <-ctx.Done():
	}
	s.abandon()
	select {
	case <-s.ended:
	case <-time.After(closeWithin):
		if l != nil {
			l.Close()
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	return waited(ctx, "closed", errors.New("a handler has not returned"))
}

// abandon has nobody wait for handlers any more.
func (s *Subscriber) abandon() {
	s.handlerCancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandoned = true
	s.changed.Broadcast()
}

// linkChanged wakes who waits for a connection. Called with s.mu held.
func (s *Subscriber) linkChanged() {
	close(s.linked)
	s.linked = make(chan struct{})
}

// nextID is an id that names no request of the connection. Called with s.mu held.
func (s *Subscriber) nextID() uint32 {
	for {
		s.lastID++
		id := s.lastID
		if id != 0 && s.subs[id] == nil && !slices.ContainsFunc(s.rooms, func(r room) bool { return r.Uses(id) }) {
			return id
		}
	}
}

func (s *Subscriber) endError() error {
	if s.err != nil {
		return s.err
	}
	return ErrClosed
}

func (s *Subscriber) clientID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.ClientID == "" {
		return s.client // the name an edge gave stays
	}
	return s.cfg.ClientID
}

// sendSubscribe appends a Subscribe to the link's buffer. Called with s.mu held.
func (s *Subscriber) sendSubscribe(l *link.Conn, sub *Subscription) {
	m := sub.frame()
	sub.sent = true
	sub.plain = m.GetStart() == wirev1.Start_START_LIVE && len(m.GetPositions()) == 0 && !sub.shared() && m.GetWhere() == "" && !m.GetNoEcho() && !sub.ranked()
	if bad := l.Put(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m); bad != nil {
		sub.end(unsent(bad))
	}
}

// gap notes what OnGap is told once the lock is let go. Called with s.mu held.
func (s *Subscriber) gap(g Gap) {
	if s.cfg.OnGap != nil || s.cfg.Logger != silent {
		s.gaps = append(s.gaps, g)
	}
}

// unlock lets s.mu go, tells OnGap what was noted under it, and calls what else was.
func (s *Subscriber) unlock() {
	gaps, calls := s.gaps, s.calls
	s.gaps, s.calls = nil, nil
	if len(gaps)+len(calls) == 0 {
		s.mu.Unlock()
		return
	}
	s.inside.Callbacks++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.inside.Callbacks--
		s.mu.Unlock()
	}()
	for _, g := range gaps {
		s.cfg.Logger.Warn("pushmesh: gap", "filter", g.Filter, "topic", g.Topic, "missed", g.Missed, "from", g.From, "to", g.To, "code", g.Code)
		if s.cfg.OnGap != nil {
			s.cfg.OnGap(g)
		}
	}
	for _, f := range calls {
		f()
	}
}

func decodeError(body []byte) *Error {
	var m wirev1.Error
	if proto.Unmarshal(body, &m) != nil {
		return &Error{Code: CodeInternal, Message: "an Error that can't be decoded"}
	}
	return &Error{Code: Code(m.GetCode()), Message: m.GetMessage(), RetryAfter: time.Duration(m.GetRetryAfterMs()) * time.Millisecond}
}
