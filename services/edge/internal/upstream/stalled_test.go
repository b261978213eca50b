package upstream

import (
	"fmt"
	"sync"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// An edge that takes in nothing for a while lets go of frames once more than 64 MiB wait, and
// counts them. What was durable in them is read from the log, in order and once.
func TestAnEdgeThatStoodStillLetsGo(t *testing.T) {
	w := newWorld(t)
	m, loops := w.edge("e1", 1)
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
	const frames = 192 // of half a MiB
	body := make([]byte, 512<<10)
	for n := range uint64(frames) {
		all := append(w.store.Publish("room/1", 1), &meshv1.Delivery{Topic: "cursor/a", ExpiresAt: n, Body: body})
		if n%2 == 0 {
			w.router.Send(all...)
		} else {
			w.router.Broadcast(all...)
		}
	}
	edgetest.WaitFor(t, "frames that wait", func() error {
		if n := len(m.inbox.C()); n < frames {
			return fmt.Errorf("%d of %d", n, frames)
		}
		return nil
	})
	close(goOn)
	want := "1"
	for seq := 2; seq <= frames+1; seq++ {
		want += fmt.Sprint(" ", seq)
	}
	waitLive(t, loops[0], "room/1", want)
	if shed := m.stats.ShedFrames.Load(); shed == 0 || shed >= frames {
		t.Errorf("%d of %d frames were let go", shed, frames)
	}
}
