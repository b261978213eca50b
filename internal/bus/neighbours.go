package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

const (
	// helloEvery is how often a store tells the meshes of its name which one it belongs to.
	helloEvery = time.Second
	// neighbourFor is how long a mesh that says nothing more is still named.
	neighbourFor = 10 * time.Second
	// warnEvery bounds how often the log names the same mesh.
	warnEvery = time.Minute
	// mostNeighbours are known: ids come from outside.
	mostNeighbours = 64
	// hellosPending may wait to be read.
	hellosPending = 1024
)

// Neighbours finds other meshes that have the same name on the same NATS. They do no harm, since
// every subject holds the mesh's id; but an operator who gave two meshes one name may not know that
// there are two. It is a lifecycle.Part that owns a goroutine.
type Neighbours struct {
	bus   *Bus
	self  *meshv1.MeshHello // what is said; nil: only stores say it
	group *lifecycle.Group

	mu    sync.Mutex
	found map[string]neighbour // by mesh id
}

type neighbour struct {
	hello       *meshv1.MeshHello
	heard, told time.Time
}

// NewNeighbours makes one for a bus that is started before it. self is what a store says of itself:
// its id and address; others say nothing.
func NewNeighbours(b *Bus, self *meshv1.MeshHello) *Neighbours {
	return &Neighbours{bus: b, self: self, found: map[string]neighbour{}}
}

// Register adds how many there are to a process's metrics.
func (n *Neighbours) Register(reg prometheus.Registerer) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pushmesh_nats_foreign_meshes", Help: "Other meshes with the same name as this one that use the same NATS now.",
	}, func() float64 { return float64(len(n.lately(time.Now()))) }))
}

// Start listens as soon as the mesh is known.
func (n *Neighbours) Start(context.Context) error {
	n.group = lifecycle.NewGroup(context.Background())
	n.group.Go("bus-neighbours", n.run)
	return nil
}

// Stop ends that.
func (n *Neighbours) Stop(ctx context.Context) error { return n.group.Stop(ctx) }

func (n *Neighbours) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-n.bus.cfg.Mesh.Known():
	}
	mesh, _ := n.bus.cfg.Mesh.Mesh()
	sub, err := n.bus.conn.Subscribe(hello(mesh.Name), func(m *nats.Msg) {
		in := &meshv1.MeshHello{}
		if proto.Unmarshal(m.Data, in) == nil {
			n.observe(time.Now(), mesh, in)
		}
	})
	if err == nil {
		err = sub.SetPendingLimits(hellosPending, pendingBytes)
	}
	if err != nil {
		n.bus.cfg.Log.Warn("another mesh of this name on the same NATS will not be noticed", "error", err)
		return
	}
	defer func() { _ = sub.Unsubscribe() }()
	if n.self == nil {
		<-ctx.Done()
		return
	}
	n.speak(ctx, mesh)
}

// speak says which mesh this is until ctx ends.
func (n *Neighbours) speak(ctx context.Context, mesh meshid.Mesh) {
	n.self.MeshId, n.self.MeshName = mesh.ID, mesh.Name
	data, err := proto.Marshal(n.self)
	if err != nil {
		n.bus.cfg.Log.Error("NATS: announcing this mesh failed", "error", err)
		return
	}
	tick := time.NewTicker(helloEvery)
	defer tick.Stop()
	for {
		if n.bus.Connected() {
			_ = n.bus.send(hello(mesh.Name), data) // what is lost is said again
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// observe notes who speaks. Another mesh is logged when it is first heard, and then once a minute.
func (n *Neighbours) observe(now time.Time, mesh meshid.Mesh, in *meshv1.MeshHello) {
	theirs := meshid.Mesh{Name: in.GetMeshName(), ID: in.GetMeshId()}
	if theirs == mesh || theirs.Check() != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	was, known := n.found[theirs.ID]
	if !known && len(n.found) >= mostNeighbours {
		n.forget(now)
		if len(n.found) >= mostNeighbours {
			return
		}
	}
	if now.Sub(was.told) >= warnEvery {
		was.told = now
		n.bus.cfg.Log.LogAttrs(context.Background(), slog.LevelWarn, "another mesh of the same name uses this NATS: it is kept apart. Give one of them another name (--mesh and --new-mesh of its stores)",
			slog.String("mesh", mesh.Name), slog.String("id", mesh.ID), slog.String("other_id", theirs.ID), slog.String("other_store", in.GetStoreId()), slog.String("other_address", in.GetAddress()))
	}
	n.found[theirs.ID] = neighbour{in, now, was.told}
}

// forget those that were not heard lately. n.mu is held.
func (n *Neighbours) forget(now time.Time) {
	for id, other := range n.found {
		if now.Sub(other.heard) > max(neighbourFor, warnEvery) {
			delete(n.found, id)
		}
	}
}

// lately are the other meshes heard lately, in the order of their ids.
func (n *Neighbours) lately(now time.Time) (all []*meshv1.MeshHello) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range n.found {
		if now.Sub(other.heard) <= neighbourFor {
			all = append(all, other.hello)
		}
	}
	slices.SortFunc(all, func(a, b *meshv1.MeshHello) int { return strings.Compare(a.GetMeshId(), b.GetMeshId()) })
	return all
}

// Check names the other meshes of this name; nil: there is none.
func (n *Neighbours) Check() error {
	mesh, _ := n.bus.cfg.Mesh.Mesh()
	var errs []error
	for _, other := range n.lately(time.Now()) {
		errs = append(errs, fmt.Errorf("another mesh named %s uses this NATS (its id is %s, store %s at %s; this mesh's id is %s): they are kept apart; give one of them another name with --mesh and --new-mesh of its stores",
			other.GetMeshName(), other.GetMeshId(), other.GetStoreId(), other.GetAddress(), mesh.ID))
	}
	return errors.Join(errs...)
}
