package claims

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Bounds of a node's stream.
const (
	// maxOps of a message, and of what is sent in one.
	maxOps = 1000
	// DefaultUnanswered operations; further ones are answered OVERLOADED. With twice as many
	// answers to be sent the stream is not read.
	DefaultUnanswered = 100_000
	// DefaultPushBytes that wait to be sent; beyond it the stream ends.
	DefaultPushBytes = 16 << 20
)

var (
	errSlow     = code.Retry(wirev1.Code_CODE_SLOW_CONSUMER, 100*time.Millisecond, "too many changes of claims wait for the node: ask again for all")
	errReplaced = code.New(wirev1.Code_CODE_CONFLICT, "another stream of the node replaced this one")
	errDraining = code.Retry(wirev1.Code_CODE_DRAINING, 100*time.Millisecond, "the store is stopping")
	errAnew     = code.Retry(wirev1.Code_CODE_UNAVAILABLE, 50*time.Millisecond, "the store reads its claims anew: ask again for all")
)

// op is an operation under way.
type op struct {
	*meshv1.ClaimOp
	from  *stream
	shard int
	at    time.Time // it came
}

// stream is what a node sends and receives. Its handler's goroutine sends, another reads; the lane
// puts in what is to be sent and never waits.
type stream struct {
	node        string
	incarnation uint64
	wake        chan struct{} // there is something to send, or it ended
	room        chan struct{} // unsent fell
	most        Limits
	// over: it is its node's no longer. What it asked is done with.
	over atomic.Bool

	// queue is the lane's, guarded by Lane.mu, as is waits: it is in Lane.turns.
	queue []*op
	waits bool

	mu         sync.Mutex
	outs       []*meshv1.StoreServiceClaimsResponse
	unanswered int
	unsent     int // results in outs
	pushBytes  int
	failed     error // ends it at once
	ending     error // ends it once all is answered and sent
}

func newStream(node string, incarnation uint64, most Limits) *stream {
	return &stream{node: node, incarnation: incarnation, most: most, wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is signalled already
	}
}

// expect reports whether one more operation may be taken.
func (s *stream) expect() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unanswered >= s.most.Unanswered {
		return false
	}
	s.unanswered++
	return true
}

// full reports whether the node should be read no further for now.
func (s *stream) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unsent >= 2*s.most.Unanswered
}

// word is an answer or a push.
type word struct {
	result *meshv1.ClaimResult
	push   *meshv1.ClaimPush
}

// put takes what is to be sent, in order; answered of it are answers to operations that were
// expected. False: it is too much, and the stream has failed.
func (s *stream) put(words []word, answered int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer signal(s.wake)
	s.unanswered -= answered
	if s.failed != nil {
		return true
	}
	for _, w := range words {
		if w.result != nil {
			m := s.forResults()
			m.Results = append(m.Results, w.result)
			s.unsent++
			continue
		}
		m := s.forPushes()
		m.Pushes = append(m.Pushes, w.push)
		s.pushBytes += weight(w.push)
	}
	if s.pushBytes > s.most.PushBytes {
		s.outs, s.failed = nil, errSlow
		return false
	}
	return true
}

// forResults is the message that a further answer goes into: none with pushes, which would come
// behind it.
func (s *stream) forResults() *meshv1.StoreServiceClaimsResponse {
	if n := len(s.outs); n > 0 && len(s.outs[n-1].GetPushes()) == 0 && len(s.outs[n-1].GetResults()) < maxOps {
		return s.outs[n-1]
	}
	return s.grow()
}

func (s *stream) forPushes() *meshv1.StoreServiceClaimsResponse {
	if n := len(s.outs); n > 0 && len(s.outs[n-1].GetPushes()) < maxOps {
		return s.outs[n-1]
	}
	return s.grow()
}

func (s *stream) grow() *meshv1.StoreServiceClaimsResponse {
	m := &meshv1.StoreServiceClaimsResponse{}
	s.outs = append(s.outs, m)
	return m
}

// next is what to send now; without it, err is why the stream ends.
func (s *stream) next() (m *meshv1.StoreServiceClaimsResponse, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.failed != nil:
		return nil, s.failed
	case len(s.outs) > 0:
		m, s.outs[0] = s.outs[0], nil
		s.outs = s.outs[1:]
		s.unsent -= len(m.GetResults())
		for _, p := range m.GetPushes() {
			s.pushBytes -= weight(p)
		}
		signal(s.room)
		return m, nil
	case s.ending != nil && s.unanswered == 0:
		return nil, s.ending
	}
	return nil, nil
}

// fail ends it at once.
func (s *stream) fail(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.outs, s.failed = nil, why
	}
	signal(s.wake)
}

// end ends it once all is answered.
func (s *stream) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending == nil {
		s.ending = why
	}
	signal(s.wake)
}

// weight is about how many bytes a push takes.
func weight(p *meshv1.ClaimPush) int {
	return 160 + len(p.GetOwner()) + len(p.GetState().GetResource()) + len(p.GetState().GetHolder())
}
