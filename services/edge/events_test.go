package edge

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// told is what the router was told, in short, sorted: loops are not in step.
func (w *world) told() string {
	all, topics := w.router.Events()
	var out []string
	for i, e := range all {
		text := strings.TrimPrefix(topics[i], "$events/")
		switch {
		case e.GetConnect() != nil:
			text += " " + e.GetConnect().GetConnection().GetClientId()
		case e.GetDisconnect() != nil:
			text += fmt.Sprint(" ", e.GetDisconnect().GetConnection().GetClientId(), " ", e.GetDisconnect().GetCode())
		case e.GetSubscribe() != nil:
			text += " " + e.GetSubscribe().GetFilter()
		case e.GetUnsubscribe() != nil:
			text += " " + e.GetUnsubscribe().GetFilter()
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// count is a figure of the edge.
func (e *Edge) count(name, value string) float64 {
	for _, f := range e.mesh.Figures() {
		if f.Name == name && f.Value == value {
			return f.N
		}
	}
	return -1
}

// While nobody listens nothing is told. Then every kind is, with its namespace, up to the planned
// stop of the edge.
func TestEventsAreToldWhileTheyAreWanted(t *testing.T) {
	w := newWorld(t)
	e, stop := w.edge("e1")
	w.client(e, &wirev1.Hello{ClientId: "early"}).conn.Close()
	edgetest.WaitFor(t, "the end of a connection", func() error {
		if n := e.connections(); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	if n := e.count("events_total", "OK"); n != 0 || w.told() != "" {
		t.Fatalf("%v events that nobody wants: %s", n, w.told())
	}
	w.router.WantEvents(events.Connect, events.Disconnect, events.Subscribe, events.Unsubscribe)
	edgetest.WaitFor(t, "the loops' word", func() error { // each loop hears it by itself
		w.client(e, &wirev1.Hello{ClientId: "probe"}).conn.Close()
		if len(w.told()) == 0 {
			return fmt.Errorf("nothing is told")
		}
		return nil
	})
	w.awaitLoops(e)
	before := w.told()
	w.router.WantEvents()
	w.awaitLoops(e)
	late := w.client(e, &wirev1.Hello{ClientId: "late"})
	late.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "late"})
	late.read(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{})
	late.conn.Close()
	edgetest.WaitFor(t, "its end", func() error {
		if n := e.subscribers("late"); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	w.router.WantEvents(events.Disconnect, events.Subscribe, events.Unsubscribe)
	w.awaitLoops(e)
	if strings.Contains(w.told(), "late") {
		t.Errorf("told of one that nobody wanted to hear of: %s after %s", w.told(), before)
	}
	c := w.client(e, &wirev1.Hello{ClientId: "ann"})
	for i, filter := range []string{"room/1", "room/+", "#", "talk"} {
		c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(i + 1), Filter: filter})
		c.read(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{})
	}
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 2})
	c.read(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"subscribe/room room/1", "subscribe/room room/+", "subscribe/default #", "subscribe/default talk", "unsubscribe/room room/+", "disconnect ann CODE_DRAINING"} {
		if !strings.Contains(w.told(), want) {
			t.Errorf("%q is missing in %s", want, w.told())
		}
	}
}

// awaitLoops waits until every loop has heard what the mesh knows by now of what is wanted.
func (w *world) awaitLoops(e *Edge) {
	w.t.Helper()
	edgetest.WaitFor(w.t, "a beat", func() error {
		if got := e.mesh.WantedEvents(); got != w.router.Wanted() {
			return fmt.Errorf("%b, want %b", got, w.router.Wanted())
		}
		return nil
	})
	e.subscribers("any")
}

// subscribers of a topic, as each loop answers when its turn comes.
func (e *Edge) subscribers(topic string) (n uint64) {
	for i := range e.loops {
		answer := make(chan uint64, 1)
		e.mesh.Post(uint16(i), exchange.Count{Topics: []string{topic}, Reply: func(counts []uint64) { answer <- counts[0] }})
		n += <-answer
	}
	return n
}
