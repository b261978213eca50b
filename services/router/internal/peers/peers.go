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
	// pending is how many beats may wait to be heard.
	pending = 4096
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

// Peers beats for this router and hears the others. It is a lifecycle.Part, whose one goroutine
// owns the set; Routers is safe for concurrent use.
type Peers struct {
	cfg   Config
	beats chan *meshv1.RouterBeat
	live  atomic.Pointer[[]Router]
	twin  atomic.Bool // another router has this one's id
	group *lifecycle.Group
	leave func()
}

// New makes Peers that know of nobody.
func New(cfg Config) *Peers {
	p := &Peers{cfg: cfg, beats: make(chan *meshv1.RouterBeat, pending)}
	p.live.Store(&[]Router{{ID: cfg.ID, Incarnation: cfg.Incarnation, Version: cfg.Version}})
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pushmesh_router_routers", Help: "Live routers, this one included.",
		}, func() float64 { return float64(len(p.Routers())) }))
	}
	return p
}

// Routers is every live router by id, this one included. It is not to be changed.
func (p *Peers) Routers() []Router { return *p.live.Load() }

// Start begins to hear and to beat. The bus must be started before it.
func (p *Peers) Start(context.Context) error {
	var err error
	if p.leave, err = p.cfg.Bus.Subscribe(bus.RouterBeat, pending, p.hear); err != nil {
		return err
	}
	self := Router{ID: p.cfg.ID, Incarnation: p.cfg.Incarnation, Version: p.cfg.Version}
	self.Address, self.HTTP = p.cfg.Addresses()
	set := NewSet(time.Now(), self)
	p.tell(set)
	p.group = lifecycle.NewGroup(context.Background())
	p.group.Go("peers", func(ctx context.Context) { p.run(ctx, set) })
	return nil
}

// Stop says that this router leaves.
func (p *Peers) Stop(ctx context.Context) error {
	p.leave()
	return p.group.Stop(ctx)
}

func (p *Peers) hear(data []byte, _ func([]byte) error) {
	m := &meshv1.RouterBeat{}
	if proto.Unmarshal(data, m) != nil || bus.CheckID(m.GetRouterId()) != nil {
		return
	}
	select {
	case p.beats <- m:
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
			p.say(set.self, true)
			return
		case m := <-p.beats:
			owed = set.Hear(time.Now(), m) || owed
		case now := <-tick.C:
			set.Tick(now)
			p.noteTwin(set.Twin(now))
			if owed || now.Sub(beat) > beatEvery-tickEvery/2 {
				p.say(set.self, false)
				owed, beat = false, now
			}
		}
		p.tell(set)
	}
}

// say beats. What NATS does not take is like what it loses.
func (p *Peers) say(self Router, leaving bool) {
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

// noteTwin logs once that another router has this one's id, and once that none has any more.
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

func (p *Peers) tell(set *Set) {
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
