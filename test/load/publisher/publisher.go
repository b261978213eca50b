// Package publisher publishes stamped messages of one size to one topic over the public API, for
// measurements.
package publisher

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Mark begins every payload; 16 hexadecimal digits of the Unix time in nanoseconds follow.
const Mark = "@@TS"

// StampSize is the least size of a payload.
const StampSize = len(Mark) + 16

// Stamp writes mark and time into the first StampSize bytes of payload.
func Stamp(payload []byte, now time.Time) {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], uint64(now.UnixNano()))
	hex.Encode(payload[copy(payload, Mark):], raw[:])
}

// Stamped finds the time in a payload or in a frame that holds one.
func Stamped(b []byte) (time.Time, bool) {
	at := bytes.Index(b, []byte(Mark))
	if at < 0 || len(b) < at+StampSize {
		return time.Time{}, false
	}
	var raw [8]byte
	if _, err := hex.Decode(raw[:], b[at+len(Mark):at+StampSize]); err != nil {
		return time.Time{}, false
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(raw[:]))), true
}

// Publisher holds one stream to a router. Publish may be called by one goroutine at a time; a
// goroutine of its own reads the answers.
type Publisher struct {
	conn   *grpc.ClientConn
	stream grpc.BidiStreamingClient[pushmeshv1.PublishStreamRequest, pushmeshv1.PublishStreamResponse]
	topic  string
	size   int
	ref    uint64

	mu       sync.Mutex
	answered uint64
	fault    error
	change   chan struct{} // closed and replaced when an answer or a fault came
	ended    chan struct{}
}

// New connects to a router.
func New(ctx context.Context, addr, topic string, size int) (*Publisher, error) {
	if size < StampSize {
		return nil, fmt.Errorf("a payload of %d bytes has no room for its %d bytes of stamp", size, StampSize)
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		// said, it is not measured: that takes a ping for each answer
		grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(4<<20))
	if err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	stream, err := pushmeshv1.NewPublishServiceClient(conn).PublishStream(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("publisher: %w", err), conn.Close())
	}
	p := &Publisher{conn: conn, stream: stream, topic: topic, size: size, change: make(chan struct{}), ended: make(chan struct{})}
	go p.read()
	return p, nil
}

// Publish sends n messages in one frame and does not wait for their answers.
func (p *Publisher) Publish(n int) error {
	topics := make([]string, n)
	for i := range topics {
		topics[i] = p.topic
	}
	return p.PublishTo(topics, time.Now())
}

// PublishTo sends a message to each of the topics in one frame, stamped with a time: in an open
// loop the one at which it was to be sent.
func (p *Publisher) PublishTo(topics []string, at time.Time) error {
	items := make([]*pushmeshv1.PublishStreamRequest_Item, len(topics))
	for i, topic := range topics {
		payload := make([]byte, p.size)
		Stamp(payload, at)
		p.ref++
		items[i] = &pushmeshv1.PublishStreamRequest_Item{Ref: p.ref, Message: &pushmeshv1.PublishRequest{Topic: topic, Payload: payload}}
	}
	if err := p.stream.Send(&pushmeshv1.PublishStreamRequest{Batch: items}); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		return errors.Join(p.fault, fmt.Errorf("publisher: %w", err))
	}
	return nil
}

// Wait waits until every message sent was answered; the first refusal is its error.
func (p *Publisher) Wait(ctx context.Context) error {
	for {
		p.mu.Lock()
		done, fault, change := p.answered == p.ref, p.fault, p.change
		p.mu.Unlock()
		if done || fault != nil {
			return fault
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends the stream and the connection.
func (p *Publisher) Close() error {
	err := p.stream.CloseSend()
	err = errors.Join(err, p.conn.Close())
	<-p.ended
	return err
}

func (p *Publisher) read() {
	defer close(p.ended)
	for {
		answer, err := p.stream.Recv()
		p.mu.Lock()
		if err != nil && p.fault == nil {
			p.fault = fmt.Errorf("publisher: %w", err)
		}
		for _, r := range answer.GetResults() {
			p.answered++
			if r.GetCode() != wirev1.Code_CODE_OK && p.fault == nil {
				p.fault = fmt.Errorf("publisher: refused: %v %s", r.GetCode(), r.GetError())
			}
		}
		close(p.change)
		p.change = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}
