package delivery

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
)

// A connection with a ticket is a backend's: it is another user than the client of that id, and may
// have the mesh's own topics.
func TestBackends(t *testing.T) {
	w := newWorld(t, Limits{})
	liar := w.dial()
	// nobody gives tickets here
	liar.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, Ticket: []byte("good")})
	liar.expect("Error UNAUTHENTICATED ref=0")

	w.lets(principals.Config{Redeem: func(ticket []byte, now uint64) bool { return string(ticket) == "good" && now == w.h.wall }})
	liar = w.dial()
	liar.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, Ticket: []byte("bad")})
	liar.expect("Error UNAUTHENTICATED ref=0")

	w.h.cfg.Origin = func(slot uint32) string { return fmt.Sprint("192.0.2.", slot) }
	client := w.connect(&wirev1.Hello{ClientId: "a", Session: "s"})
	backend := w.connect(&wirev1.Hello{ClientId: "a", Session: "s", Ticket: []byte("good")})
	for user, want := range map[string]bool{"client:a": true, "backend:a": true, "a": false} {
		if held := w.mesh.Session(user, "s").Held; held != want {
			t.Errorf("%s has the session: %v", user, held)
		}
	}
	// A session counts for its client's address, a backend's for none: that is the router's.
	if c, b := w.mesh.Session("client:a", "s").Origin, w.mesh.Session("backend:a", "s").Origin; !strings.HasPrefix(c, "192.0.2.") || b != "" {
		t.Errorf("they count for %q and %q", c, b)
	}
	for i, filter := range []string{"$events/x", "$events/#", "$events", "$dea", "$deadly", "$", "$dead", "$dead/#"} {
		id := uint32(i + 1)
		client.subscribe(&wirev1.Subscribe{Id: id, Filter: filter})
		client.expect(fmt.Sprintf("Error FORBIDDEN ref=%d", id))
		backend.subscribe(&wirev1.Subscribe{Id: id, Filter: filter})
		backend.expect(fmt.Sprintf("Subscribed %d head=0", id))
	}
	for i, filter := range []string{"#", "+/x"} {
		id := uint32(20 + i)
		client.subscribe(&wirev1.Subscribe{Id: id, Filter: filter})
		client.expect(fmt.Sprintf("Subscribed %d head=0", id))
	}
	n := 0
	w.h.Event(exchange.Disconnect{User: "backend:a", Reply: func(c int) { n = c }})
	w.settle()
	if n != 1 {
		t.Errorf("%d were disconnected", n)
	}
	backend.expect("Error CANCELLED ref=0")
	client.expect()
}

// A group counts for the address of the client that joins it, and a backend's for none: that is the
// router's.
func TestGroupsCountForTheirAddress(t *testing.T) {
	w := newWorld(t, Limits{})
	w.lets(principals.Config{Redeem: func([]byte, uint64) bool { return true }})
	w.h.cfg.Origin = func(slot uint32) string { return fmt.Sprint("192.0.2.", slot) }
	client := w.connect(&wirev1.Hello{ClientId: "a"})
	backend := w.connect(&wirev1.Hello{ClientId: "a", Ticket: []byte("good")})
	client.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Group: "g", Ack: true})
	backend.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Group: "g", Ack: true})
	members := w.mesh.Members()
	if len(members) != 2 || members[0].Origin != fmt.Sprint("192.0.2.", client.slot) || members[1].Origin != "" {
		t.Errorf("members are %+v", members)
	}
}
