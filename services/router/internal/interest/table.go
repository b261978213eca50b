// Package interest is the router's table of which edges want which topics, kept from what edges
// announce.
//
// It has no I/O: what edges say and the time are inputs, what has to be answered is an output
// (Take). The caller serialises everything but Lookup, which may run beside anything and waits for
// nothing that takes long. The other readers may run beside each other.
package interest

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/incarnation"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// Times of rule 1.
const (
	// SilentAfter is how long an edge may say nothing before it is dropped.
	SilentAfter = 3 * time.Second
	// SuspectFor is how long the router keeps silent edges when a third or more went silent
	// together, while its own connection works. After that they are gone, and it was not the
	// router.
	SuspectFor = 10 * time.Second
	// Hearing is how long a new router listens for digests before it can be ready: a digest period
	// and some.
	Hearing = 1200 * time.Millisecond
	// askAgain is when a snapshot is asked for again if nothing of it came.
	askAgain = 500 * time.Millisecond
	// digestLagAllowed is for how long a digest may name a version that no announcement had yet:
	// announcements come on another subject.
	digestLagAllowed = 200 * time.Millisecond
)

// Bounds of what is kept of one edge while a snapshot is on its way; beyond, another snapshot is
// asked for.
const (
	maxPending        = 1 << 16
	maxPendingFilters = 1 << 20
	maxSnapshotParts  = 1 << 14
)

// maxExpected is how many topics memory is prepared for at most; it is never more than four times
// what there is.
const maxExpected = 1 << 30

// maxAsked is how many edges are asked for snapshots at a time: what they send goes through one
// connection, which is cut where it can't be read as fast.
const maxAsked = 4

// Edge names one life of an edge process.
type Edge struct {
	ID          string
	Incarnation uint64
}

// Peer is one life of an edge as lookups find it: the same pointer from its Joined to its Left, and
// no other life's ever.
type Peer struct {
	Edge
	// Outlet is the caller's own, such as a queue. It is set at Joined, before anyone can find the
	// peer, and not changed after that.
	Outlet any
}

// Kind of an Event.
type Kind uint8

const (
	// Joined says that an edge is known from now on.
	Joined Kind = iota
	// Answer says that an edge has to hear Applied, and Want.
	Answer
	// Left says that an edge is gone.
	Left
)

// Event is something to be done for an edge.
type Event struct {
	Kind    Kind
	Peer    *Peer
	Applied uint64
	// Want asks the edge for a snapshot.
	Want bool
	// Lost: the edge that left said no goodbye. It had so many connections.
	Lost        bool
	Connections uint32
}

// Table is the interest of every edge. The zero Table is empty and ready to use.
type Table struct {
	topics topics
	wild   wild
	live   live
	views  []*view // by slot; nil: free
	swept  int     // part to be swept next
	dead   []*view

	batch    batch
	expected uint64 // sum of the edges' counts

	edges           map[string]*edge
	formerProcesses incarnation.Memory // processes of edges that are over
	turns           turns
	events          []Event

	connectedAt  time.Time // zero: not connected
	firstAt      time.Time
	suspectSince time.Time
	ready        bool
}

// edge is what the table knows of one life of an edge.
type edge struct {
	*Peer
	heard  time.Time
	active *view // nil: nothing known yet
	// pending holds announcements that can't be applied yet, and, while a snapshot is wanted, those
	// that it may not contain.
	pending        map[uint64]*meshv1.EdgeAnnounce
	pendingFilters int
	highest        uint64 // version among them, or of one that was
	trimmed        uint64 // versions up to here were forgotten

	want          bool
	asked         time.Time // or when the last part came; zero: it waits for its turn
	waits         bool      // it stands in the line
	staging       *staging
	digestVersion uint64 // version that a digest named and the announcements have not reached
	digestAt      time.Time

	count       uint64 // of topics and filters, as the last digest said
	connections uint32
	draining    bool
}

// Take appends the events since the last Take and forgets them.
func (t *Table) Take(dst []Event) []Event {
	dst = append(dst, t.events...)
	t.events = t.events[:0]
	return dst
}

// Edges appends every edge known.
func (t *Table) Edges(dst []Edge) []Edge {
	for _, e := range t.edges {
		dst = append(dst, e.Edge)
	}
	return dst
}

// Stats of the table.
type Stats struct {
	Edges, Entries int
	Connections    uint64
	// Suspecting itself; Missing is how many edges' tables the router doesn't have.
	Suspecting bool
	Missing    int
}

// Stats counts.
func (t *Table) Stats() Stats {
	s := Stats{Edges: len(t.edges), Suspecting: !t.suspectSince.IsZero()}
	for _, e := range t.edges {
		s.Connections += uint64(e.connections)
		if e.active == nil {
			s.Missing++
			continue
		}
		s.Entries += int(e.active.count)
	}
	return s
}

func (t *Table) answer(e *edge) {
	ev := Event{Kind: Answer, Peer: e.Peer}
	if e.active != nil {
		ev.Applied = e.active.version
	}
	t.events = append(t.events, ev)
}
