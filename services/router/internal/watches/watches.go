// Package watches follows the members of topics, for callers that are told of every join and leave.
// Streams of one filter share what edges report.
package watches

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
	// firstWithin is how long the first snapshot of a filter waits for edges that say nothing, and
	// firstAtMost for those that are about to send theirs: a million members may take seconds, and
	// would be too many changes for a caller that had begun without them.
	firstWithin = 2 * time.Second
	firstAtMost = 30 * time.Second
	// pending is how many frames of edges may wait.
	pending = 16 << 10
	// leasesOfFrame is how many watches one message to an edge names.
	leasesOfFrame = 1000
)

// Edges says which edges there are (switchboard.Switchboard).
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
	// Streams at a time, members of one filter, and changes that wait for one stream.
	MaxStreams, MaxMembers, MaxQueued int
	Registry                          prometheus.Registerer
}

// Watches is a lifecycle.Part, safe for concurrent use. The bus and the policies must be started
// before it.
type Watches struct {
	cfg     Config
	metrics *metrics
	group   *lifecycle.Group
	leave   func()

	mu       sync.Mutex
	byFilter map[string]*watch
	byID     map[uint64]*watch
	streams  int
	ids      uint64
	asks     uint64
	draining bool
	leases   []lease // to be sent
}

// lease is a word for one edge.
type lease struct {
	to    presence.Source
	watch *meshv1.PresenceLease_Watch
	ended uint64
}

// New makes one that watches nothing.
func New(cfg Config) *Watches {
	w := &Watches{cfg: cfg, byFilter: map[string]*watch{}, byID: map[uint64]*watch{}}
	w.metrics = newMetrics(cfg.Registry, w)
	return w
}

// Start begins to hear edges.
func (w *Watches) Start(context.Context) error {
	leave, err := w.cfg.Bus.Subscribe(bus.RouterPresence(w.cfg.RouterID), pending, func(data []byte, _ func([]byte) error) { w.hear(data) })
	if err != nil {
		return err
	}
	w.leave = leave
	w.cfg.Bus.OnGap(w.gap)
	w.cfg.Policies.OnChange(func(*policy.Table) { w.policiesChanged() })
	w.group = lifecycle.NewGroup(context.Background())
	w.group.Go("watches-tick", w.run)
	return nil
}

// Stop ends what Drain has not, and tells edges.
func (w *Watches) Stop(ctx context.Context) error {
	w.Drain()
	w.leave()
	return w.group.Stop(ctx)
}

// Drain ends every stream with DRAINING, and takes no new one.
func (w *Watches) Drain() {
	w.mu.Lock()
	w.draining = true
	for _, x := range w.byFilter {
		w.end(x, code.Retry(wirev1.Code_CODE_DRAINING, time.Second, "the router stops"))
	}
	w.mu.Unlock()
	w.send()
}

func (w *Watches) run(ctx context.Context) { lifecycle.Every(ctx, tickEvery, w.tick) }

func (w *Watches) tick(now time.Time) {
	w.mu.Lock()
	if len(w.byFilter) > 0 {
		known := sources(w.cfg.Edges.Edges())
		for _, x := range w.byFilter {
			w.follow(now, x, known)
		}
	}
	w.mu.Unlock()
	w.send()
}

// follow looks after one watch. w.mu is held.
func (w *Watches) follow(now time.Time, x *watch, known map[presence.Source]bool) {
	wanted := known
	if !topic.IsFilter(x.filter) {
		wanted = sources(w.cfg.Edges.Interested(nil, x.filter))
	}
	for _, s := range x.follower.Sources(now, known, wanted) {
		w.leases = append(w.leases, lease{to: s, ended: x.id})
	}
	w.lease(now, x)
	w.pass(now, x)
}

func (w *Watches) lease(now time.Time, x *watch) {
	before := x.follower.Asked()
	x.follower.Leases(now, func(to presence.Source, l *meshv1.PresenceLease_Watch) {
		w.leases = append(w.leases, lease{to: to, watch: l})
	})
	w.metrics.asks.Add(float64(x.follower.Asked() - before))
}

func sources(edges []interest.Edge) map[presence.Source]bool {
	all := make(map[presence.Source]bool, len(edges))
	for _, e := range edges {
		all[presence.Source(e)] = true
	}
	return all
}

// hear takes in a frame of an edge.
func (w *Watches) hear(data []byte) {
	frame := &meshv1.PresenceFrame{}
	if proto.Unmarshal(data, frame) != nil {
		w.metrics.bad.Inc()
		return
	}
	if frame.GetRouterIncarnation() != w.cfg.Incarnation {
		return
	}
	from, now := presence.Source{ID: frame.GetEdgeId(), Incarnation: frame.GetEdgeIncarnation()}, time.Now()
	w.mu.Lock()
	for _, r := range frame.GetReports() {
		if x := w.byID[r.GetWatch()]; x != nil {
			x.follower.Report(now, from, r)
			w.lease(now, x)
			w.pass(now, x)
		}
	}
	w.mu.Unlock()
	w.send()
}

// gap has every edge asked anew: reports may have been missed.
func (w *Watches) gap() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.byFilter {
		x.follower.AskAll()
	}
}

func (w *Watches) policiesChanged() {
	w.mu.Lock()
	for _, x := range w.byFilter {
		if err := w.allowed(x.filter); err != nil {
			w.end(x, err)
		}
	}
	w.mu.Unlock()
	w.send()
}

func (w *Watches) allowed(filter string) *code.Error {
	table := w.cfg.Policies.Table()
	if why := table.Refuses(filter); why != nil {
		return why
	}
	if table.AnyPresence(filter) {
		return nil
	}
	return code.New(wirev1.Code_CODE_CONFLICT, "the policy of "+filter+" has no presence")
}

// send tells edges what is due.
func (w *Watches) send() {
	w.mu.Lock()
	leases := w.leases
	w.leases = nil
	w.mu.Unlock()
	byEdge := map[presence.Source][]*meshv1.PresenceLease{}
	for _, l := range leases {
		all := byEdge[l.to]
		if n := len(all); n == 0 || len(all[n-1].GetWatches())+len(all[n-1].GetEnded()) >= leasesOfFrame {
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
