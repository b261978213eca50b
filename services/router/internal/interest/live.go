package interest

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// live says which slots count, and whose they are. Looking up takes no lock here: a lookup that a
// replacement ran beside is done again.
type live struct {
	peers atomic.Pointer[[]atomic.Pointer[Peer]] // by slot; nil: not live
	turn  atomic.Uint64                          // odd while one view replaces another
}

// room makes the slot one that can be live.
func (l *live) room(s slot) {
	var old []atomic.Pointer[Peer]
	if p := l.peers.Load(); p != nil {
		old = *p
	}
	if int(s) < len(old) {
		return
	}
	peers := make([]atomic.Pointer[Peer], max(16, 2*int(s)))
	for i := range old {
		peers[i].Store(old[i].Load())
	}
	l.turn.Add(1)
	l.peers.Store(&peers)
	l.turn.Add(1)
}

// replace has one slot count instead of another, for every lookup at once. 0 is none.
func (l *live) replace(old, by slot, peer *Peer) {
	peers := *l.peers.Load()
	l.turn.Add(1)
	if old != 0 {
		peers[old].Store(nil)
	}
	if by != 0 {
		peers[by].Store(peer)
	}
	l.turn.Add(1)
}

// Lookup appends the edges that want topic, each once, and no others but in one case: where very
// many filters nearly match, all edges with wildcards are taken, for whom it costs less to ignore a
// message than for this router to be sure. It allocates nothing where dst has room, and may be
// called beside everything else. The topic must be valid.
func (t *Table) Lookup(dst []*Peer, topic string) []*Peer {
	g := gathering{dst: dst}
	for {
		began := t.live.turn.Load()
		if began%2 == 0 {
			if p := t.live.peers.Load(); p != nil {
				g.live = *p
			}
			t.gather(&g, topic)
			if t.live.turn.Load() == began {
				break
			}
			g.again(len(dst))
		} else {
			runtime.Gosched()
		}
	}
	g.end()
	return g.dst
}

func (t *Table) gather(g *gathering, topic string) {
	k := keyOf(topic)
	p := t.topics.of(k)
	p.mu.RLock()
	if p.n > 0 {
		if at, ok := p.find(k); ok {
			g.take(p.sets, p.entries[at].members)
		}
	}
	p.mu.RUnlock()
	if t.wild.held.Load() > 0 {
		t.wild.match(g, topic)
	}
}

// few is up to how many slots are compared with each other; for more there is a bitmap.
const few = 16

// gathering is the result of a lookup as it comes together. A slot is looked at while a lock of
// where it stood is held, so that it is not another's yet.
type gathering struct {
	dst   []*Peer
	live  []atomic.Pointer[Peer]
	slots [few]slot
	n     int
	more  *bitmap
}

type bitmap [(maxSlots + 1) / 64]uint64

var bitmaps = sync.Pool{New: func() any { return new(bitmap) }}

func (g *gathering) take(in *sets, set members) {
	if set&spilled != 0 {
		for _, s := range in.lists[uint32(set)] {
			g.add(s)
		}
		return
	}
	for ; set != 0; set >>= 16 {
		if s := slot(set); s != 0 {
			g.add(s)
		}
	}
}

func (g *gathering) add(s slot) {
	if int(s) >= len(g.live) {
		return // newer than this lookup: it is done again if that matters
	}
	peer := g.live[s].Load()
	if peer == nil || !g.first(s) {
		return
	}
	g.dst = append(g.dst, peer)
}

// first reports whether s is there for the first time.
func (g *gathering) first(s slot) bool {
	if g.more == nil {
		if slices.Contains(g.slots[:g.n], s) {
			return false
		}
		if g.n < few {
			g.slots[g.n] = s
			g.n++
			return true
		}
		g.more = bitmaps.Get().(*bitmap)
		for _, s := range g.slots {
			g.more[s/64] |= 1 << (s % 64)
		}
	}
	bit := uint64(1) << (s % 64)
	was := g.more[s/64]
	g.more[s/64] = was | bit
	return was&bit == 0
}

func (g *gathering) again(from int) {
	g.end()
	g.dst, g.n = g.dst[:from], 0
}

func (g *gathering) end() {
	if g.more != nil {
		clear(g.more[:])
		bitmaps.Put(g.more)
		g.more = nil
	}
}
