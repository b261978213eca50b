// Package presencewatch follows the members of topics, for callers that watch every join and leave.
// Streams of one filter share what edges report.
package presencewatch

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

const (
	tickEvery = 100 * time.Millisecond
	// looksPerTick is how many watches are looked at each time, or a tenth of them where that is
	// more: each has its turn within a second, in which its leases are renewed.
	looksPerTick = 4000
	// firstWithin is how long the first snapshot of a filter waits for edges that send nothing, and
	// firstAtMost for edges that are sending theirs: a million members may take seconds, and would
	// be too many changes for a caller that had begun without them.
	firstWithin = 2 * time.Second
	firstAtMost = 30 * time.Second
	// pendingFrames is how many frames of edges may wait.
	pendingFrames = 16 << 10
	// leasesPerFrame is how many watches one message to an edge names.
	leasesPerFrame = 1000
)

// Edges lists the edges of the mesh (switchboard.Switchboard).
type Edges interface {
	Edges() []interest.Edge
	Interested(dst []interest.Edge, topic string) []interest.Edge
	// Check is nil while the table can be trusted.
	Check() error
}

// Config of Watches.
type Config struct {
	RouterID    string
	Incarnation uint64
	Edges       Edges
	Bus         *bus.Bus
	Policies    *policy.Watch
	// Rooms is told what edges ask of rooms; nil: nobody is. It must not block.
	Rooms func(edge presence.Source, l *meshv1.RoomLease)
	// Streams of backends at a time, members of one filter, and changes that wait for one stream.
	MaxStreams, MaxMembers, MaxQueued int
	Registry                          prometheus.Registerer
}

// Watches is a lifecycle.Part, safe for concurrent use. The bus and the policies must be started
// before it.
type Watches struct {
	cfg         Config
	metrics     *metrics
	group       *lifecycle.Group
	unsubscribe func()

	mu       sync.Mutex
	byTopics map[presence.Topics]*watch
	byID     map[uint64]*watch
	all      []*watch // in no order, each knows its place
	next     int      // of them to be looked at
	wanted   map[presence.Source]bool
	found    []interest.Edge
	streams  int // of backends
	ids      uint64
	asks     uint64
	draining bool
	stopped  bool
	leases   []lease // to be sent
}

// lease is to be sent to one edge: a watch that is renewed, or one that ended.
type lease struct {
	to    presence.Source
	watch *meshv1.PresenceLease_Watch
	ended uint64
}

// New makes a Watches without watches.
func New(cfg Config) *Watches {
	w := &Watches{cfg: cfg, byTopics: map[presence.Topics]*watch{}, byID: map[uint64]*watch{}, wanted: map[presence.Source]bool{}}
	w.metrics = newMetrics(cfg.Registry, w)
	return w
}

// Start begins to receive reports of edges.
func (w *Watches) Start(context.Context) error {
	leave, err := w.cfg.Bus.Subscribe(bus.RouterPresence(w.cfg.RouterID), pendingFrames, func(data []byte, _ func([]byte) error) { w.Receive(data) })
	if err != nil {
		return err
	}
	w.unsubscribe = leave
	w.cfg.Bus.OnGap(w.askEveryEdge)
	w.cfg.Policies.OnChange(func(*policy.Table) { w.policiesChanged() })
	w.group = lifecycle.NewGroup(context.Background())
	w.group.Go("presence watches", w.run)
	return nil
}

// Stop ends the streams that Drain has not ended, and notifies edges.
func (w *Watches) Stop(ctx context.Context) error {
	w.mu.Lock()
	w.draining, w.stopped = true, true
	w.mu.Unlock()
	w.endAll(func(*watch) bool { return true })
	w.unsubscribe()
	return w.group.Stop(ctx)
}

// Drain ends every stream of a backend with DRAINING, and accepts no new one. What clients are told
// goes on until the router says that it leaves: edges ask another one then.
func (w *Watches) Drain() {
	w.mu.Lock()
	w.draining = true
	w.mu.Unlock()
	w.endAll(func(x *watch) bool { return !x.topics.Named })
}

func (w *Watches) endAll(which func(*watch) bool) {
	w.mu.Lock()
	for _, x := range w.byTopics {
		if which(x) {
			w.endWatch(x, code.Retry(wirev1.Code_CODE_DRAINING, time.Second, "the router is stopping"))
		}
	}
	w.mu.Unlock()
	w.sendLeases()
}

func (w *Watches) run(ctx context.Context) { lifecycle.Every(ctx, tickEvery, w.Tick) }

// Tick does what is due, ten times a second.
func (w *Watches) Tick(now time.Time) {
	w.mu.Lock()
	if len(w.all) > 0 {
		w.look(now)
	}
	w.mu.Unlock()
	w.sendLeases()
}

// look updates the watches whose turn it is. w.mu is held.
func (w *Watches) look(now time.Time) {
	known := sources(w.cfg.Edges.Edges())
	for range min(len(w.all), max(looksPerTick, (len(w.all)+9)/10)) {
		if w.next >= len(w.all) {
			w.next = 0
		}
		if len(w.all) == 0 {
			return // they have ended
		}
		x := w.all[w.next]
		if w.follow(now, x, known); x.err == nil {
			w.next++ // otherwise another one is in its place
		}
	}
}

// follow updates one watch: the edges that it follows, its leases, and its streams. w.mu is held.
func (w *Watches) follow(now time.Time, x *watch, known map[presence.Source]bool) {
	wanted := known
	if f := x.topics.Filter; !topic.IsFilter(f) {
		wanted = w.wanted
		clear(wanted)
		w.found = w.cfg.Edges.Interested(w.found[:0], f)
		for _, e := range w.found {
			wanted[presence.Source(e)] = true
		}
	}
	for _, s := range x.follower.Sources(now, known, wanted) {
		w.leases = append(w.leases, lease{to: s, ended: x.id})
	}
	w.renewLeases(now, x)
	w.pushChanges(now, x)
}

func (w *Watches) renewLeases(now time.Time, x *watch) {
	before := x.follower.AsksSent()
	x.follower.Leases(now, func(to presence.Source, l *meshv1.PresenceLease_Watch) {
		w.leases = append(w.leases, lease{to: to, watch: l})
	})
	w.metrics.asks.Add(float64(x.follower.AsksSent() - before))
}

func sources(edges []interest.Edge) map[presence.Source]bool {
	all := make(map[presence.Source]bool, len(edges))
	for _, e := range edges {
		all[presence.Source(e)] = true
	}
	return all
}

// Receive takes in a frame of an edge. Any goroutine may call it.
func (w *Watches) Receive(data []byte) {
	frame := &meshv1.PresenceFrame{}
	if proto.Unmarshal(data, frame) != nil {
		w.metrics.badFrames.Inc()
		return
	}
	if frame.GetRouterIncarnation() != w.cfg.Incarnation {
		return
	}
	from, now := presence.Source{ID: frame.GetEdgeId(), Incarnation: frame.GetEdgeIncarnation()}, time.Now()
	if l := frame.GetRoomLease(); l != nil && w.cfg.Rooms != nil {
		w.cfg.Rooms(from, l)
	}
	w.mu.Lock()
	for _, r := range frame.GetReports() {
		if x := w.byID[r.GetWatch()]; x != nil {
			x.follower.Report(now, from, r)
			w.renewLeases(now, x)
			w.pushChanges(now, x)
		}
	}
	w.mu.Unlock()
	w.sendLeases()
}

// askEveryEdge has every edge asked anew: reports may have been missed.
func (w *Watches) askEveryEdge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.byTopics {
		x.follower.AskAll()
	}
}

func (w *Watches) policiesChanged() {
	w.mu.Lock()
	for _, x := range w.byTopics {
		if err := w.allowed(x.topics); err != nil {
			w.endWatch(x, err)
		}
	}
	w.mu.Unlock()
	w.sendLeases()
}

// allowed is nil where policies let the members of topics be watched: by backends, or, where they
// are named, for clients.
func (w *Watches) allowed(topics presence.Topics) *code.Error {
	table, filter := w.cfg.Policies.Table(), topics.Filter
	if why := table.Refuses(filter); why != nil {
		return why
	}
	if topics.Named {
		return table.HidesMembers(filter)
	}
	if table.AnyPresence(filter) {
		return nil
	}
	return code.New(wirev1.Code_CODE_CONFLICT, policy.NoPresence(table.For(filter), filter))
}

// sendLeases sends the leases that are due.
func (w *Watches) sendLeases() {
	w.mu.Lock()
	leases := w.leases
	w.leases = nil
	w.mu.Unlock()
	byEdge := map[presence.Source][]*meshv1.PresenceLease{}
	for _, l := range leases {
		all := byEdge[l.to]
		if n := len(all); n == 0 || len(all[n-1].GetWatches())+len(all[n-1].GetEnded()) >= leasesPerFrame {
			all = append(all, &meshv1.PresenceLease{
				RouterId: w.cfg.RouterID, RouterIncarnation: w.cfg.Incarnation, EdgeIncarnation: l.to.Incarnation,
			})
			byEdge[l.to] = all
		}
		if last := all[len(all)-1]; l.watch != nil {
			last.Watches = append(last.Watches, l.watch)
		} else {
			last.Ended = append(last.Ended, l.ended)
		}
	}
	for to, all := range byEdge {
		for _, l := range all {
			data, err := proto.Marshal(&meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_PresenceLease{PresenceLease: l}})
			if err == nil {
				_ = w.cfg.Bus.Publish(bus.EdgeRequest(to.ID), data) // what is lost is said again
			}
		}
	}
}
