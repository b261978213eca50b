package playground

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Every second while somebody is subscribed, each stock has a new price.
const beat = time.Second

// stock is something whose price moves.
type stock struct {
	Symbol string `json:"symbol"`
	Name   string `json:"name"`
	Sector string `json:"sector"`
	// Price is in cents, that it is exact in JSON.
	Price int `json:"price"`
	// Change since the price before, in hundredths of a percent.
	Change int `json:"change"`
	// Round counts the beats: prices of one round are ranked together.
	Round int `json:"round"`
}

// stocks are invented.
func stocks() []*stock {
	return []*stock{
		{Symbol: "QBIT", Name: "Qubit Works", Sector: "tech", Price: 18240},
		{Symbol: "LUMA", Name: "Luma Optics", Sector: "tech", Price: 9415},
		{Symbol: "NODE", Name: "Nodeland", Sector: "tech", Price: 24130},
		{Symbol: "PIXL", Name: "Pixel Foundry", Sector: "tech", Price: 5275},
		{Symbol: "WIND", Name: "North Wind", Sector: "energy", Price: 7130},
		{Symbol: "SOLA", Name: "Sola Grid", Sector: "energy", Price: 3920},
		{Symbol: "TIDE", Name: "Tidal Power", Sector: "energy", Price: 11265},
		{Symbol: "VOLT", Name: "Voltage Bank", Sector: "energy", Price: 15580},
		{Symbol: "OATS", Name: "Oat Brothers", Sector: "food", Price: 2745},
		{Symbol: "PLUM", Name: "Plum Orchard", Sector: "food", Price: 6390},
		{Symbol: "RICE", Name: "Golden Rice", Sector: "food", Price: 4810},
		{Symbol: "SALT", Name: "Sea Salt Co", Sector: "food", Price: 8855},
	}
}

// move gives a stock its next price.
func (s *stock) move(round int, random *rand.Rand) {
	before := s.Price
	s.Price = max(100, before+int(math.Round(float64(before)*random.NormFloat64()*0.006)))
	s.Change = int(math.Round(10_000 * float64(s.Price-before) / float64(before)))
	s.Round = round
}

// features are what a stock is ranked by: its sector, and how many percent it moved.
func (s *stock) features() map[string]float64 {
	return map[string]float64{s.Sector: 1, "move": math.Abs(float64(s.Change)) / 100}
}

// market publishes prices while somebody is subscribed to them. It is a lifecycle.Part.
type market struct {
	presence pushmeshv1.PresenceServiceClient
	publish  pushmeshv1.PublishServiceClient
	stocks   []*stock
	random   *rand.Rand
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

func newMarket(conn *grpc.ClientConn) *market {
	return &market{
		presence: pushmeshv1.NewPresenceServiceClient(conn),
		publish:  pushmeshv1.NewPublishServiceClient(conn),
		stocks:   stocks(),
		random:   rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
	}
}

// Start begins to look whether somebody is there.
func (m *market) Start(ctx context.Context) error {
	ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	m.running.Go(func() { m.run(ctx) })
	return nil
}

// Stop ends it.
func (m *market) Stop(context.Context) error {
	m.cancel()
	m.running.Wait()
	return nil
}

// run publishes a round at each beat for which somebody is there.
func (m *market) run(ctx context.Context) {
	ticks := time.NewTicker(beat)
	defer ticks.Stop()
	for round := 1; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		at, cancel := context.WithTimeout(ctx, beat)
		if m.watched(at) {
			_ = m.round(at, round) // what fails is tried again with other prices
			round++
		}
		cancel()
	}
}

func (m *market) watched(ctx context.Context) bool {
	r, err := m.presence.Count(ctx, &pushmeshv1.CountRequest{Topics: []string{pricesTopic}})
	return err == nil && len(r.GetCounts()) == 1 && r.GetCounts()[0] > 0
}

// round publishes the next price of each stock, in no particular order.
func (m *market) round(ctx context.Context, round int) error {
	for _, i := range m.random.Perm(len(m.stocks)) {
		s := m.stocks[i]
		s.move(round, m.random)
		payload, err := json.Marshal(s)
		if err != nil {
			return err
		}
		if _, err := m.publish.Publish(ctx, &pushmeshv1.PublishRequest{Topic: pricesTopic, Payload: payload, Features: s.features()}); err != nil {
			return err
		}
	}
	return nil
}
