package replay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Reconnects wait between these, doubling, with jitter, so that a fleet does not come back as one.
const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 3 * time.Second
)

// subscriber is one user of one room: one TCP connection at a time, to one of the edges, that
// subscribes to the room's topic with ACK and resumes by position after every loss. Its goroutine
// owns everything but conn and heard.
type subscriber struct {
	fleet *fleet
	n     int // of the run, spreads edges and meter shards
	room  int
	topic string

	check   *Checker
	started bool // subscribed once: from then on it resumes by position
	expired bool // its token's time was over, and no edge has taken another one since
	edge    int

	conn  atomic.Pointer[net.Conn]
	heard atomic.Int64 // Unix nanoseconds of the last read; the pinger closes silent connections

	out     []byte
	sent    []int64 // when the first deliveries of this read were published
	unacked uint64  // messages of this connection since the last ACK
	counted uint64  // duplicates that the meter knows
}

// run keeps the subscriber connected until ctx ends or the mesh refuses it for good.
func (s *subscriber) run(ctx context.Context) error {
	wait := backoffFirst
	for {
		before := s.check.Delivered
		err := s.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		var refusal *code.Error
		again := s.fleet.token != nil && !s.expired && code.Of(err) == wirev1.Code_CODE_TOKEN_EXPIRED
		if errors.As(err, &refusal) && !code.Retryable(refusal.Code) && !again {
			return fmt.Errorf("subscriber of %s: %w", s.topic, err)
		}
		s.expired = s.expired || again
		s.fleet.meter.failed(err)
		s.fleet.meter.reconnects.Add(1)
		if s.check.Delivered != before {
			wait = backoffFirst
		}
		if refusal != nil && refusal.RetryAfter > wait {
			wait = refusal.RetryAfter
		}
		s.edge++
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait/2 + rand.N(wait)):
		}
		wait = min(2*wait, backoffMost)
	}
}

// session is one connection: dial, subscribe, read until it breaks.
func (s *subscriber) session(ctx context.Context) error {
	conn, err := s.open(ctx)
	if err != nil {
		return err
	}
	s.expired = false
	defer func() {
		s.conn.Store(nil)
		_ = conn.Close() // the reason for the end is already known
	}()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	s.heard.Store(time.Now().UnixNano())
	s.conn.Store(&conn)
	s.fleet.meter.connected.Add(1)
	defer s.fleet.meter.connected.Add(-1)
	in, err := newInbox(conn)
	if err != nil {
		return err
	}
	s.unacked = 0
	defer s.count()
	for {
		if err := in.read(s.frames); err != nil {
			return err
		}
	}
}

// open dials, says Hello and Subscribe in one write, and waits for both answers. Handshakes of the
// fleet are bounded, so that one that began is not starved past the edge's deadline.
func (s *subscriber) open(ctx context.Context) (net.Conn, error) {
	select {
	case s.fleet.handshakes <- struct{}{}:
		defer func() { <-s.fleet.handshakes }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	addr := s.fleet.edges[(s.n+s.edge)%len(s.fleet.edges)]
	conn, err := s.fleet.dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	if err := s.handshake(ctx, conn); err != nil {
		stop()
		return nil, errors.Join(fmt.Errorf("edge %s: %w", addr, err), conn.Close())
	}
	if !stop() {
		return nil, errors.Join(fmt.Errorf("edge %s: %w", addr, ctx.Err()), conn.Close())
	}
	return conn, nil
}
