package claims

import (
	"context"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// maxQueued states wait for the caller of a Watch; then it ends.
const maxQueued = 1024

// stream is one Watch: the client of the stores fills its queue, the call's goroutine sends.
type stream struct {
	wake chan struct{} // 1

	mu    sync.Mutex
	queue []*wirev1.ClaimState
	slow  bool
}

func (w *stream) push(st *wirev1.ClaimState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) >= maxQueued {
		w.slow, w.queue = true, nil
	}
	if !w.slow {
		w.queue = append(w.queue, st)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *stream) take() ([]*wirev1.ClaimState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.slow {
		return nil, code.Retry(wirev1.Code_CODE_SLOW_CONSUMER, time.Second, "the caller reads too slowly, and too many changes wait for it: watch again")
	}
	queue := w.queue
	w.queue = nil
	return queue, nil
}

// tell is what the client of the stores calls.
func (s *Service) tell(conn uint64, _ string, st *wirev1.ClaimState) {
	s.mu.Lock()
	w := s.watches[conn]
	s.mu.Unlock()
	if w != nil {
		w.push(st)
	}
}

// open makes a stream and its connection's number.
func (s *Service) open() (uint64, *stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watches) >= s.cfg.MaxWatches {
		return 0, nil, code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "this router is at its limit of watches of claims: use another one")
	}
	conn, w := s.conns.Add(1), &stream{wake: make(chan struct{}, 1)}
	s.watches[conn] = w
	return conn, w, nil
}

func (s *Service) close(conn uint64) {
	s.client.End(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, conn)
}

// Watch implements ClaimService.
func (s *Service) Watch(req *pushmeshv1.WatchRequest, to pushmeshv1.ClaimService_WatchServer) (err error) {
	defer func() { s.metrics.ended(err) }()
	m := &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_WATCH, Resource: req.GetResource(), Owner: req.GetOwner()}
	if err := checkResourceAndOwner(m); err != nil {
		return err
	}
	if s.drained.Load() {
		return errDraining()
	}
	caller, err := s.enter(to.Context())
	if err != nil {
		return err
	}
	defer s.leave(caller)
	conn, w, err := s.open()
	if err != nil {
		return err
	}
	defer s.close(conn)
	m.Conn = conn
	return s.watch(to, m, w)
}

func (s *Service) watch(to pushmeshv1.ClaimService_WatchServer, m *meshv1.ClaimOp, w *stream) error {
	answer := make(chan error, 1)
	began := time.Now()
	s.client.Do(to.Context(), m, func(r *meshv1.ClaimResult) {
		if r.GetCode() != wirev1.Code_CODE_OK {
			answer <- code.Retry(r.GetCode(), time.Duration(r.GetRetryAfterMs())*time.Millisecond, r.GetError())
			return
		}
		w.push(r.GetState()) // before whatever is told
		answer <- nil
	})
	err := <-answer
	s.metrics.done(meshv1.ClaimOp_KIND_WATCH, err, time.Since(began))
	if err != nil {
		return err
	}
	for {
		if err := w.next(to.Context(), s.draining); err != nil {
			return err
		}
		states, err := w.take()
		if err != nil {
			return err
		}
		for _, st := range states {
			if err := to.Send(&pushmeshv1.WatchResponse{State: st}); err != nil {
				return err
			}
		}
	}
}

// next waits until there is something to send.
func (w *stream) next(ctx context.Context, draining <-chan struct{}) error {
	select {
	case <-w.wake:
		return nil
	case <-draining:
		return errDraining()
	case <-ctx.Done():
		return code.From(ctx.Err())
	}
}
