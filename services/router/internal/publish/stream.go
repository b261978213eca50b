package publish

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Header metadata of PublishStream, by which a producer paces itself: how many messages it may have unanswered, and how many
// it may send a second. Absent: no limit.
const (
	HeaderInFlight = "pushmesh-in-flight"
	HeaderRate     = "pushmesh-rate"
)

const (
	// maxAnswers is how many answers may wait for a client that doesn't read them; beyond it the router doesn't read from the client.
	maxAnswers = 16 << 10
	// maxResults of one PublishStreamResponse.
	maxResults = 8192
	// drainLinger is how long a stream answers DRAINING before it is closed.
	drainLinger = 200 * time.Millisecond
)

type publishStream = grpc.BidiStreamingServer[pushmeshv1.PublishStreamRequest, pushmeshv1.PublishStreamResponse]

// PublishStream implements PublishService. One goroutine reads and submits, another one sends answers.
func (s *Service) PublishStream(stream publishStream) error {
	if s.drained.Load() {
		return errDraining()
	}
	if err := stream.SendHeader(s.pacing()); err != nil {
		return err
	}
	out := newAnswers()
	read, sent := make(chan error, 1), make(chan error, 1)
	go func() { read <- s.read(stream, out) }()
	go func() { sent <- out.send(stream) }()
	var end error
	select {
	case err := <-read:
		if !errors.Is(err, io.EOF) {
			end = err
		}
	case err := <-sent:
		return err
	case <-s.draining:
		end = errDraining()
		s.linger(stream.Context())
	}
	out.finish()
	select {
	case err := <-sent:
		if end != nil {
			return end
		}
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

func (s *Service) linger(ctx context.Context) {
	timer := time.NewTimer(drainLinger)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (s *Service) pacing() metadata.MD {
	limits := s.publisher.cfg.Admission.Limits(nil)
	md := metadata.MD{}
	if limits.InFlight > 0 {
		md.Set(HeaderInFlight, strconv.Itoa(limits.InFlight))
	}
	if limits.Rate > 0 {
		md.Set(HeaderRate, strconv.Itoa(limits.Rate))
	}
	return md
}

// read submits what comes, in the order in which it comes.
func (s *Service) read(stream publishStream, out *answers) error {
	ctx := stream.Context()
	m := Message{Context: trace.ContextWithSpanContext(ctx, trace.SpanContext{}), Producer: producer(ctx), To: out}
	if hasTraceparent(ctx) {
		m.Context = ctx // the producer put the whole stream into one trace
	}
	var id []byte
	var o order
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if len(req.GetProducerId()) > 0 {
			id = req.GetProducerId()
		}
		refused := false
		s.publisher.cfg.Routes.Cork()
		out.cork()
		if req.GetMessage() != nil || len(req.GetBatch()) == 0 {
			refused = s.take(&m, &o, id, req.GetRef(), req.GetMessage(), req.GetProducerSeq())
		}
		for _, it := range req.GetBatch() {
			refused = s.take(&m, &o, id, it.GetRef(), it.GetMessage(), it.GetProducerSeq()) || refused
		}
		s.publisher.cfg.Routes.Uncork()
		out.uncork()
		if refused {
			s.penalty(ctx, m.Producer)
		}
		if err := out.room(ctx); err != nil {
			return err
		}
	}
}

func (s *Service) take(m *Message, o *order, id []byte, ref uint64, req *pushmeshv1.PublishRequest, seq uint64) (refused bool) {
	m.Ref, m.Request, m.ProducerID, m.ProducerSeq = ref, req, id, seq
	m.To.(*answers).expect()
	if s.drained.Load() {
		s.publisher.refuse(time.Now(), m, errDraining())
		return false
	}
	if len(o.stopped) > 0 {
		now := time.Now()
		if err := o.check(now, id, req.GetTopic(), seq); err != nil {
			s.publisher.refuse(now, m, err)
			return false
		}
	}
	if !s.publisher.Publish(m) {
		return false
	}
	o.refused(time.Now(), id, req, seq)
	return true
}

// answers is what a stream owes its client. It is safe for concurrent use.
type answers struct {
	wake chan struct{} // 1: there is something to send
	free chan struct{} // 1: something was sent

	mu     sync.Mutex
	ready  []*pushmeshv1.PublishStreamResponse_Result
	owed   int // messages without a result
	corked bool
	closed bool
}

// corkedMost answers are sent although more are about to come.
const corkedMost = 64

func newAnswers() *answers {
	return &answers{wake: make(chan struct{}, 1), free: make(chan struct{}, 1)}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (a *answers) expect() {
	a.mu.Lock()
	a.owed++
	a.mu.Unlock()
}

// Published implements Receiver.
func (a *answers) Published(ref uint64, res *Result) {
	r := streamResult(ref, res)
	a.mu.Lock()
	a.ready = append(a.ready, r)
	a.owed--
	wait := a.corked && len(a.ready)%corkedMost != 0
	a.mu.Unlock()
	if !wait {
		signal(a.wake)
	}
}

// cork says that messages are about to be taken one right after the other, many of which are answered at once.
func (a *answers) cork() {
	a.mu.Lock()
	a.corked = true
	a.mu.Unlock()
}

func (a *answers) uncork() {
	a.mu.Lock()
	a.corked = false
	a.mu.Unlock()
	signal(a.wake)
}

// finish says that no more messages come: send ends once everything owed is sent.
func (a *answers) finish() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	signal(a.wake)
}

// room waits while too many answers are unsent.
func (a *answers) room(ctx context.Context) error {
	for {
		a.mu.Lock()
		n := len(a.ready)
		a.mu.Unlock()
		if n < maxAnswers {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.free:
		}
	}
}

// take moves up to maxResults answers into resp; done says that nothing more will come.
func (a *answers) take(resp *pushmeshv1.PublishStreamResponse) (some, done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.ready), maxResults)
	resp.Results = append(resp.Results[:0], a.ready[:n]...)
	rest := copy(a.ready, a.ready[n:])
	clear(a.ready[rest:])
	a.ready = a.ready[:rest]
	return n > 0, a.closed && a.owed == 0 && rest == 0
}

func (a *answers) send(stream publishStream) error {
	resp := &pushmeshv1.PublishStreamResponse{}
	for {
		some, done := a.take(resp)
		if some {
			if err := stream.Send(resp); err != nil {
				return err
			}
			signal(a.free)
		}
		if done {
			return nil
		}
		if some {
			continue
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-a.wake:
		}
	}
}
