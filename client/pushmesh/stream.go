package pushmesh

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// inFlightHeader is where a router says how many messages may be unanswered.
const inFlightHeader = "pushmesh-in-flight"

// A request carries at most so many messages, and stops growing after so many bytes.
const (
	maxBatch      = 256
	maxBatchBytes = 512 << 10
)

func request(m Message) *pushmeshv1.PublishRequest {
	r := &pushmeshv1.PublishRequest{
		Topic: m.Topic, Payload: m.Payload, Headers: m.Headers, DedupeKey: m.DedupeKey, Priority: m.Priority, Traceparent: m.Traceparent,
		Features: m.Features, Vector: m.Vector,
	}
	if m.TTL > 0 {
		r.Ttl = durationpb.New(m.TTL)
	}
	if !m.DeliverAt.IsZero() {
		r.DeliverAt = timestamppb.New(m.DeliverAt)
	}
	return r
}

// run keeps a stream open until Close.
func (p *Producer) run() {
	defer close(p.ended)
	route := reconnect.NewRoute(p.cfg.Addrs, p.cfg.lookup)
	wait := reconnect.Backoff{Low: p.cfg.MinBackoff, High: p.cfg.MaxBackoff}
	for p.ctx.Err() == nil {
		answered, err := p.stream(route, route.Next(p.ctx))
		made := p.made()
		p.grounded()
		if answered {
			wait.Reset()
			route.Found()
		}
		var move *moving
		if errors.As(err, &move) {
			p.tell(made, move)
			route.Detour(move.to)
			continue
		}
		e := connFault(route.Last().Addr, err)
		p.offline(e)
		p.tell(made, e)
		if p.ctx.Err() == nil && !e.Retryable() {
			p.end(e)
			return
		}
		switch {
		case answered && len(route.Others()) > 0:
			// another router may do at once, whatever this one said
			reconnect.Pause(p.ctx, (&reconnect.Backoff{Low: p.cfg.MinBackoff, High: p.cfg.MinBackoff}).Next(0))
		case answered || route.Round():
			reconnect.Pause(p.ctx, wait.Next(e.RetryAfter))
		}
	}
	p.end(ErrClosed)
}

// tell tells how an attempt ended that made a stream, or did not.
func (p *Producer) tell(made bool, why error) {
	if p.ctx.Err() != nil {
		return // it is closed
	}
	text, f := "pushmesh: no connection", p.cfg.OnConnectFailed
	if made {
		text, f = "pushmesh: disconnected", p.cfg.OnDisconnect
	}
	p.cfg.Logger.Warn(text, "error", why)
	if f != nil {
		f(why)
	}
}

// offline notes why there is no stream.
func (p *Producer) offline(why *Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = why
}

// windows says how much of a router's answers may be under way. Where that is not said gRPC
// measures it, with a ping for nearly every answer.
func windows() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithInitialWindowSize(4 << 20), grpc.WithInitialConnWindowSize(8 << 20)}
}

// dial makes a connection to a place. A certificate there must be of the place's name.
func (p *Producer) dial(at reconnect.Place) (*grpc.ClientConn, error) {
	options := append(windows(), p.cfg.DialOptions...)
	if at.Addr == at.Name {
		return grpc.NewClient(at.Addr, options...)
	}
	fixed := manual.NewBuilderWithScheme("pushmesh")
	fixed.InitialState(resolver.State{Endpoints: []resolver.Endpoint{{Addresses: []resolver.Address{{Addr: at.Addr}}}}})
	return grpc.NewClient("pushmesh:///"+at.Name, append(options, grpc.WithResolvers(fixed))...)
}

// stream publishes over one connection until it breaks. answered reports whether it was good for
// anything.
func (p *Producer) stream(route *reconnect.Route, at reconnect.Place) (answered bool, err error) {
	conn, err := p.dial(at)
	if err != nil {
		return false, &Error{Code: CodeUnavailable, Message: err.Error()}
	}
	ctx, cancel := context.WithCancel(p.ctx)
	received, tended := make(chan struct{}), make(chan struct{})
	var recvErr error
	defer func() {
		cancel()
		_ = conn.Close() // the stream's own error says more
	}()
	dialling := time.AfterFunc(p.cfg.DialTimeout, cancel)
	st, err := pushmeshv1.NewPublishServiceClient(conn).PublishStream(ctx)
	if !dialling.Stop() {
		return false, &Error{Code: CodeUnavailable, Message: "no connection to " + at.Addr + " within " + p.cfg.DialTimeout.String() + ": is it a router's port (7401)?"}
	}
	if err != nil {
		return false, err
	}
	p.stay()
	p.connected(true)
	p.cfg.Logger.Info("pushmesh: connected", "router", at.Addr)
	if p.cfg.OnConnect != nil {
		p.cfg.OnConnect(at.Addr)
	}
	defer p.connected(false)
	go func() {
		defer close(received)
		answered, recvErr = p.receive(st)
	}()
	go func() {
		defer close(tended)
		p.tend(ctx, conn, func(ctx context.Context) []reconnect.Place {
			return slices.DeleteFunc(route.Expand(ctx), func(other reconnect.Place) bool { return other == at })
		})
	}()
	err = p.send(st, received)
	cancel()
	<-received
	<-tended
	if err == nil || errors.Is(err, io.EOF) { // EOF of Send: Recv knows why
		err = recvErr
	}
	return answered, err
}

// send sends what may be sent until the stream ends. A nil error means that receive knows why.
func (p *Producer) send(st grpc.BidiStreamingClient[pushmeshv1.PublishStreamRequest, pushmeshv1.PublishStreamResponse], received <-chan struct{}) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		req, at, err := p.gather(time.Now())
		if err != nil {
			return err
		}
		if req != nil {
			if err := st.Send(req); err != nil {
				return err
			}
			continue
		}
		timer.Reset(max(time.Until(at), time.Millisecond))
		select {
		case <-p.wake:
		case <-timer.C:
		case <-received:
			return nil
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
	}
}

// gather takes the messages to send now: one of each lane in turn, so that none waits for another's
// backlog. Without any, at says when to look again.
func (p *Producer) gather(now time.Time) (req *pushmeshv1.PublishStreamRequest, at time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at = now.Add(p.cfg.AnswerTimeout / 4)
	if p.overdue(now) {
		return nil, at, &Error{Code: CodeUnavailable, Message: "the router has left messages unanswered for " + p.cfg.AnswerTimeout.String()}
	}
	if p.leaving != nil {
		if p.flying == 0 || !now.Before(p.leaving.by) {
			return nil, at, p.leaving
		}
		return nil, earlier(at, p.leaving.by), nil
	}
	if p.renew {
		if p.flying > 0 {
			return nil, at, nil
		}
		p.startOver()
	}
	if now.Before(p.held) {
		return nil, earlier(at, p.held), nil
	}
	size := 0
	for tries := len(p.ready); tries > 0 && p.flying < p.window && size < maxBatchBytes; {
		l := p.ready[0]
		p.ready = p.ready[1:]
		l.queued = false
		o, later := l.next(now)
		if o == nil {
			tries--
			if !later.IsZero() {
				at = earlier(at, later)
				p.queue(l)
			}
			continue
		}
		if req == nil {
			req = &pushmeshv1.PublishStreamRequest{ProducerId: l.id}
		}
		if !bytes.Equal(req.GetProducerId(), l.id) {
			// of before the last change of the id: in the next request
			p.queue(l)
			break
		}
		req.Batch = append(req.Batch, p.launch(o, now))
		size += o.size
		p.queue(l)
		if len(req.GetBatch()) == maxBatch {
			break
		}
		tries = len(p.ready)
	}
	if len(p.ready) == 0 {
		p.ready = nil
	}
	return req, at, nil
}

// overdue reports whether a message waits for its answer for too long. It looks a few times per
// AnswerTimeout.
func (p *Producer) overdue(now time.Time) bool {
	if now.Sub(p.looked) < p.cfg.AnswerTimeout/8 {
		return false
	}
	p.looked = now
	for _, o := range p.refs {
		if now.Sub(o.sentAt) >= p.cfg.AnswerTimeout {
			return true
		}
	}
	return false
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// launch numbers a message. One whose fate is unknown keeps its number, or it would be published
// twice: the mesh may have taken it and messages after it.
func (p *Producer) launch(o *outgoing, now time.Time) *pushmeshv1.PublishStreamRequest_Item {
	l := o.lane
	if !o.unknown {
		o.seq, o.since = l.sent+1, now
	}
	l.sent = max(l.sent, o.seq)
	if p.flying == 0 {
		p.heard = now
	}
	l.flying++
	p.flying++
	p.lastRef++
	o.ref, o.sentAt = p.lastRef, now
	p.refs[o.ref] = o
	return &pushmeshv1.PublishStreamRequest_Item{
		Ref: o.ref, Message: o.request, ProducerSeq: o.seq, SettledSeq: min(l.last, o.seq-1), SentMsAgo: ago(now, o.since),
	}
}

// ago is how many milliseconds have passed, by the clock that says more: one stands still while the
// machine sleeps, the other one may be set. Less than a second is not said.
func ago(now, since time.Time) uint64 {
	d := max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
	if d < time.Second {
		return 0
	}
	return uint64(d.Milliseconds())
}

// receive takes answers until the stream ends.
func (p *Producer) receive(st grpc.BidiStreamingClient[pushmeshv1.PublishStreamRequest, pushmeshv1.PublishStreamResponse]) (answered bool, err error) {
	if md, err := st.Header(); err == nil {
		if v := md.Get(inFlightHeader); len(v) == 1 {
			n, _ := strconv.Atoi(v[0]) // what is no number says nothing
			p.mu.Lock()
			p.allow(n)
			p.mu.Unlock()
			p.nudge()
		}
	}
	for {
		resp, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return answered, &Error{Code: CodeUnavailable, Message: "the router ended the stream"}
		}
		if err != nil {
			return answered, err
		}
		leave := p.results(resp.GetResults(), &answered)
		if leave {
			return answered, &Error{Code: CodeDraining, Message: "the router is draining"}
		}
	}
}
