package switchboard

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

const (
	wayShards = 64
	// wideMost is how many topics of one shard may be broadcast; more go to each edge.
	wideMost = 1024
	// forgetEvery is how long a topic may be quiet until it is forgotten, in ticks.
	forgetEvery = 100
)

// ways knows which topics are broadcast: sent once for every edge, not once to each that wants
// them. What is put under one way while the topic changes to the other would lose its order, so
// whoever puts holds the shard's lock for reading, and a change holds it alone.
type ways struct {
	from int // edges that must want a topic, at least
	// called at each change, between the last put of one way and the first of the other
	seal  func()
	edges atomic.Int64 // live ones
	seed  maphash.Seed
	shard [wayShards]wayShard
	ticks int
}

type wayShard struct {
	mu   sync.RWMutex
	wide map[string]*wide
	_    [24]byte // a cache line each
}

// wide is a topic that is broadcast.
type wide struct{ used atomic.Bool }

func newWays(from int, seal func()) *ways {
	return &ways{from: from, seal: seal, seed: maphash.MakeSeed()}
}

// put calls put with the topic's way, given how many edges want it.
func (w *ways) put(topic string, wanted int, put func(broadcast bool)) {
	s := &w.shard[maphash.String(w.seed, topic)%wayShards]
	s.mu.RLock()
	at := s.find(topic)
	if broadcast := w.broadcast(at != nil, wanted); broadcast == (at != nil) || broadcast && len(s.wide) >= wideMost {
		if at != nil && !at.used.Load() {
			at.used.Store(true)
		}
		put(at != nil)
		s.mu.RUnlock()
		return
	}
	s.mu.RUnlock()
	w.change(s, topic, wanted, put)
}

func (s *wayShard) find(topic string) *wide {
	if len(s.wide) == 0 {
		return nil
	}
	return s.wide[topic]
}

// broadcast is the decision. Where the topic is broadcast already it stays so with fewer edges:
// subscribers that come and go do not make it change to and fro.
func (w *ways) broadcast(already bool, wanted int) bool {
	if already {
		return wanted >= w.from-1 && wanted*2 >= int(w.edges.Load())
	}
	return wanted >= w.from && wanted*3 >= int(w.edges.Load())*2
}

func (w *ways) change(s *wayShard, topic string, wanted int, put func(broadcast bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.find(topic)
	broadcast := w.broadcast(at != nil, wanted) && (at != nil || len(s.wide) < wideMost)
	if broadcast != (at != nil) {
		w.seal()
		if broadcast {
			if s.wide == nil {
				s.wide = map[string]*wide{}
			}
			s.wide[topic] = &wide{}
		} else {
			delete(s.wide, topic)
		}
	}
	put(broadcast)
}

// tick forgets topics that nothing was published to for a while.
func (w *ways) tick() {
	if w.ticks++; w.ticks%forgetEvery != 0 {
		return
	}
	for i := range w.shard {
		w.shard[i].forget(w.seal)
	}
}

func (s *wayShard) forget(seal func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.wide)
	for topic, at := range s.wide {
		if !at.used.Swap(false) {
			delete(s.wide, topic)
		}
	}
	if len(s.wide) < before {
		seal()
	}
}

// len is how many topics are broadcast.
func (w *ways) len() (n int) {
	for i := range w.shard {
		w.shard[i].mu.RLock()
		n += len(w.shard[i].wide)
		w.shard[i].mu.RUnlock()
	}
	return n
}
