package publish

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// numbered is a stream of so many requests with a payload each, then its end.
type numbered struct {
	grpc.ServerStream
	ctx     context.Context
	n, size int
	sent    int
}

func (s *numbered) Context() context.Context { return s.ctx }
func (s *numbered) RecvMsg(into any) error {
	if s.sent == s.n {
		return io.EOF
	}
	s.sent++
	return come(into, &pushmeshv1.PublishStreamRequest{Ref: uint64(s.sent), Batch: []*pushmeshv1.PublishStreamRequest_Item{
		{Message: &pushmeshv1.PublishRequest{Payload: make([]byte, s.size)}},
	}})
}

func TestAnInboxKeepsTheOrderAndHoldsSoMuch(t *testing.T) {
	for name, c := range map[string]struct{ n, size, most int }{
		"requests":         {10 * maxWaiting, 1, maxWaiting},
		"bytes":            {100, maxWaitingBytes / 11, 10},
		"large ones alone": {10, 2 * maxWaitingBytes, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, stream := newInbox(), &numbered{ctx: t.Context(), n: c.n, size: c.size}
			go b.receive(stream)
			synctest.Wait()
			if got := stream.sent - 1; got != c.most { // one more waits for room
				t.Errorf("%s: %d are held, want %d", name, got, c.most)
			}
			came := time.Now()
			<-time.After(time.Second)
			for ref := 1; ref <= c.n; ref++ {
				a, err := b.take()
				var req pushmeshv1.PublishStreamRequest
				if err == nil {
					err = a.frame.Decode(&req)
				}
				if err != nil || req.GetRef() != uint64(ref) {
					t.Fatalf("%s: %v, %v, want %d", name, req.GetRef(), err, ref)
				}
				a.frame.Free()
				if ref <= c.most && !a.at.Equal(came) {
					t.Errorf("%s: %d came at %v", name, ref, a.at)
				}
			}
			for range 2 {
				if _, err := b.take(); !errors.Is(err, io.EOF) {
					t.Errorf("%s: %v at the end", name, err)
				}
			}
		})
	}
}

// Who waits for the next request of a stream that ends hears of it.
func TestAnEmptyInboxEndsWithItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, taken := newInbox(), make(chan error, 1)
		go func() {
			_, err := b.take()
			taken <- err
		}()
		synctest.Wait()
		go b.receive(&numbered{ctx: t.Context()})
		if err := <-taken; !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
}

func TestAFullInboxEndsWithItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := newInbox()
		go b.receive(&numbered{ctx: ctx, n: 10 * maxWaiting, size: 1})
		synctest.Wait()
		cancel()
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if !errors.Is(b.end, context.Canceled) {
			t.Errorf("%v", b.end)
		}
	})
}
