package subscribe

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// drainLinger is how long ACKs are taken before a stream ends because the router stops.
	drainLinger = 200 * time.Millisecond
	// hangUpWithin is how long an edge has to take the last ACKs.
	hangUpWithin = time.Second
	// maxSession is how many bytes the name of a session may have.
	maxSession = 255
	// maxBatch is how many bytes of events are sent together.
	maxBatch = 64 << 10
)

type server = grpc.BidiStreamingServer[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse]

// stream is one subscriber. Its goroutines: serve's, which decides when it ends; take's, which
// reads requests; pump's, which connects to edges and sends events; and one for what goes to the
// edge.
type stream struct {
	service *Service
	rpc     server
	hello   *wirev1.Hello
	move    bool

	events     events // pump's
	moved      error  // pump's: what ended the connection before; nil: there was none
	clientGone bool   // pump's: sending to the client failed
	sender     sender

	mu      sync.Mutex
	link    *link         // nil: between edges
	linked  chan struct{} // closed while link is there
	kept    map[uint32]*kept
	keeping int // bytes of kept
	ending  bool
}

func serve(service *Service, rpc server) error {
	s := &stream{service: service, rpc: rpc, linked: make(chan struct{}), kept: map[uint32]*kept{}}
	requests := make(chan error, 1)
	hello := make(chan error, 1)
	go func() {
		err := s.greet()
		hello <- err
		if err == nil {
			requests <- s.take()
		}
	}()
	timer := time.NewTimer(service.cfg.Silent)
	defer timer.Stop()
	select {
	case err := <-hello:
		if err != nil {
			return err
		}
	case <-timer.C:
		return code.New(wirev1.Code_CODE_HANDSHAKE_TIMEOUT, "the first request did not come in time")
	case <-service.draining:
		return errDraining()
	}
	ctx, cancel := context.WithCancel(rpc.Context())
	defer cancel()
	events, pumped := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(pumped)
		events <- s.run(ctx)
	}()
	var end error
	select {
	case err := <-events:
		return err
	case err := <-requests:
		if end = err; errors.Is(err, io.EOF) {
			end = nil
		}
	case <-service.draining:
		end = errDraining()
		wait(ctx, drainLinger)
	}
	s.hangUp(pumped, cancel)
	return end
}

// hangUp lets the edge have what waits for it, and waits until it has hung up.
func (s *stream) hangUp(pumped <-chan struct{}, cancel context.CancelFunc) {
	s.mu.Lock()
	s.ending = true
	l := s.link
	s.mu.Unlock()
	if l == nil {
		cancel()
		return
	}
	late := time.AfterFunc(hangUpWithin, l.close)
	defer late.Stop()
	l.finish()
	select {
	case <-pumped:
	case <-s.rpc.Context().Done():
	case <-time.After(hangUpWithin): // the client takes nothing
	}
	cancel()
	l.close()
}

// greet takes Hello.
func (s *stream) greet() error {
	req, err := s.rpc.Recv()
	if errors.Is(err, io.EOF) {
		return invalid("the first request must be hello")
	}
	if err != nil {
		return err
	}
	h := req.GetHello()
	switch {
	case h == nil:
		return invalid("the first request must be hello")
	case h.GetVersion() > 1:
		return invalid("hello.version is set by the router: leave it 0")
	case len(h.GetTicket()) > 0:
		return invalid("hello.ticket is set by the router: leave it empty")
	}
	s.hello, s.move = proto.CloneOf(h), req.GetMove()
	if by := backends.Of(s.rpc.Context()); by != nil && h.GetSession() != "" {
		// the client id proves nothing: another backend may say it
		if s.hello.Session = by.Who().Session(h.GetSession()); len(s.hello.Session) > maxSession {
			return invalid("hello.session is too long: it has more than %d bytes together with the backend's name", maxSession)
		}
	}
	s.hello.Version, s.hello.HeartbeatMs = 1, uint32(heartbeat.Milliseconds())
	return nil
}

// run sends what edges say until the stream ends.
func (s *stream) run(ctx context.Context) error {
	for {
		l, err := s.connect(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		err = s.begin(ctx, l)
		if err == nil {
			err = s.pump(l)
		}
		s.lost(l)
		if !s.mayMove(err) || ctx.Err() != nil {
			return err
		}
		s.moved = err
		s.service.metrics.moved(err)
		if time.Since(began) < steady && !wait(ctx, maxPause/4) {
			return ctx.Err()
		}
	}
}

// mayMove reports whether another edge may go on after err: where the edge, and not the subscriber,
// is the reason.
func (s *stream) mayMove(err error) bool {
	s.mu.Lock()
	ending := s.ending
	s.mu.Unlock()
	if !s.move || s.clientGone || ending || s.rpc.Context().Err() != nil {
		return false
	}
	switch code.Of(err) {
	case wirev1.Code_CODE_DRAINING, wirev1.Code_CODE_UNAVAILABLE, wirev1.Code_CODE_UNHEALTHY, wirev1.Code_CODE_IDLE_TIMEOUT, wirev1.Code_CODE_OVERLOADED, wirev1.Code_CODE_INTERNAL:
		return true
	}
	return false
}

// begin makes l the stream's connection: it asks again for what was subscribed to, and lets
// requests through.
func (s *stream) begin(ctx context.Context, l *link) error {
	s.hello.ClientId = l.welcome.GetClientId() // the name stays, for the session is its
	l.release = context.AfterFunc(ctx, l.close)
	go l.up.run()
	s.mu.Lock()
	if err := s.again(l); err != nil {
		s.mu.Unlock()
		return err
	}
	s.link = l
	ending := s.ending
	close(s.linked)
	s.mu.Unlock()
	if ending {
		return gone("the stream ends")
	}
	s.events.add(wirev1.FrameType_FRAME_TYPE_WELCOME, l.greeting)
	if err := s.send(); err != nil {
		return err
	}
	return s.sender.greeted(s.rpc)
}

func (s *stream) lost(l *link) {
	l.release()
	l.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l {
		s.link, s.linked = nil, make(chan struct{})
	}
}

// pump sends what the edge says. While the client does not take it nothing is read from the edge:
// the connection's window then holds, and what the subscription says about falling behind.
func (s *stream) pump(l *link) error {
	for {
		t, body, err := l.next()
		if err == nil {
			err = s.translate(l, t, body)
		}
		if len(s.events.buf) > 0 && (err != nil || len(s.events.buf) >= maxBatch || !l.more()) {
			if e := s.send(); e != nil {
				return e
			}
		}
		if err != nil {
			return err
		}
	}
}

func (s *stream) send() error {
	err := s.sender.send(s.rpc, s.events.buf)
	s.service.metrics.messages.Add(float64(s.events.messages))
	s.events.reset()
	s.clientGone = err != nil
	return err
}

// translate makes an event of a frame. An error ends the connection.
func (s *stream) translate(l *link, t wirev1.FrameType, body []byte) error {
	switch t {
	case wirev1.FrameType_FRAME_TYPE_MESSAGE, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, wirev1.FrameType_FRAME_TYPE_PROGRESS:
	case wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED:
		var m wirev1.Unsubscribed
		if proto.Unmarshal(body, &m) == nil {
			s.forget(m.GetId())
		}
	case wirev1.FrameType_FRAME_TYPE_ERROR:
		e, ref := reason(t, body)
		if ref == 0 {
			if code.Retryable(e.Code) {
				e.RetryAfter = max(e.RetryAfter, retrySoon)
			}
			return e
		}
		s.forget(ref)
	case wirev1.FrameType_FRAME_TYPE_PONG:
		var m wirev1.Pong
		if proto.Unmarshal(body, &m) != nil || l.up.own(m.GetSentAt()) {
			return nil
		}
	case wirev1.FrameType_FRAME_TYPE_GO_AWAY:
		return s.goAway(l, body)
	default: // what came after this edition, or answers what was never asked
		s.service.metrics.unknown.Inc()
		return nil
	}
	s.events.add(t, body)
	return nil
}

// goAway notes that the edge is about to hang up, and that it wants fewer connections. Its
// addresses are of edges, which backends don't connect to.
func (s *stream) goAway(l *link, body []byte) error {
	l.away, _ = reason(wirev1.FrameType_FRAME_TYPE_GO_AWAY, body)
	l.away.RetryAfter = max(l.away.RetryAfter, retrySoon)
	s.service.senders.note(l.edge, time.Now())
	if s.move {
		// What is un-ACKed has until then to be ACKed here; the rest comes again from the next
		// edge.
		time.AfterFunc(l.away.RetryAfter, l.finish)
		return nil
	}
	var m wirev1.GoAway
	if err := proto.Unmarshal(body, &m); err != nil {
		return code.New(wirev1.Code_CODE_INTERNAL, "the edge's GoAway can't be decoded")
	}
	m.Addresses = nil
	body, err := proto.Marshal(&m)
	if err != nil {
		return code.New(wirev1.Code_CODE_INTERNAL, err.Error())
	}
	s.events.add(wirev1.FrameType_FRAME_TYPE_GO_AWAY, body)
	return nil
}
