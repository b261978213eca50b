package upstream

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/incarnation"
)

const (
	// silence is how long another edge, which tells of itself every second, may be unheard and is
	// named to clients all the same.
	silence = 3 * time.Second
	// mostOthers are known: ids come from outside.
	mostOthers = 10_000
	// mostNamed of them are named to a client.
	mostNamed = 8
	// chosenFor is how long the same ones are.
	chosenFor = 500 * time.Millisecond
)

// others are the edges beside this one, by what they say of themselves: where clients may go that
// are sent away. Whoever asks does not wait.
type others struct {
	self string
	// began is this edge's incarnation.
	began uint64
	log   *slog.Logger
	// set are addresses that the operator named; nil: those that edges say are named.
	set   []string
	named atomic.Pointer[[]string]

	mu     sync.Mutex
	known  map[string]other   // by id
	past   incarnation.Memory // edges that are over, and others that have this one's id
	twin   bool               // another edge has this one's id
	chosen time.Time          // when named was
}

type other struct {
	incarnation uint64
	address     string
	at          time.Time
	goes        bool // it drains, or takes nobody
}

func newOthers(self string, began uint64, set []string, log *slog.Logger) *others {
	o := &others{self: self, began: began, log: log, set: set, known: map[string]other{}}
	o.named.Store(&set)
	return o
}

// hear takes what an edge says of itself.
func (o *others) hear(data []byte, now time.Time) {
	d := &meshv1.EdgeDigest{}
	if proto.Unmarshal(data, d) != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.take(d, now) || now.Sub(o.chosen) >= chosenFor {
		o.choose(now)
	}
}

// take reports whether anything is new.
func (o *others) take(d *meshv1.EdgeDigest, now time.Time) bool {
	id := d.GetEdgeId()
	if id == o.self {
		o.hearSelf(d, now)
		return false
	}
	before, known := o.known[id]
	another := !known || d.GetEdgeIncarnation() != before.incarnation
	after := other{d.GetEdgeIncarnation(), d.GetPublicAddress(), now, d.GetDraining() || d.GetLeaving() || d.GetNotReady()}
	switch {
	case bus.CheckID(id) != nil:
	case another && o.past.Late(now, id, d.GetEdgeIncarnation(), !known || now.Sub(before.at) > silence, silence):
		// said late by a process that was there before
	case d.GetPublicAddress() == "":
		delete(o.known, id)
	case known || len(o.known) < mostOthers:
		if known && another {
			o.past.Replaced(now, id, before.incarnation)
		}
		// One that leaves is kept for as long as silence, so that an address that the operator
		// named is not named either.
		o.known[id] = after
		return before.address != after.address || before.goes != after.goes
	}
	return false
}

// hearSelf notes an edge that has this one's id and is another.
func (o *others) hearSelf(d *meshv1.EdgeDigest, now time.Time) {
	if d.GetEdgeIncarnation() != o.began && !o.past.Late(now, o.self, d.GetEdgeIncarnation(), false, silence) {
		o.past.Replaced(now, o.self, d.GetEdgeIncarnation())
	}
	if twin := slices.Contains(o.past.Twins(now), o.self); twin != o.twin {
		o.twin = twin
		if twin {
			o.log.Error("another edge process has this edge's id: give one of them another --id", "id", o.self)
		} else {
			o.log.Info("no other edge process has this edge's id any more", "id", o.self)
		}
	}
}

// checkID is nil unless another edge has this one's id.
func (o *others) checkID() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.twin {
		return fmt.Errorf("another edge process has the id %s: give one of them another --id", o.self)
	}
	return nil
}

// choose names some of those that take connections.
func (o *others) choose(now time.Time) {
	o.chosen = now
	var here []string
	gone := map[string]bool{}
	for id, e := range o.known {
		switch {
		case now.Sub(e.at) > silence:
			o.past.Quiet(now, id, e.incarnation)
			delete(o.known, id)
		case e.goes:
			gone[e.address] = true
		default:
			here = append(here, e.address)
		}
	}
	if len(o.set) > 0 {
		here = slices.Clone(o.set)
	}
	here = slices.DeleteFunc(here, func(addr string) bool { return gone[addr] })
	rand.Shuffle(len(here), func(i, j int) { here[i], here[j] = here[j], here[i] })
	here = here[:min(len(here), mostNamed)]
	o.named.Store(&here)
}

// CheckID is nil unless another edge has this one's id. Without NATS it is what was known before.
func (m *Mesh) CheckID() error { return m.others.checkID() }

// Others is where clients may go that are sent away; none: it is not known. It does not wait, and
// what it returns is not to be changed.
func (m *Mesh) Others() []string { return *m.others.named.Load() }
