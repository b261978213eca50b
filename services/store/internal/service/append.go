package service

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// Bounds of one append stream.
const (
	// maxUnanswered items: beyond it the stream is not read, which holds the sender back.
	maxUnanswered = 32_768
	// maxResults of one response.
	maxResults = 2048
)

// Append takes items in the order sent and answers in batches.
func (s *Service) Append(stream grpc.BidiStreamingServer[meshv1.AppendRequest, meshv1.AppendResponse]) error {
	a := &answers{changed: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	received := make(chan error, 1)
	// ends with the stream, which ends when this function returns
	go func() { received <- s.receive(stream, a) }()
	return a.send(stream, received, s.ending)
}

func (s *Service) receive(stream grpc.BidiStreamingServer[meshv1.AppendRequest, meshv1.AppendResponse], a *answers) error {
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := a.expect(stream.Context(), len(req.GetItems())); err != nil {
			return err
		}
		s.cfg.Log.Append(req.GetItems(), a)
	}
}

// answers of one stream: a shardlog.Sink that never blocks, since what is unanswered is bounded.
type answers struct {
	changed chan struct{} // ready is not empty
	room    chan struct{} // unanswered fell

	mu         sync.Mutex
	ready      []*meshv1.AppendResult
	unanswered int
}

// expect waits for room for n more items.
func (a *answers) expect(ctx context.Context, n int) error {
	for {
		a.mu.Lock()
		if a.unanswered == 0 || a.unanswered+n <= maxUnanswered {
			a.unanswered += n
			a.mu.Unlock()
			return nil
		}
		a.mu.Unlock()
		select {
		case <-a.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Results takes the results of items.
func (a *answers) Results(rs []*meshv1.AppendResult) {
	a.mu.Lock()
	a.ready = append(a.ready, rs...)
	a.mu.Unlock()
	signal(a.changed)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is signalled already
	}
}

// next is what can be sent now, and how many items are unanswered without it.
func (a *answers) next() (rs []*meshv1.AppendResult, left int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.ready), maxResults)
	rs, a.ready = a.ready[:n:n], a.ready[n:]
	a.unanswered -= n
	return rs, a.unanswered
}

// send sends results until the caller has ended its side, or the store stops, and all is answered.
func (a *answers) send(stream grpc.BidiStreamingServer[meshv1.AppendRequest, meshv1.AppendResponse], received <-chan error, ending <-chan struct{}) error {
	over := false
	for {
		rs, left := a.next()
		if len(rs) > 0 {
			signal(a.room)
			if err := stream.Send(&meshv1.AppendResponse{Results: rs}); err != nil {
				return err
			}
			continue
		}
		if over && left == 0 {
			return nil
		}
		select {
		case <-a.changed:
		case err := <-received:
			if err != nil {
				return err
			}
			over, received = true, nil
		case <-ending:
			over, ending = true, nil
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
