package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/kept"
)

// A session that could be made within --connection-memory can be resumed within it.
func TestASessionThatWasMadeCanBeResumed(t *testing.T) {
	w := newWorld(t, Limits{}).bounded(kept.Config{Connection: 512 << 10, Windows: 256 << 10})
	w.manyTopics(600)
	c := w.session()
	c.subscribeSession("many/+")
	w.settle()
	c.take()
	if f := c.got[len(c.got)-1].text(); f[:10] != "Subscribed" {
		t.Fatal(f)
	}
	w.pass(time.Second)
	w.h.Gone(c.slot)
	w.settle()
	for i := range 3 {
		c = w.session()
		c.subscribeSession("many/+")
		w.pass(10 * time.Second)
		c.take()
		if f := c.got[len(c.got)-1].text(); f[:5] == "Error" {
			t.Errorf("resumed for the %dth time: %s", i+1, f)
		}
		w.h.Gone(c.slot)
		w.settle()
	}
}

// A session with 100 positions is within what each connection has whatever others have (64 KiB).
func TestASmallSessionIsResumedWhateverOthersHave(t *testing.T) {
	w := newWorld(t, Limits{}).bounded(kept.Config{Windows: 1 << 20, Connection: 2 << 20, Loop: 1 << 20})
	w.manyTopics(100)
	c := w.session()
	c.subscribeSession("many/+")
	w.pass(time.Second)
	w.h.Gone(c.slot)
	w.settle()
	hog := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ClientId: "hog"})
	hog.subscribe(&wirev1.Subscribe{Id: 1, Filter: "seen/+"})
	for i := range 4000 {
		w.mesh.Send(fmt.Sprint("seen/", i), "x")
	}
	w.settle()
	hog.take()
	plain := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ClientId: "bob"})
	plain.subscribe(&wirev1.Subscribe{Id: 1, Filter: "many/+", Start: wirev1.Start_START_EARLIEST})
	plain.take()
	c = w.session()
	c.subscribeSession("many/+")
	w.settle()
	c.take()
	if f := c.got[len(c.got)-1].text(); f[:5] == "Error" {
		t.Errorf("with its session: %s", f)
	}
}
