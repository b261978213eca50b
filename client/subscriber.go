package pushmesh

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/acks"
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

	queue       queue
	dispatching bool // the goroutine of handlers runs
	handling    bool // a handler has a durable message
	running     bool // a handler runs
	abandoned   bool // Close waits for handlers no longer

	involved []*cursor // of deal
	// not asked for on this connection yet: a handler has a message of theirs
	resuming   []*Subscription
	acks       acks.Pending
	flushTimer *time.Timer
	flushArmed bool
	acked      uint64

	pubs map[uint32]*publishing
	// closed and replaced when the connection or the room for publishing changes
	pubChange chan struct{}
	stats     Stats
	gaps      []Gap    // for OnGap
	calls     []func() // of others, for unlock
	scratch   Delivery // of Inline

	claims     map[string]*Claim // by resource, as are the next two
	watches    map[string]*ClaimWatch
	unwatched  map[string]bool // nobody watches it any more, but the edge does not know
	claimQueue []*claimAsk     // not sent
	claimAsks  map[uint32]*claimAsk

	presence presences
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

// NewSubscriber makes a subscriber that connects in the background and keeps trying until Close, or
// until the mesh refuses it for good (see Done and Err).
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	s := &Subscriber{
		cfg: cfg, ended: make(chan struct{}), subs: map[uint32]*Subscription{}, topics: map[string]*topicState{},
		pubChange: make(chan struct{}), claims: map[string]*Claim{}, watches: map[string]*ClaimWatch{}, unwatched: map[string]bool{}, claimAsks: map[uint32]*claimAsk{},
		presence: newPresences(),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.handlerCtx, s.handlerCancel = context.WithCancel(context.Background())
	s.changed = sync.NewCond(&s.mu)
	go s.run()
	return s, nil
}

// Start adds a subscription without waiting; see Subscription.Ready. It fails only where filter or
// options can't work.
func (s *Subscriber) Start(filter string, h Handler, opts ...Option) (*Subscription, error) {
	sub := &Subscription{
		s: s, handler: h, request: &wirev1.Subscribe{Filter: filter},
		ready: make(latch), ended: make(latch), wait: reconnect.Backoff{Low: s.cfg.MinBackoff, High: s.cfg.MaxBackoff},
	}
	if err := sub.apply(opts); err != nil {
		return nil, err
	}
	if err := sub.checkOptions(); err != nil {
		return nil, err
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
// wait alone.
func (s *Subscriber) Subscribe(ctx context.Context, filter string, h Handler, opts ...Option) (*Subscription, error) {
	sub, err := s.Start(filter, h, opts...)
	if err != nil {
		return nil, err
	}
	if err := sub.Ready(ctx); err != nil {
		s.mu.Lock()
		sub.end(err)
		s.mu.Unlock()
		return nil, err
	}
	return sub, nil
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

// Close lets the handler that runs finish (CloseTimeout at most), sends the ACKs that wait and
// hangs up. What waited for a handler is left un-ACKed. A handler can't wait for its own end:
// called by one, Close returns an error at once, and the subscriber closes when the handler has
// returned.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.closing = true
	byHandler := s.running && inHandler()
	s.changed.Broadcast()
	s.publishingChanged()
	l := s.link
	s.mu.Unlock()
	s.cancel()
	if l != nil {
		// wakes the reader; it fails only on a closed connection
		_ = l.ReadUntil(time.Now())
	}
	if byHandler {
		return errors.New("pushmesh: Close was called by a handler, for which it would have to wait: the subscriber closes when the handler has returned; call Close outside of handlers")
	}
	select {
	case <-s.ended:
	case <-time.After(s.cfg.CloseTimeout + time.Second):
		if l != nil {
			l.Close()
		}
	}
	return s.Err()
}

// nextID is an id that names no request of the connection. Called with s.mu held.
func (s *Subscriber) nextID() uint32 {
	for {
		s.lastID++
		id := s.lastID
		if id != 0 && s.subs[id] == nil && s.pubs[id] == nil && s.claimAsks[id] == nil && s.presence.asks[id] == nil && s.presenceByID(id) == nil {
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
	if s.cfg.OnGap != nil {
		s.gaps = append(s.gaps, g)
	}
}

// later has f called once the lock is let go. Called with s.mu held.
func (s *Subscriber) later(f func()) { s.calls = append(s.calls, f) }

// unlock lets s.mu go, tells OnGap what was noted under it, and calls what else was.
func (s *Subscriber) unlock() {
	gaps, calls := s.gaps, s.calls
	s.gaps, s.calls = nil, nil
	s.mu.Unlock()
	for _, g := range gaps {
		s.cfg.OnGap(g)
	}
	for _, f := range calls {
		f()
	}
}

func decodeError(body []byte) *Error {
	var m wirev1.Error
	if proto.Unmarshal(body, &m) != nil {
		return &Error{Code: wirev1.Code_CODE_INTERNAL, Message: "an Error that can't be decoded"}
	}
	return &Error{Code: m.GetCode(), Message: m.GetMessage(), RetryAfter: time.Duration(m.GetRetryAfterMs()) * time.Millisecond}
}
