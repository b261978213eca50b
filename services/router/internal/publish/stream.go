package publish

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/intake"
	"github.com/pushmesh/pushmesh/internal/turns"
	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/shed"
)

// Header metadata of PublishStream, by which a producer paces itself: how many messages it may have
// unanswered, and how many it may send a second. Absent: no limit.
const (
	HeaderInFlight = "pushmesh-in-flight"
	HeaderRate     = "pushmesh-rate"
)

const (
	// maxAnswers is how many answers may wait for a client that doesn't read them; beyond it the
	// router doesn't read from the client.
	maxAnswers = 4096
	// takenAtOnce is how many messages of a batch are taken before it is looked whether their
	// answers are read.
	takenAtOnce = 1024
	// maxResults of one PublishStreamResponse, which gRPC keeps until the client reads it: with 60
	// bytes each it fits into 32 KiB, the next larger buffer has a MiB.
	maxResults = 512
	// drainLinger is how long a stream answers DRAINING before it is closed.
	drainLinger = 200 * time.Millisecond
)

type publishStream = grpc.BidiStreamingServer[pushmeshv1.PublishStreamRequest, pushmeshv1.PublishStreamResponse]

// PublishStream implements PublishService. One goroutine receives, one submits, and one sends
// answers.
func (s *Service) PublishStream(stream publishStream) error {
	if s.drained.Load() {
		return errDraining()
	}
	if err := stream.SendHeader(s.pacing(stream.Context())); err != nil {
		return err
	}
	out := newAnswers()
	out.call = intake.Of(stream.Context())
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

func (s *Service) pacing(ctx context.Context) metadata.MD {
	limits := s.publisher.cfg.Admission.Limits(producer(ctx), nil)
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
func (s *Service) read(stream grpc.ServerStream, out *answers) error {
	ctx := stream.Context()
	m := Message{Context: trace.ContextWithSpanContext(ctx, trace.SpanContext{}), Producer: producer(ctx), By: backends.Of(ctx), To: out}
	if hasTraceparent(ctx) {
		m.Context = ctx // the producer put the whole stream into one trace
	}
	var id []byte
	var o order
	var late []uint64
	req := &pushmeshv1.PublishStreamRequest{}
	arrive := s.arrivals(stream)
	out.turn = s.turns.Of(ctx)
	defer out.turn.Close()
	held := time.Now() // until when this stream's own client held it up
	for {
		next, err := arrive()
		if err != nil {
			return err
		}
		out.turn.Enter()
		if next.at.After(held) {
			s.publisher.waited(time.Since(next.at))
		}
		late, err = s.open(&next.frame, req, late[:0])
		if err != nil {
			return err
		}
		if len(req.GetProducerId()) > 0 {
			id = req.GetProducerId()
		}
		refused := len(late) > 0
		s.publisher.cfg.Routes.Cork()
		out.cork()
		if refused {
			out.refuse(late, s.publisher.refuseLate(m.Producer, len(late)))
		}
		if req.GetMessage() != nil || len(req.GetBatch())+len(late) == 0 {
			m.SettledSeq, m.SentMsAgo = req.GetSettledSeq(), req.GetSentMsAgo()
			refused = s.take(&m, &o, id, req.GetRef(), req.GetMessage(), req.GetProducerSeq())
		}
		if batch := req.GetBatch(); len(batch) > 0 {
			some, waited, err := s.takeBatch(ctx, &m, &o, id, batch)
			if err != nil {
				return err
			}
			refused = some || refused
			if waited {
				held = time.Now()
			}
		}
		s.publisher.cfg.Routes.Uncork()
		out.uncork()
		out.turn.Leave()
		if len(req.GetBatch()) > 0 {
			// others have waited meanwhile, and on few cores a stream that always has more to read
			// would have its turn for long
			runtime.Gosched()
		}
		if refused && s.penalty(ctx, m.Producer) {
			held = time.Now()
		}
		if !out.full() {
			continue
		}
		req.Reset()
		out.call.Done()
		if _, err := out.room(ctx); err != nil {
			return err
		}
		held = time.Now()
	}
}

// open decodes a request except for those messages of a batch that the router has no time for:
// their refs are appended to late. A numbered one is never among them: on its own way its followers
// stop as well.
func (s *Service) open(f *codec.Frame, req *pushmeshv1.PublishStreamRequest, late []uint64) ([]uint64, error) {
	defer f.Free()
	pressure := s.publisher.cfg.Admission.Lag()
	if !shed.Any(pressure) || s.drained.Load() {
		return late, f.Decode(req)
	}
	return f.Thin(req, late, func(topic []byte, priority uint32) bool { return !shed.Passes(pressure, priority, topic) })
}

// takeBatch takes a batch, part by part, and waits in between while too many answers are unsent.
func (s *Service) takeBatch(ctx context.Context, m *Message, o *order, id []byte, batch []*pushmeshv1.PublishStreamRequest_Item) (refused, waited bool, err error) {
	out := m.To.(*answers)
	for i, it := range batch {
		if i > 0 && i%takenAtOnce == 0 && out.full() {
			s.publisher.cfg.Routes.Uncork()
			out.uncork()
			out.turn.Leave()
			_, err := out.room(ctx)
			if err != nil {
				return refused, true, err
			}
			out.turn.Enter()
			s.publisher.cfg.Routes.Cork() // its caller uncorks
			out.cork()
			waited = true
		}
		m.SettledSeq, m.SentMsAgo = it.GetSettledSeq(), it.GetSentMsAgo()
		refused = s.take(m, o, id, it.GetRef(), it.GetMessage(), it.GetProducerSeq()) || refused
	}
	return refused, waited, nil
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
	call *intake.Call  // pays for what is not read; nil: nobody does
	turn *turns.Turn   // of who takes its messages; nil: it is always its turn

	mu     sync.Mutex
	ready  []*pushmeshv1.PublishStreamResponse_Result
	owed   int // messages without a result
	corked bool
	closed bool

	refused  []codec.Encoded // responses
	refusals int             // results in them
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

// refuse answers messages that were not expected, all alike.
func (a *answers) refuse(refs []uint64, res *Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for some := range slices.Chunk(refs, maxResults) {
		a.refused = append(a.refused, codec.AppendRefusals(nil, some, res.Code, res.Error, res.RetryAfter))
		a.refusals += len(some)
	}
}

// cork says that messages are about to be taken one right after the other, many of which are
// answered at once.
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

// keep charges what is not sent yet, or not answered. a.mu is held.
func (a *answers) keep() { a.call.Keep((len(a.ready) + a.refusals + a.owed) * intake.AnswerBytes) }

// full reports whether so many answers are unsent that there is no room for more.
func (a *answers) full() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keep()
	return len(a.ready)+a.refusals >= maxAnswers
}

// room waits while too many answers are unsent, and reports whether it had to.
func (a *answers) room(ctx context.Context) (waited bool, err error) {
	for {
		a.mu.Lock()
		n := len(a.ready) + a.refusals
		a.keep()
		a.mu.Unlock()
		if n < maxAnswers {
			return waited, nil
		}
		waited = true
		select {
		case <-ctx.Done():
			return waited, ctx.Err()
		case <-a.free:
		}
	}
}

// take moves up to maxResults answers into resp, and all refusals into refused; done says that
// nothing more will come.
func (a *answers) take(resp *pushmeshv1.PublishStreamResponse, refused []codec.Encoded) (_ []codec.Encoded, done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.ready), maxResults)
	resp.Results = append(resp.Results[:0], a.ready[:n]...)
	rest := copy(a.ready, a.ready[n:])
	clear(a.ready[rest:])
	a.ready = a.ready[:rest]
	refused, a.refused, a.refusals = a.refused, refused[:0], 0
	a.keep()
	return refused, a.closed && a.owed == 0 && rest == 0
}

func (a *answers) send(stream publishStream) error {
	resp := &pushmeshv1.PublishStreamResponse{}
	var refused []codec.Encoded
	for {
		var done bool
		refused, done = a.take(resp, refused)
		some := len(resp.Results)+len(refused) > 0
		for _, r := range refused {
			if err := stream.SendMsg(r); err != nil {
				return err
			}
		}
		clear(refused)
		if len(resp.Results) > 0 {
			if err := stream.Send(resp); err != nil {
				return err
			}
		}
		if done {
			return nil
		}
		if some {
			signal(a.free)
			continue
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-a.wake:
		}
	}
}
