package peers

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

const (
	// tickEvery is how long an answer to one that begins may wait, and how exact goneAfter is.
	tickEvery = 100 * time.Millisecond
	// pendingBeats is how many beats may wait to be read.
	pendingBeats = 4096
)

// Bus is what beats go over (bus.Bus).
type Bus interface {
	Publish(subject string, data []byte) error
	Subscribe(subject string, pending int, handle func(data []byte, respond func([]byte) error)) (unsubscribe func(), err error)
}

// Config of Peers.
type Config struct {
	ID          string
	Incarnation uint64
	Version     string
	// Addresses of the gRPC API and of health and metrics; asked once, at Start.
	Addresses func() (grpc, http string)
	Bus       Bus
	// Ready reports whether this router is; nil: it is. It must not block.
	Ready func() bool
	// Changed is told how many routers live whenever who lives changed, at Start first. It must not
	// block.
	Changed  func(live int)
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Peers sends beats for this router and receives those of the others. It is a lifecycle.Part, whose
// one goroutine owns the set; Routers is safe for concurrent use.
type Peers struct {
	cfg         Config
	received    chan *meshv1.RouterBeat
	live        atomic.Pointer[[]Router]
	twin        atomic.Bool // another router has this one's id
	group       *lifecycle.Group
	unsubscribe func()
}

// New makes Peers that know no other router.
func New(cfg Config) *Peers {
	p := &Peers{cfg: cfg, received: make(chan *meshv1.RouterBeat, pendingBeats)}
	p.live.Store(&[]Router{{ID: cfg.ID, Incarnation: cfg.Incarnation, Version: cfg.Version}})
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pushmesh_router_routers", Help: "Live routers, this one included.",
		}, func() float64 { return float64(len(p.Routers())) }))
	}
	return p
}

// Routers returns every live router in the order of ids, this one included. The slice must not be
// changed.
func (p *Peers) Routers() []Router { return *p.live.Load() }

// Start begins to send and receive beats. The bus must be started before it.
func (p *Peers) Start(context.Context) error {
	var err error
	if p.unsubscribe, err = p.cfg.Bus.Subscribe(bus.RouterBeat, pendingBeats, p.receiveBeat); err != nil {
		return err
	}
	self := Router{ID: p.cfg.ID, Incarnation: p.cfg.Incarnation, Version: p.cfg.Version}
	self.Address, self.HTTP = p.cfg.Addresses()
	set := NewSet(time.Now(), self)
	p.publishLive(set)
	p.group = lifecycle.NewGroup(context.Background())
	p.group.Go("peers", func(ctx context.Context) { p.run(ctx, set) })
	return nil
}

// Stop tells the other routers that this one leaves.
func (p *Peers) Stop(ctx context.Context) error {
	p.unsubscribe()
	return p.group.Stop(ctx)
}

func (p *Peers) receiveBeat(data []byte, _ func([]byte) error) {
	m := &meshv1.RouterBeat{}
	if proto.Unmarshal(data, m) != nil || bus.CheckID(m.GetRouterId()) != nil {
		return
	}
	select {
	case p.received <- m:
	default: // as if the network had lost it
	}
}

func (p *Peers) run(ctx context.Context, set *Set) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	var beat time.Time
	owed := true
	for {
		select {
		case <-ctx.Done():
			p.sendBeat(set.self, true)
			return
		case m := <-p.received:
			owed = set.Observe(time.Now(), m) || owed
		case now := <-tick.C:
			set.Tick(now)
			p.noteTwin(set.Twin(now))
			if owed || now.Sub(beat) > beatEvery-tickEvery/2 {
				p.sendBeat(set.self, false)
				owed, beat = false, now
			}
		}
		p.publishLive(set)
	}
}

// sendBeat sends a beat. If NATS does not take it, that is like a beat that NATS loses.
func (p *Peers) sendBeat(self Router, leaving bool) {
	data, err := proto.Marshal(&meshv1.RouterBeat{
		RouterId: self.ID, RouterIncarnation: self.Incarnation, Address: self.Address, HttpAddress: self.HTTP, Version: self.Version, Leaving: leaving,
		SentAt: uint64(time.Now().UnixMicro()), NotReady: p.cfg.Ready != nil && !p.cfg.Ready(),
	})
	if err == nil {
		err = p.cfg.Bus.Publish(bus.RouterBeat, data)
	}
	if err != nil {
		p.cfg.Log.Debug("sending a beat to other routers failed", "error", err)
	}
}

// noteTwin logs once that another router process has this one's id, and once that there is none any
// more.
func (p *Peers) noteTwin(twin bool) {
	if p.twin.Swap(twin) == twin {
		return
	}
	if twin {
		p.cfg.Log.Error("another router process has this router's id: give one of them another --id", "id", p.cfg.ID)
		return
	}
	p.cfg.Log.Info("no other router process has this router's id any more", "id", p.cfg.ID)
}

// CheckID is nil unless another router has this one's id.
func (p *Peers) CheckID() error {
	if p.twin.Load() {
		return fmt.Errorf("another router process has the id %s: give one of them another --id", p.cfg.ID)
	}
	return nil
}

func (p *Peers) publishLive(set *Set) {
	if !set.Changed() {
		return
	}
	live := set.Live()
	if p.cfg.Changed != nil {
		p.cfg.Changed(len(live))
	}
	p.live.Store(&live)
	p.cfg.Log.Info("live routers", "routers", len(live))
}
