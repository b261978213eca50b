// Package nodes is what a router knows of the mesh's nodes: what they say of themselves over NATS,
// and for a while which of them fell silent without a word.
package nodes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/incarnation"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

const (
	// silentAfter is after how long without a beat a node, which sends one each second or more
	// often, counts as silent.
	silentAfter = 3 * time.Second
	// listedFor is for how long a node that became silent without leaving is listed, with that as
	// its problem: operators look later than silentAfter.
	listedFor = 5 * time.Minute
	// maxNodes bounds the nodes that are kept: ids come from outside.
	maxNodes = 10_000
	// pending is how many messages of one subject may wait.
	pending = 16 << 10
)

// Bus is what a Registry needs of NATS (bus.Bus).
type Bus interface {
	Subscribe(subject string, pending int, handle func(data []byte, respond func([]byte) error)) (unsubscribe func(), err error)
}

type key struct {
	tier pushmeshv1.Tier
	id   string
}

type lastBeat struct {
	node *pushmeshv1.Node // not changed once it is here
	at   time.Time
}

// Registry is a lifecycle.Part, safe for concurrent use. The bus must be started before it.
type Registry struct {
	bus          Bus
	now          func() time.Time
	unsubscribes []func()

	mu              sync.Mutex
	nodes           map[key]lastBeat
	formerProcesses map[pushmeshv1.Tier]*incarnation.Memory
	swept           time.Time // when the silent ones made room last
}

// New makes a registry that knows nobody.
func New(b Bus, now func() time.Time) *Registry {
	return &Registry{bus: b, now: now, nodes: map[key]lastBeat{}, formerProcesses: map[pushmeshv1.Tier]*incarnation.Memory{}}
}

// Start begins to listen.
func (r *Registry) Start(context.Context) error {
	for subject, hear := range map[string]func([]byte){
		bus.EdgeDigest: decoding(r, edge),
		bus.StoreBeat:  decoding(r, store),
		bus.RouterBeat: decoding(r, router),
	} {
		leave, err := r.bus.Subscribe(subject, pending, func(data []byte, _ func([]byte) error) { hear(data) })
		if err != nil {
			r.unsubscribe()
			return err
		}
		r.unsubscribes = append(r.unsubscribes, leave)
	}
	return nil
}

// Stop ends listening.
func (r *Registry) Stop(context.Context) error {
	r.unsubscribe()
	return nil
}

func (r *Registry) unsubscribe() {
	for _, leave := range r.unsubscribes {
		leave()
	}
	r.unsubscribes = nil
}

// decoding makes a handler of messages of one kind. What can't be read is counted by the tables
// that live by it.
func decoding[M any, P interface {
	*M
	proto.Message
}](r *Registry, describe func(P) (n *pushmeshv1.Node, left bool)) func([]byte) {
	return func(data []byte) {
		m := P(new(M))
		if proto.Unmarshal(data, m) != nil {
			return
		}
		if n, left := describe(m); bus.CheckID(n.GetId()) == nil {
			r.receiveBeat(n, left)
		}
	}
}

// receiveBeat puts the newest word of a node in place of the last. What a former process of the
// same name says late counts for nothing.
func (r *Registry) receiveBeat(n *pushmeshv1.Node, left bool) {
	now, k := r.now(), key{n.GetTier(), n.GetId()}
	n.HeardAt = uint64(now.UnixMicro())
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.nodes[k]
	past := r.formerProcesses[k.tier]
	if past == nil {
		past = &incarnation.Memory{}
		r.formerProcesses[k.tier] = past
	}
	another := known && n.GetIncarnation() != before.node.GetIncarnation()
	alone := !known || now.Sub(before.at) > silentAfter
	switch {
	case (another || !known) && past.Late(now, k.id, n.GetIncarnation(), alone, silentAfter):
		return
	case another && !left:
		past.Replaced(now, k.id, before.node.GetIncarnation())
	case left:
		past.Departed(now, k.id, n.GetIncarnation())
	}
	switch {
	case left && !another:
		delete(r.nodes, k)
	case left: // one that began before or after it is another matter
	case known || len(r.nodes) < maxNodes || r.sweep(now):
		r.nodes[k] = lastBeat{n, now}
	}
}

// sweep makes room by forgetting who is silent, once in that time: it looks at all.
func (r *Registry) sweep(now time.Time) bool {
	if now.Sub(r.swept) <= silentAfter {
		return false
	}
	r.swept = now
	maps.DeleteFunc(r.nodes, func(_ key, h lastBeat) bool { return now.Sub(h.at) > silentAfter })
	return len(r.nodes) < maxNodes
}

// List is every node that is heard and, with a problem, every one that fell silent without a word,
// by tier and id. The nodes are the caller's to read.
func (r *Registry) List() []*pushmeshv1.Node {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*pushmeshv1.Node
	taken := map[key]bool{} // by tier and address, which a process has to itself
	for _, h := range r.nodes {
		if now.Sub(h.at) <= silentAfter {
			all = append(all, h.node)
			taken[key{h.node.GetTier(), h.node.GetHttpAddress()}] = true
		}
	}
	for k, h := range r.nodes {
		quiet := now.Sub(h.at)
		if quiet <= silentAfter {
			continue
		}
		// One that drained has stopped as planned; one whose address another has was started again
		// under another name.
		if quiet > listedFor || h.node.GetDraining() || taken[key{k.tier, h.node.GetHttpAddress()}] {
			delete(r.nodes, k)
			continue
		}
		n := proto.CloneOf(h.node)
		n.Ready, n.Problem = pushmeshv1.Ready_READY_NO, fmt.Sprintf("not heard for %s", quiet.Round(time.Second))
		all = append(all, n)
	}
	Sort(all)
	return all
}

// Sort orders nodes by tier and id.
func Sort(all []*pushmeshv1.Node) {
	slices.SortFunc(all, func(a, b *pushmeshv1.Node) int {
		if a.GetTier() != b.GetTier() {
			return int(a.GetTier() - b.GetTier())
		}
		return strings.Compare(a.GetId(), b.GetId())
	})
}

func edge(d *meshv1.EdgeDigest) (n *pushmeshv1.Node, left bool) {
	return &pushmeshv1.Node{
		Tier: pushmeshv1.Tier_TIER_EDGE, Id: d.GetEdgeId(), Incarnation: d.GetEdgeIncarnation(), Version: d.GetProgram(),
		SubscriberAddress: d.GetAddress(), HttpAddress: d.GetHttpAddress(), Connections: d.GetConnections(), Draining: d.GetDraining(),
		Ready: ready(d.GetProgram(), !d.GetNotReady()), Clock: d.GetSentAt(),
	}, d.GetLeaving()
}

// ready is not known of a program that does not say it.
func ready(program string, yes bool) pushmeshv1.Ready {
	switch {
	case program == "":
		return pushmeshv1.Ready_READY_UNKNOWN
	case yes:
		return pushmeshv1.Ready_READY_YES
	}
	return pushmeshv1.Ready_READY_NO
}

func router(b *meshv1.RouterBeat) (n *pushmeshv1.Node, left bool) {
	return &pushmeshv1.Node{
		Tier: pushmeshv1.Tier_TIER_ROUTER, Id: b.GetRouterId(), Incarnation: b.GetRouterIncarnation(), Version: b.GetVersion(),
		GrpcAddress: b.GetAddress(), HttpAddress: b.GetHttpAddress(), Ready: ready(b.GetVersion(), !b.GetNotReady()), Clock: b.GetSentAt(),
	}, b.GetLeaving()
}

// store is not gone when it is leaving: a store whose database is away says so too, since it owns
// nothing then.
func store(b *meshv1.StoreBeat) (n *pushmeshv1.Node, left bool) {
	return &pushmeshv1.Node{
		Tier: pushmeshv1.Tier_TIER_STORE, Id: b.GetStoreId(), Incarnation: b.GetStoreIncarnation(), Version: b.GetProgram(),
		GrpcAddress: b.GetAddress(), HttpAddress: b.GetHttpAddress(), Draining: b.GetLeaving(), Clock: b.GetSentAt(), Shards: b.GetShards(),
	}, false
}
