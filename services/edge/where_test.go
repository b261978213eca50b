package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Ten thousand distinct filters of one topic take milliseconds for each message, and no loop is
// late for that. A machine that others keep busy may be: the best of some rounds counts.
func TestTenThousandFiltersLeaveLoopsInTime(t *testing.T) {
	const conns, each, messages, rounds = 10, 1000, 20, 10
	w := newWorld(t)
	s := w.settings("e1")
	s.WhereBudget, s.ShedLag = 100*time.Millisecond, time.Minute
	e, _ := w.edgeWith(s)
	var clients []*client
	for i := range conns {
		c := w.client(e, &wirev1.Hello{})
		for j := range each {
			n := i*each + j
			c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(j + 1), Filter: "cursor/hot", Where: fmt.Sprintf("priority == %d", n)})
		}
		for range each {
			c.read(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{})
		}
		clients = append(clients, c)
	}
	// its priority is what the first filter wants
	body, err := wire.Body(&wirev1.Message{Payload: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	var all []*meshv1.Delivery
	for range messages {
		all = append(all, &meshv1.Delivery{Topic: "cursor/hot", Body: body})
	}
	sent := 0
	warnings := func() (n []uint64) {
		for _, l := range e.loops {
			n = append(n, l.Stats().Lag.Warnings)
		}
		return n
	}
	samples := func() uint64 { return e.loops[0].Stats().Lag.Samples }
	for round := range rounds {
		before, sampled := warnings(), samples()
		for samples() < sampled+3 {
			w.router.Send(all...)
			for range all {
				clients[0].read(wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{})
			}
			sent += messages
		}
		after := warnings()
		for _, f := range e.mesh.Figures() {
			if f.Name == "where_evaluations_total" && f.N != float64(sent*conns*each) {
				t.Fatalf("%.0f evaluations for %d messages", f.N, sent)
			}
		}
		if fmt.Sprint(before) == fmt.Sprint(after) {
			return
		}
		t.Logf("round %d: loops were late by more than 50 ms %v times, %v before", round, after, before)
	}
	t.Errorf("a loop was late by more than 50 ms in each of %d rounds", rounds)
}
