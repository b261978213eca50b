package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// openTick is how often a producer of an open loop sends what is due.
	openTick = 2 * time.Millisecond
	// openBatch is the most messages of one request.
	openBatch = 256
	// openLate is when a message that could not be sent yet is given up, and counted as unsent.
	openLate = time.Second
)

// source is one producer of an open loop: it sends when messages are due, whatever became of those before, and ignores when to come back.
type source struct {
	Name       string // of the producer, its token
	Rate       float64
	Priorities int // messages have the priorities below that in turn
	// Greedy: what it gets is not of interest.
	Greedy bool
}

// loop is what an open loop came to.
type loop struct {
	OK, Refused, Other, Unsent, Unanswered int64
	P50, P99                               float64 // ms of accepted messages, from when each was due
	Accepted                               [10]int64
	Offered                                [10]int64
	GreedyOK, GreedySent, GreedyUnsent     int64
	Fault                                  string // the first code other than OK and OVERLOADED
}

// openLoop is the worker that lets all sources of its job send for its span.
func openLoop(ctx context.Context, j *job, orders <-chan string, say func(any) error) error {
	var senders []*sender
	for i, s := range j.Sources {
		p, err := newSender(ctx, j, s, i)
		if err != nil {
			return err
		}
		defer func() { _ = p.conn.Close() }()
		senders = append(senders, p)
	}
	if err := say(loop{}); err != nil {
		return err
	}
	if _, ok := <-orders; !ok {
		return nil
	}
	var done sync.WaitGroup
	began := time.Now().Add(10 * time.Millisecond)
	for _, p := range senders {
		done.Go(func() { p.run(began, j.Span) })
	}
	done.Wait()
	if err := say(sum(senders)); err != nil {
		return err
	}
	<-orders // the end
	return nil
}

type sender struct {
	source
	conn    *grpc.ClientConn
	stream  grpc.BidiStreamingClient[pushmeshv1.PublishStreamRequest, pushmeshv1.PublishStreamResponse]
	topics  []string
	payload []byte
	began   time.Time
	sent    int64
	unsent  int64
	offered [10]int64

	mu       sync.Mutex
	answered int64
	ok       int64
	refused  int64
	other    int64
	accepted [10]int64
	took     []float64
	fault    string
	change   chan struct{}
}

func newSender(ctx context.Context, j *job, s source, n int) (*sender, error) {
	conn, err := grpc.NewClient(j.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec.Codec{})))
	if err != nil {
		return nil, err
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.Name)
	p := &sender{source: s, conn: conn, payload: make([]byte, j.Size), change: make(chan struct{}, 1)}
	for _, t := range j.Topics { // of its own, or producers would share lanes
		p.topics = append(p.topics, fmt.Sprintf("%s-%d", t, n))
	}
	if p.stream, err = pushmeshv1.NewPublishServiceClient(conn).PublishStream(ctx); err == nil {
		_, err = p.stream.Header()
	}
	return p, errors.Join(err)
}

// due is when message ref, from 0, has to leave.
func (p *sender) due(ref int64) time.Time {
	return p.began.Add(time.Duration(float64(ref) / p.Rate * float64(time.Second)))
}

// run sends for a span, and waits for answers as long as the patience goes.
func (p *sender) run(began time.Time, span time.Duration) {
	p.began = began
	go p.receive()
	tick := time.NewTicker(openTick)
	defer tick.Stop()
	total := int64(span.Seconds() * p.Rate)
	req := &pushmeshv1.PublishStreamRequest{}
	for ref := int64(0); ref < total; {
		now := time.Now()
		for ; ref < total && now.Sub(p.due(ref)) > openLate; ref++ {
			p.unsent++
			p.offered[p.priority(ref)]++
		}
		req.Batch = req.Batch[:0]
		for ; ref < total && len(req.Batch) < openBatch && !p.due(ref).After(now); ref++ {
			req.Batch = append(req.Batch, &pushmeshv1.PublishStreamRequest_Item{Ref: uint64(ref), Message: &pushmeshv1.PublishRequest{
				Topic: p.topics[ref%int64(len(p.topics))], Payload: p.payload, Priority: uint32(p.priority(ref)),
			}})
			p.offered[p.priority(ref)]++
		}
		if len(req.Batch) == 0 {
			<-tick.C
			continue
		}
		if p.stream.Send(req) != nil {
			p.unsent += total - ref
			break
		}
		p.sent += int64(len(req.Batch))
	}
	_ = p.stream.CloseSend()
	late := time.After(5 * time.Second)
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

func (p *sender) priority(ref int64) int { return int(ref/int64(len(p.topics))) % max(p.Priorities, 1) }

func (p *sender) receive() {
	for {
		resp, err := p.stream.Recv()
		now := time.Now()
		if err != nil {
			return
		}
		p.mu.Lock()
		for _, r := range resp.GetResults() {
			p.answered++
			switch r.GetCode() {
			case wirev1.Code_CODE_OK:
				p.ok++
				p.accepted[p.priority(int64(r.GetRef()))]++
				p.took = append(p.took, now.Sub(p.due(int64(r.GetRef()))).Seconds()*1000)
			case wirev1.Code_CODE_OVERLOADED, wirev1.Code_CODE_RATE_LIMITED:
				p.refused++
			default:
				p.other++
				p.fault = r.GetCode().String() + " " + r.GetError()
			}
		}
		p.mu.Unlock()
		select {
		case p.change <- struct{}{}:
		default:
		}
	}
}

func sum(senders []*sender) (l loop) {
	var took []float64
	for _, p := range senders {
		p.mu.Lock()
		if p.Greedy {
			l.GreedyOK, l.GreedySent, l.GreedyUnsent = l.GreedyOK+p.ok, l.GreedySent+p.sent, l.GreedyUnsent+p.unsent
			p.mu.Unlock()
			continue
		}
		l.OK, l.Refused, l.Other = l.OK+p.ok, l.Refused+p.refused, l.Other+p.other
		l.Unsent, l.Unanswered = l.Unsent+p.unsent, l.Unanswered+p.sent-p.answered
		for i := range l.Accepted {
			l.Accepted[i] += p.accepted[i]
			l.Offered[i] += p.offered[i]
		}
		took = append(took, p.took...)
		if p.fault != "" {
			l.Fault = p.fault
		}
		p.mu.Unlock()
	}
	slices.Sort(took)
	if n := len(took); n > 0 {
		l.P50, l.P99 = took[n/2], took[min(n-1, n*99/100)]
	}
	return l
}
