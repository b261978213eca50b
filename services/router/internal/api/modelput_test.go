package api

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestFewModelsAtATime(t *testing.T) {
	turns := newModelTurns()
	turns.wait = time.Hour
	var leave []func()
	for range modelsAtOnce {
		done, err := turns.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, done)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, modelsWaiting)
	for range modelsWaiting {
		go func() {
			done, err := turns.take(ctx)
			if err == nil {
				defer done()
			}
			ended <- err
		}()
	}
	tick, late := time.NewTicker(time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for turns.waiting.Load() < modelsWaiting {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("they do not wait")
		}
	}
	if _, err := turns.take(ctx); code.Of(err) != wirev1.Code_CODE_OVERLOADED || code.From(err).RetryAfter == 0 {
		t.Errorf("one more than may wait: %v", err)
	}
	leave[0]()
	for range modelsWaiting { // one after the other
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	leave[1]()
}

func TestAModelDoesNotWaitForEver(t *testing.T) {
	turns := newModelTurns()
	turns.wait = time.Millisecond
	for range modelsAtOnce {
		if _, err := turns.take(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := turns.take(t.Context()); code.Of(err) != wirev1.Code_CODE_OVERLOADED || code.From(err).RetryAfter == 0 {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	turns.wait = time.Hour
	if _, err := turns.take(gone); code.Of(err) != wirev1.Code_CODE_CANCELLED {
		t.Error(err)
	}
}

// silent is a client that sends nothing until its call ends.
type silent struct {
	grpc.ServerStream
	ended chan struct{}
}

func (s *silent) Recv() (*pushmeshv1.PutModelRequest, error) {
	<-s.ended
	return nil, context.Canceled
}

func (s *silent) SendAndClose(*pushmeshv1.PutModelResponse) error { return nil }

func TestASlowClientIsNotWaitedFor(t *testing.T) {
	s := &silent{ended: make(chan struct{})}
	defer close(s.ended)
	if _, err := received(s, &pushmeshv1.PutModelRequest{}, time.Millisecond); code.Of(err) != wirev1.Code_CODE_EXPIRED {
		t.Error(err)
	}
}
