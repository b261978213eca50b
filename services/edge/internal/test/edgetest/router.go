package edgetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/incarnation"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Router follows one edge's interest like a real one, beats, and sends what a test tells it to. It
// ends with the test.
type Router struct {
	t    testing.TB
	id   string
	edge string
	bus  *bus.Bus

	mu          sync.Mutex
	incarnation uint64
	edgeInc     uint64
	n           uint64
	casts       uint64 // broadcasts
	applied     uint64
	held        map[string]bool
	want        bool
	deaf        bool // hears no edge
	mute        bool // no beats
	digest      *meshv1.EdgeDigest
	items       []*meshv1.ClientPublish_Item
	kinds       events.Mask // of events that are wanted
	told        []*pushmeshv1.Event
	topics      []string // of told
	busy        bool     // takes no events
}

// NewRouter starts a router for an edge.
func NewRouter(t testing.TB, n *NATS, id, edge string) *Router {
	r := &Router{t: t, id: id, edge: edge, bus: n.Bus(id), incarnation: incarnation.New(), held: map[string]bool{}}
	r.subscribe(bus.EdgeAnnounce, r.announced)
	r.subscribe(bus.EdgeDigest, r.digested)
	r.subscribe(bus.RouterSnapshot(id), r.snapshotted)
	if _, err := r.bus.Subscribe(bus.RouterPublish(id), 1000, r.publish); err != nil {
		t.Fatal(err)
	}
	if _, err := r.bus.Subscribe(bus.RouterEvents(id), 1000, r.happened); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if err := r.bus.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	group := lifecycle.NewGroup(t.Context())
	beats := time.NewTicker(100 * time.Millisecond)
	stop := make(chan struct{})
	group.Go("beats", func(context.Context) {
		defer beats.Stop()
		for {
			select {
			case <-stop:
				return
			case <-beats.C:
				r.Beat()
			}
		}
	})
	t.Cleanup(func() { close(stop) })
	return r
}

func (r *Router) subscribe(subject string, handle func(data []byte)) {
	if _, err := r.bus.Subscribe(subject, 10_000, func(data []byte, respond func([]byte) error) {
		handle(data)
		_ = respond(nil)
	}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *Router) announced(data []byte) {
	a := &meshv1.EdgeAnnounce{}
	if proto.Unmarshal(data, a) != nil || a.GetEdgeId() != r.edge {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meet(a.GetEdgeIncarnation())
	if r.deaf {
		return
	}
	if a.GetVersion() != r.applied+1 {
		r.want = a.GetVersion() > r.applied
		r.beat()
		return
	}
	for _, f := range a.GetAdd() {
		r.held[f] = true
	}
	for _, f := range a.GetRemove() {
		delete(r.held, f)
	}
	r.applied = a.GetVersion()
	r.beat()
}

func (r *Router) meet(edgeIncarnation uint64) {
	if r.edgeInc == edgeIncarnation {
		return
	}
	r.edgeInc, r.applied, r.n = edgeIncarnation, 0, 0
	clear(r.held)
}

func (r *Router) digested(data []byte) {
	d := &meshv1.EdgeDigest{}
	if proto.Unmarshal(data, d) != nil || d.GetEdgeId() != r.edge {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meet(d.GetEdgeIncarnation())
	r.digest = d
	if r.deaf {
		return
	}
	hash := uint64(0)
	for f := range r.held {
		hash += xxhash.Sum64String(f)
	}
	if d.GetCount() != uint64(len(r.held)) || d.GetHash() != hash {
		r.want = true
		r.beat()
	}
}

func (r *Router) snapshotted(data []byte) {
	s := &meshv1.EdgeSnapshot{}
	if proto.Unmarshal(data, s) != nil || s.GetEdgeId() != r.edge {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deaf {
		return
	}
	if s.GetPart() == 0 {
		clear(r.held)
		r.want = false
	}
	for _, f := range s.GetFilters() {
		r.held[f] = true
	}
	if s.GetPart()+1 < s.GetParts() {
		return
	}
	r.applied, r.want = s.GetVersion(), false
	r.beat()
}

func (r *Router) publish(data []byte, respond func([]byte) error) {
	req, reply := &meshv1.ClientPublish{}, &meshv1.ClientPublishReply{}
	if proto.Unmarshal(data, req) != nil {
		return
	}
	r.mu.Lock()
	for _, it := range req.GetItems() {
		r.items = append(r.items, it)
		reply.Results = append(reply.Results, &meshv1.ClientPublishReply_Result{Seq: uint64(len(r.items))})
	}
	r.mu.Unlock()
	if out, err := proto.Marshal(reply); err == nil {
		_ = respond(out)
	}
}

func (r *Router) happened(data []byte, respond func([]byte) error) {
	req, reply := &meshv1.EventPublish{}, &meshv1.ClientPublishReply{}
	if proto.Unmarshal(data, req) != nil {
		return
	}
	r.mu.Lock()
	for _, it := range req.GetItems() {
		e, res := &pushmeshv1.Event{}, &meshv1.ClientPublishReply_Result{}
		switch err := proto.Unmarshal(it.GetEvent(), e); {
		case err != nil:
			res.Code = wirev1.Code_CODE_INVALID_ARGUMENT
		case r.busy:
			res.Code = wirev1.Code_CODE_OVERLOADED
		default:
			r.told, r.topics = append(r.told, e), append(r.topics, it.GetTopic())
		}
		reply.Results = append(reply.Results, res)
	}
	r.mu.Unlock()
	if out, err := proto.Marshal(reply); err == nil {
		_ = respond(out)
	}
}

// WantEvents has frames say that these kinds of events are wanted.
func (r *Router) WantEvents(kinds ...events.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kinds = events.Of(kinds...)
	r.beat()
}

// Wanted is what WantEvents said last.
func (r *Router) Wanted() events.Mask {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kinds
}

// Occupy has events refused for now, or taken again.
func (r *Router) Occupy(busy bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = busy
}

// Events that came, and their topics.
func (r *Router) Events() ([]*pushmeshv1.Event, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.told), slices.Clone(r.topics)
}

// beat sends a frame without deliveries. r.mu is held.
func (r *Router) beat() { r.send(&meshv1.RouterFrame{N: r.n}) }

func (r *Router) send(f *meshv1.RouterFrame) {
	if r.edgeInc == 0 {
		return
	}
	f.RouterId, f.RouterIncarnation, f.EdgeIncarnation = r.id, r.incarnation, r.edgeInc
	f.AppliedVersion, f.WantSnapshot, f.LastBroadcast, f.Events = r.applied, r.want, r.casts, uint32(r.kinds|events.MaskSet)
	if data, err := proto.Marshal(f); err == nil {
		// without a server it is lost, as a real router's is
		_ = r.bus.Publish(bus.EdgeFrames(r.edge), data)
	}
}

// Beat sends a beat, unless the router is mute.
func (r *Router) Beat() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mute {
		r.beat()
	}
}

// Send sends a batch.
func (r *Router) Send(deliveries ...*meshv1.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	r.send(&meshv1.RouterFrame{N: r.n, Deliveries: deliveries})
}

// Broadcast sends a batch to every edge.
func (r *Router) Broadcast(deliveries ...*meshv1.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.casts++
	f := &meshv1.RouterFrame{RouterId: r.id, RouterIncarnation: r.incarnation, Broadcast: r.casts, Deliveries: deliveries}
	if data, err := proto.Marshal(f); err == nil {
		_ = r.bus.Publish(bus.EveryEdgeFrames, data)
	}
}

// LoseBroadcast numbers a batch for every edge and does not send it.
func (r *Router) LoseBroadcast() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.casts++
}

// Lose numbers a batch and does not send it.
func (r *Router) Lose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
}

// Check sends topics to be compared.
func (r *Router) Check(topics ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	r.send(&meshv1.RouterFrame{N: r.n, CheckTopics: topics})
}

// Mute stops the beats, or lets them go on.
func (r *Router) Mute(mute bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mute = mute
}

// Deafen has whatever the edge says of its interest lost, or heard again.
func (r *Router) Deafen(deaf bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = deaf
}

// Restart begins a new incarnation that knows no edge.
func (r *Router) Restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.incarnation++
	r.n, r.applied, r.casts = 0, 0, 0
	clear(r.held)
}

// Digest of the edge that came last.
func (r *Router) Digest() *meshv1.EdgeDigest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.digest
}

// Published items of clients, in the order they came.
func (r *Router) Published() []*meshv1.ClientPublish_Item {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.items)
}

// WaitHolds waits until the router holds exactly these filters.
func (r *Router) WaitHolds(filters ...string) {
	r.t.Helper()
	slices.Sort(filters)
	WaitFor(r.t, r.id+"'s table", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if have := slices.Sorted(maps.Keys(r.held)); !slices.Equal(have, filters) {
			return fmt.Errorf("holds %v, not %v", have, filters)
		}
		return nil
	})
}
