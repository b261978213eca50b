package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/window"
	"github.com/pushmesh/pushmesh/test/load/firehose"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	// openTick is how often a producer of an open loop sends what is due.
	openTick = 2 * time.Millisecond
	// openBatch is the most messages of one request.
	openBatch = 256
	// openLate is when a message that could not be sent yet is given up, and counted as unsent.
	openLate = time.Second
	// openFirst is how long a load lasts before it counts; how late what was accepted then came is
	// told apart.
	openFirst = 500 * time.Millisecond
	// maxWindow is the most messages unanswered of a producer that has a window.
	maxWindow = 4096
	// maxHanded messages' times are remembered, of a producer: more than it can have unanswered
	// within openLate.
	maxHanded = 1 << 19
)

// source is one producer of an open loop: it sends when messages are due, whatever became of those
// before, and ignores when to come back.
type source struct {
	Name       string // of the producer, its token
	Rate       float64
	Priorities int // messages have the priorities below that in turn
	// Greedy: what it gets is not of interest.
	Greedy bool
	// MaxWait, if any, is that of the SDK: the producer has no more unanswered than is answered in
	// half of it, and refuses the rest itself.
	MaxWait time.Duration
}

// loop is what an open loop came to, without its first half second.
type loop struct {
	OK, Refused, Other, Unsent, Unanswered int64
	// refused by the producers themselves, of Refused
	Own int64
	// ms of accepted messages, from when each was due
	P50, P99                           float64
	Held99                             float64 // ms of them, until they were handed to gRPC
	FirstP99                           float64 // ms, of those accepted in the first half second
	Accepted                           [10]int64
	Offered                            [10]int64
	GreedyOK, GreedySent, GreedyUnsent int64
	Fault                              string // the first code other than OK and a refusal
}

// openLoop is the worker that lets all sources of its job send for its span, and half a second
// before.
func openLoop(ctx context.Context, j *job, orders <-chan string, say func(any) error) (err error) {
	defer try.Catch(&err)
	var senders []*sender
	for i, s := range j.Sources {
		p := try.Get(newSender(ctx, j, s, i))
		defer func() { _ = p.conn.Close() }()
		senders = append(senders, p)
	}
	try.Do(say(loop{}))
	if _, ok := <-orders; !ok {
		return nil
	}
	var done sync.WaitGroup
	began := time.Now().Add(10 * time.Millisecond)
	for _, p := range senders {
		done.Go(func() { p.run(began, openFirst+j.Span) })
	}
	done.Wait()
	try.Do(say(sum(senders)))
	<-orders // the end
	return nil
}

// openTopics of the n-th of several producers: each has its own, or they would share lanes.
func openTopics(all []string, n int) (own []string) {
	for _, t := range all {
		own = append(own, fmt.Sprintf("%s-%d", t, n))
	}
	return own
}

// counts of a sender's messages, of its first half second or of the rest.
type counts struct {
	ok, refused, other, unsent, own int64
	accepted, offered               [10]int64
	took, held                      []float64
}

type sender struct {
	source
	conn     *grpc.ClientConn
	stream   grpc.ClientStream
	messages []firehose.Message // in turn
	topics   int64
	began    time.Time
	first    int64 // messages of the first half second
	sent     int64

	mu       sync.Mutex
	counts   [2]counts // of the first half second, and of the rest
	answered int64
	window   *window.Window // nil: none
	// when messages were handed to gRPC, since began, by ref modulo maxHanded
	handed []time.Duration
	fault  string
	change chan struct{}
}

func newSender(ctx context.Context, j *job, s source, n int) (_ *sender, err error) {
	defer try.Catch(&err)
	conn := try.Get(suite.Dial(j.Addr, grpc.WithWriteBufferSize(256<<10),
		grpc.WithInitialWindowSize(4<<20), grpc.WithInitialConnWindowSize(8<<20),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec.Codec{}), grpc.MaxCallRecvMsgSize(64<<20))))
	p := &sender{
		source: s, handed: make([]time.Duration, maxHanded), conn: conn, topics: int64(len(j.Topics)), first: int64(openFirst.Seconds() * s.Rate), change: make(chan struct{}, 1),
	}
	if s.MaxWait > 0 {
		p.window = window.New(s.MaxWait/2, maxWindow)
	}
	for priority := range max(s.Priorities, 1) {
		for _, t := range openTopics(j.Topics, n) {
			p.messages = append(p.messages, firehose.NewMessage(t, make([]byte, j.Size), priority))
		}
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.Name)
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	if p.stream, err = conn.NewStream(ctx, desc, pushmeshv1.PublishService_PublishStream_FullMethodName); err == nil {
		_, err = p.stream.Header()
	}
	return p, errors.Join(err)
}

// due is when message ref, from 0, has to leave.
func (p *sender) due(ref int64) time.Time {
	return p.began.Add(time.Duration(float64(ref) / p.Rate * float64(time.Second)))
}

func (p *sender) priority(ref int64) int { return int(ref/p.topics) % max(p.Priorities, 1) }

// of are the counts that a message belongs to.
func (p *sender) of(ref int64) *counts {
	if ref < p.first {
		return &p.counts[0]
	}
	return &p.counts[1]
}

// run sends for a span, and waits for answers as long as the patience goes.
func (p *sender) run(began time.Time, span time.Duration) {
	p.began = began
	go p.receive()
	tick := time.NewTicker(openTick)
	defer tick.Stop()
	total := int64(span.Seconds() * p.Rate)
	var request codec.Encoded
	for ref := int64(0); ref < total; {
		from := ref
		request, ref = p.request(request[:0], ref, total)
		p.mu.Lock()
		for n := from; n < ref; n++ {
			p.of(n).offered[p.priority(n)]++
		}
		p.mu.Unlock()
		if len(request) == 0 {
			<-tick.C
			continue
		}
		if p.stream.SendMsg(request) != nil {
			break
		}
	}
	_ = p.stream.CloseSend()
	p.await(time.After(5 * time.Second))
}

// request encodes what is due and the producer's window admits, and gives up what has been due for
// too long.
func (p *sender) request(to codec.Encoded, ref, total int64) (codec.Encoded, int64) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; ref < total && now.Sub(p.due(ref)) > openLate; ref++ {
		p.of(ref).unsent++
	}
	for n := 0; n < openBatch && ref < total && !p.due(ref).After(now); ref++ {
		if p.window != nil && !p.window.Admits(int(p.sent-p.answered), uint32(p.priority(ref))) {
			p.of(ref).own++
			continue
		}
		to = p.messages[ref%int64(len(p.messages))].Append(to, uint64(ref))
		p.handed[ref%maxHanded] = now.Sub(p.began)
		p.sent++
		n++
	}
	return to, ref
}

func (p *sender) await(late <-chan time.Time) {
	for {
		p.mu.Lock()
		all := p.answered == p.sent
		p.mu.Unlock()
		if all {
			return
		}
		select {
		case <-p.change:
		case <-late:
			return
		}
	}
}

func (p *sender) receive() {
	var response codec.Encoded
	for {
		if p.stream.RecvMsg(&response) != nil {
			return
		}
		now := time.Now()
		p.mu.Lock()
		err := firehose.Results(response, func(ref uint64, c wirev1.Code, text []byte) error {
			p.result(now, int64(ref), c, text)
			return nil
		})
		if err != nil {
			p.fault = err.Error()
		}
		p.mu.Unlock()
		select {
		case p.change <- struct{}{}:
		default:
		}
	}
}

func (p *sender) result(now time.Time, ref int64, c wirev1.Code, text []byte) {
	p.answered++
	to := p.of(ref)
	handed := p.began.Add(p.handed[ref%maxHanded])
	if p.window != nil {
		p.window.Answered(now, now.Sub(handed), c == wirev1.Code_CODE_OVERLOADED || c == wirev1.Code_CODE_RATE_LIMITED)
	}
	switch c {
	case wirev1.Code_CODE_OK:
		to.ok++
		to.accepted[p.priority(ref)]++
		to.took = append(to.took, now.Sub(p.due(ref)).Seconds()*1000)
		to.held = append(to.held, handed.Sub(p.due(ref)).Seconds()*1000)
	case wirev1.Code_CODE_OVERLOADED, wirev1.Code_CODE_RATE_LIMITED:
		to.refused++
	default:
		to.other++
		p.fault = c.String() + " " + string(text)
	}
}

func sum(senders []*sender) (l loop) {
	var took, held, first []float64
	for _, p := range senders {
		p.mu.Lock()
		c := &p.counts[1]
		if p.Greedy {
			l.GreedyOK, l.GreedySent, l.GreedyUnsent = l.GreedyOK+c.ok, l.GreedySent+c.ok+c.refused, l.GreedyUnsent+c.unsent
			p.mu.Unlock()
			continue
		}
		l.OK, l.Refused, l.Own, l.Other = l.OK+c.ok, l.Refused+c.refused+c.own, l.Own+c.own, l.Other+c.other
		l.Unsent, l.Unanswered = l.Unsent+c.unsent, l.Unanswered+p.sent-p.answered
		for i := range l.Accepted {
			l.Accepted[i] += c.accepted[i]
			l.Offered[i] += c.offered[i]
		}
		first, took, held = append(first, p.counts[0].took...), append(took, c.took...), append(held, c.held...)
		if p.fault != "" {
			l.Fault = p.fault
		}
		p.mu.Unlock()
	}
	l.P50, l.P99, l.FirstP99 = table.At(took, .5), table.At(took, .99), table.At(first, .99)
	l.Held99 = table.At(held, .99)
	return l
}
