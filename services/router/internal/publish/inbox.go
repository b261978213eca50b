package publish

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/codec"
)

const (
	// maxWaiting requests of a stream, or about so many bytes, are taken out of gRPC's buffer
	// before it is their turn; one always is.
	maxWaiting      = 4096
	maxWaitingBytes = 256 << 10
)

// arrival is a request, and when it arrived.
type arrival struct {
	frame  codec.Frame
	at     time.Time
	weight int // bytes
}

// inbox queues what a stream's client has sent until it is processed. gRPC would queue it as well,
// but would not tell for how long. One goroutine puts, another one takes.
type inbox struct {
	more chan struct{} // 1: there is something to take
	room chan struct{} // 1: something was taken

	mu     sync.Mutex
	queue  []arrival
	head   int
	weight int
	end    error // after what is queued
}

// arrivals gives the requests of a stream in turn; where it matters how long they wait, an inbox
// takes them out of gRPC's hands at once.
func (s *Service) arrivals(stream grpc.ServerStream) func() (arrival, error) {
	if s.publisher.cfg.Waited == nil {
		return func() (a arrival, err error) { return a, stream.RecvMsg(&a.frame) }
	}
	in := newInbox()
	go in.receive(stream) // it ends with the stream, whose handler waits for nobody
	return in.take
}

func newInbox() *inbox {
	return &inbox{more: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// receive queues requests until the stream ends. It does nothing else, so that requests wait here,
// where their age is known, and not in buffers before.
func (b *inbox) receive(stream grpc.ServerStream) {
	for {
		a := arrival{}
		err := stream.RecvMsg(&a.frame)
		if err == nil {
			a.at, a.weight = time.Now(), a.frame.Len()
			err = b.put(stream.Context(), a)
		}
		if err != nil {
			b.mu.Lock()
			b.end = err
			b.mu.Unlock()
			signal(b.more)
			return
		}
	}
}

// put queues a request; it waits while there is no room.
func (b *inbox) put(ctx context.Context, a arrival) error {
	for {
		b.mu.Lock()
		n := len(b.queue) - b.head
		if n == 0 || n < maxWaiting && b.weight+a.weight <= maxWaitingBytes {
			b.queue = append(b.queue, a)
			b.weight += a.weight
			b.mu.Unlock()
			signal(b.more)
			return nil
		}
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-b.room:
		}
	}
}

// take waits for the next request, or the end of the stream.
func (b *inbox) take() (a arrival, err error) {
	for {
		b.mu.Lock()
		if b.head < len(b.queue) {
			a = b.queue[b.head]
			b.queue[b.head] = arrival{}
			b.head++
			b.weight -= a.weight
			if b.head == len(b.queue) {
				b.queue, b.head = b.queue[:0], 0
			} else if b.head >= maxWaiting {
				n := copy(b.queue, b.queue[b.head:])
				clear(b.queue[n:])
				b.queue, b.head = b.queue[:n], 0
			}
			b.mu.Unlock()
			signal(b.room)
			return a, nil
		}
		err = b.end
		b.mu.Unlock()
		if err != nil {
			return a, err
		}
		<-b.more
	}
}
