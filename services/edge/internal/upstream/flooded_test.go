package upstream

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// What NATS brings to an edge that is too slow for it is dropped at a bound and counted OVERLOADED.
// What was durable in it is read from the log, in order and once; what was ephemeral is lost, and
// nothing of that is out of order.
func TestFramesBeyondTheInboxAreCountedAndRepaired(t *testing.T) {
	const waiting, frames = 16, 400
	w := newWorld(t)
	m, loops := w.edge("e1", 1, func(c *Config) { c.FramesWaiting = waiting })
	reg := prometheus.NewPedanticRegistry()
	m.cfg.Bus.Register(reg)
	dropped := func() error {
		families, err := reg.Gather()
		if err != nil {
			return err
		}
		for _, f := range families {
			if f.GetName() == "pushmesh_nats_dropped_total" && f.GetMetric()[0].GetLabel()[0].GetValue() == "OVERLOADED" && f.GetMetric()[0].GetCounter().GetValue() > 0 {
				return nil
			}
		}
		return errors.New("nothing is counted")
	}
	join(t, m, loops[0], "room/1")
	join(t, m, loops[0], "cursor/a")
	stands, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	loops[0].mu.Lock()
	loops[0].onPost = func(e exchange.Event) {
		if _, live := e.(exchange.Live); live {
			once.Do(func() {
				close(stands)
				<-goOn
			})
		}
	}
	loops[0].mu.Unlock()
	w.router.Send(w.store.Publish("room/1", 1)...)
	<-stands
	if dropped() == nil {
		t.Error("something is counted that nobody dropped")
	}
	for n := range uint64(frames) {
		all := append(w.store.Publish("room/1", 1), &meshv1.Delivery{Topic: "cursor/a", ExpiresAt: n})
		if n%2 == 0 {
			w.router.Send(all...)
		} else {
			w.router.Broadcast(all...)
		}
	}
	edgetest.WaitFor(t, "drops", dropped)
	close(goOn)
	want := "1"
	for seq := 2; seq <= frames+1; seq++ {
		want += fmt.Sprint(" ", seq)
	}
	waitLive(t, loops[0], "room/1", want)
	if n := m.stats.ShedFrames.Load(); n != 0 {
		t.Errorf("%d frames were let go because of their size", n)
	}
}
