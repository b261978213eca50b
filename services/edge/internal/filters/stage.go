package filters

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/cores"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// turn is how long a worker stays with one topic before the next one has its turn, but for the
// message that it is at.
const turn = 250 * time.Microsecond

// Bounds of a Stage, unless others are set.
const (
	stageMessages = 16_384
	stageBytes    = 32 << 20
	// messageBytes is what a message takes besides its own bytes.
	messageBytes = 256
)

// StageConfig bounds a Stage; zero values: 16,384 messages and 32 MiB, and half as many workers as
// there are cores.
type StageConfig struct {
	Messages, Bytes, Workers int
}

// Stage judges messages off the goroutines of those who have them. What is put in for a topic is
// judged, and done, in that order; topics take turns. It is safe for concurrent use.
//
// It is bounded, by messages and bytes: a topic may have as much waiting as there is room left. So
// one topic has half of it at most, two have a third each, and another finds room whoever floods.
type Stage struct {
	registry *Registry
	cfg      StageConfig
	stats    StageStats

	mu     sync.Mutex
	work   sync.Cond
	lanes  map[string]*lane
	ready  []*lane // with jobs, in the order of their turns
	closed bool
}

// StageStats may be read at any time.
type StageStats struct {
	// Messages that wait for their verdict, or for who put them in to take them back, and Bytes of
	// them.
	Messages, Bytes atomic.Int64
	// Full are messages that were refused for their number, NoMemory for their bytes.
	Full, NoMemory atomic.Uint64
}

// lane is one topic. One worker at a time has it.
type lane struct {
	name            string
	jobs            []job
	messages, bytes int // until they are released
	busy            bool
}

type job struct {
	messages []*exchange.Message
	judged   int
	done     func()
}

// NewStage makes a stage that nobody serves yet.
func NewStage(r *Registry, cfg StageConfig) *Stage {
	if cfg.Messages == 0 {
		cfg.Messages = stageMessages
	}
	if cfg.Bytes == 0 {
		cfg.Bytes = stageBytes
	}
	if cfg.Workers == 0 {
		cfg.Workers = max(1, cores.Usable()/2) // who must not wait has the other cores
	}
	s := &Stage{registry: r, cfg: cfg, lanes: map[string]*lane{}}
	s.work.L = &s.mu
	return s
}

// Workers is how many goroutines should call Serve.
func (s *Stage) Workers() int { return s.cfg.Workers }

// Stats of the stage.
func (s *Stage) Stats() *StageStats { return &s.stats }

// Busy reports whether something was put in for a topic that is not released yet: what comes after
// it has to be put in too.
func (s *Stage) Busy(topic string) bool {
	if s.stats.Messages.Load() == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lanes[topic] != nil
}

// Put has messages of one topic judged. A worker calls done after that, which must not block;
// whoever has taken them over then releases them. Where there is no room, it returns why,
// QUEUE_FULL or MEMORY_BUDGET, and done is not called.
func (s *Stage) Put(topic string, messages []*exchange.Message, done func()) wirev1.Code {
	n, size := len(messages), sizeOf(messages)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[topic]
	if l == nil {
		l = &lane{name: topic}
	}
	switch {
	case l.messages+n > s.cfg.Messages-int(s.stats.Messages.Load()):
		s.stats.Full.Add(uint64(n))
		return wirev1.Code_CODE_QUEUE_FULL
	case l.bytes+size > s.cfg.Bytes-int(s.stats.Bytes.Load()):
		s.stats.NoMemory.Add(uint64(n))
		return wirev1.Code_CODE_MEMORY_BUDGET
	}
	s.lanes[topic] = l
	s.count(l, n, size)
	l.jobs = append(l.jobs, job{messages: messages, done: done})
	if !l.busy {
		l.busy = true
		s.ready = append(s.ready, l)
		s.work.Signal()
	}
	return wirev1.Code_CODE_OK
}

// Release makes room again, once for each Put that was done.
func (s *Stage) Release(topic string, messages []*exchange.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[topic]
	s.count(l, -len(messages), -sizeOf(messages))
	if l.messages == 0 {
		delete(s.lanes, topic)
	}
}

func (s *Stage) count(l *lane, messages, bytes int) {
	l.messages += messages
	l.bytes += bytes
	s.stats.Messages.Add(int64(messages))
	s.stats.Bytes.Add(int64(bytes))
}

func sizeOf(messages []*exchange.Message) (size int) {
	for _, m := range messages {
		size += len(m.Frame) + len(m.Mesh) + messageBytes
	}
	return size
}

// Serve works until ctx ends.
func (s *Stage) Serve(ctx context.Context) {
	defer context.AfterFunc(ctx, s.close)()
	for {
		l := s.next()
		if l == nil {
			return
		}
		s.serve(l)
		// who waits for a core, a loop say, does not wait for a whole slice of the scheduler's
		runtime.Gosched()
	}
}

func (s *Stage) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.work.Broadcast()
}

// next waits for the topic whose turn it is; nil: the stage is closed.
func (s *Stage) next() *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.ready) == 0 && !s.closed {
		s.work.Wait()
	}
	if s.closed {
		return nil
	}
	l := s.ready[0]
	s.ready[0] = nil
	s.ready = s.ready[1:]
	return l
}

// serve gives a topic its turn.
func (s *Stage) serve(l *lane) {
	for begun := time.Now(); ; {
		s.registry.Judge(s.first(l))
		if done := s.judged(l); done != nil {
			done() // before another worker can have the topic
		}
		if s.leave(l, time.Since(begun) >= turn) {
			return
		}
	}
}

// first is the one message of a topic that is to be judged now.
func (s *Stage) first(l *lane) []*exchange.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := &l.jobs[0]
	return j.messages[j.judged : j.judged+1]
}

// judged counts first, and returns what to call where it was the last of a job.
func (s *Stage) judged(l *lane) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := &l.jobs[0]
	if j.judged++; j.judged < len(j.messages) {
		return nil
	}
	done = j.done
	*j = job{}
	l.jobs = l.jobs[1:]
	return done
}

// leave ends a topic's turn, unless it is not over and there is more to do.
func (s *Stage) leave(l *lane, over bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(l.jobs) == 0:
		l.jobs, l.busy = nil, false
		return true
	case over:
		s.ready = append(s.ready, l)
		s.work.Signal()
		return true
	}
	return false
}
