package interest

import (
	"container/heap"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Patience is how long a join waits for routers at most.
const Patience = 500 * time.Millisecond

// Wait is a join on its way to being answered.
type Wait struct {
	Conn   exchange.Conn
	Sub    uint32
	Filter string
	Heads  bool
	Limit  int
}

// Gate holds joins back until every live router has applied the version that announced their
// filter. It is not safe for concurrent use.
type Gate struct {
	order   []*held // by time
	version byVersion
}

type held struct {
	wait    Wait
	version uint64
	until   time.Time
	index   int // in byVersion
	gone    bool
}

// Add holds w until version is applied, or Patience is over.
func (g *Gate) Add(now time.Time, version uint64, w Wait) {
	h := &held{wait: w, version: version, until: now.Add(Patience)}
	g.order = append(g.order, h)
	heap.Push(&g.version, h)
}

// Len is the number of joins held.
func (g *Gate) Len() int { return len(g.version) }

// Applied takes out most of the joins whose version is at most version.
func (g *Gate) Applied(version uint64, most int) []Wait {
	var out []Wait
	for len(g.version) > 0 && g.version[0].version <= version && len(out) < most {
		h := heap.Pop(&g.version).(*held)
		h.gone = true
		out = append(out, h.wait)
	}
	g.trim()
	return out
}

// Late takes out most of the joins whose time is over.
func (g *Gate) Late(now time.Time, most int) []Wait {
	var out []Wait
	for len(g.order) > 0 && !g.order[0].until.After(now) && len(out) < most {
		if h := g.first(); !h.gone {
			heap.Remove(&g.version, h.index)
			out = append(out, h.wait)
		}
	}
	g.trim()
	return out
}

// Next is when Late has something; false where nothing is held.
func (g *Gate) Next() (time.Time, bool) {
	if len(g.order) == 0 {
		return time.Time{}, false
	}
	return g.order[0].until, true
}

// first takes out who came first.
func (g *Gate) first() *held {
	h := g.order[0]
	g.order[0] = nil
	g.order = g.order[1:]
	return h
}

func (g *Gate) trim() {
	for len(g.order) > 0 && g.order[0].gone {
		g.first()
	}
	if len(g.order) == 0 {
		g.order = nil
	}
}

// byVersion is a heap, the lowest version first.
type byVersion []*held

func (b byVersion) Len() int           { return len(b) }
func (b byVersion) Less(i, j int) bool { return b[i].version < b[j].version }
func (b byVersion) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].index, b[j].index = i, j
}

func (b *byVersion) Push(x any) {
	h := x.(*held)
	h.index = len(*b)
	*b = append(*b, h)
}

func (b *byVersion) Pop() any {
	last := len(*b) - 1
	h := (*b)[last]
	(*b)[last] = nil
	*b = (*b)[:last]
	return h
}
