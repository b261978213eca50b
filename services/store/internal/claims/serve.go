package claims

import (
	"errors"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// maxName bounds a node's name.
const maxName = 255

// Serve is one node's stream, until it ends.
func (l *Lane) Serve(to grpc.BidiStreamingServer[meshv1.StoreServiceClaimsRequest, meshv1.StoreServiceClaimsResponse]) error {
	first, err := to.Recv()
	if err != nil {
		return err
	}
	s := newStream(first.GetNode(), first.GetIncarnation(), l.cfg.Limits)
	if len(s.node) > maxName || !clean(s.node) || !strings.HasPrefix(s.node, "edge:") && !strings.HasPrefix(s.node, "router:") {
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "the first message of a claims stream must name the node")
	}
	if err := l.join(s); err != nil {
		return err
	}
	defer l.leave(s)
	received := make(chan error, 1)
	// ends with the stream, which ends when this function returns
	go func() { received <- l.receive(to, s, first) }()
	return s.send(to, received)
}

func (l *Lane) receive(from grpc.BidiStreamingServer[meshv1.StoreServiceClaimsRequest, meshv1.StoreServiceClaimsResponse], s *stream, req *meshv1.StoreServiceClaimsRequest) error {
	for {
		if len(req.GetOps()) > maxOps {
			return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "a message has more than 1,000 operations")
		}
		l.submit(s, req.GetOps())
		for s.full() {
			select {
			case <-s.room:
			case <-from.Context().Done():
				return from.Context().Err()
			}
		}
		var err error
		if req, err = from.Recv(); err != nil {
			return err
		}
	}
}

// send sends until the stream ends, or its node has ended its side and all is answered.
func (s *stream) send(to grpc.BidiStreamingServer[meshv1.StoreServiceClaimsRequest, meshv1.StoreServiceClaimsResponse], received <-chan error) error {
	for {
		m, err := s.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case m != nil:
			if err := to.Send(m); err != nil {
				return err
			}
			continue
		}
		select {
		case <-s.wake:
		case err := <-received:
			if !errors.Is(err, io.EOF) {
				return err
			}
			s.end(io.EOF)
			received = nil
		case <-to.Context().Done():
			return to.Context().Err()
		}
	}
}

// submit takes operations; each gets exactly one answer, unless the stream ends before.
func (l *Lane) submit(s *stream, ops []*meshv1.ClaimOp) {
	var refused []word
	now, good := time.Now(), make([]*op, 0, len(ops))
	for _, o := range ops {
		switch {
		case !sound(o):
			refused = append(refused, l.refusal(o, errUnsound))
		case l.draining.Load():
			refused = append(refused, l.refusal(o, errStops))
		case !s.expect():
			refused = append(refused, l.refusal(o, errBusy))
		default:
			good = append(good, &op{ClaimOp: o, from: s, shard: topic.Shard(o.GetResource()), at: now})
		}
	}
	if len(refused) > 0 {
		s.put(refused, 0)
	}
	if len(good) == 0 {
		return
	}
	if !l.enqueue(s, good) {
		l.refuse(good, errAnew)
	}
}

// enqueue has the lane do operations; false: the stream is its node's no longer.
func (l *Lane) enqueue(s *stream, ops []*op) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes[s.node] != s {
		return false
	}
	s.queue = append(s.queue, ops...)
	if !s.waits {
		s.waits = true
		l.turns = append(l.turns, s)
	}
	signal(l.kick)
	return true
}

var (
	errUnsound = code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "names must be UTF-8 without NUL")
	errBusy    = code.Retry(wirev1.Code_CODE_OVERLOADED, 100*time.Millisecond, "too many operations of this node wait for the store")
	errStops   = code.Retry(wirev1.Code_CODE_UNAVAILABLE, 100*time.Millisecond, "the store is stopping")
	errNotMine = code.New(wirev1.Code_CODE_CONFLICT, "another store owns the shard")
	errAway    = code.Retry(wirev1.Code_CODE_UNAVAILABLE, 250*time.Millisecond, "claims can't be changed now")
	errLoading = code.Retry(wirev1.Code_CODE_UNAVAILABLE, 100*time.Millisecond, "the store has just taken the shard: its claims are being loaded")
)

func (l *Lane) refusal(o *meshv1.ClaimOp, why *code.Error) word {
	l.metrics.refused(why.Code, 1)
	return word{result: &meshv1.ClaimResult{Ref: o.GetRef(), Code: why.Code, Error: why.Message, RetryAfterMs: uint32(why.RetryAfter.Milliseconds())}}
}

// sound reports whether any database can keep the names of an operation.
func sound(o *meshv1.ClaimOp) bool {
	return clean(o.GetResource()) && clean(o.GetOwner()) && clean(o.GetSuccessor())
}

func clean(name string) bool { return utf8.ValidString(name) && strings.IndexByte(name, 0) < 0 }
