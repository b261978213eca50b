package delivery

import (
	"testing"

	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// chatting has clients publish under room.
func chatting(t tester) *world {
	w := newWorld(t, Limits{})
	w.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "room", Policy: &pushmeshv1.Policy{Durable: true, ClientPublish: true}}})
	return w
}

// says has a connection publish, and passes over the answer.
func (c *client) says(topic, payload string) {
	c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Topic: topic, Payload: []byte(payload)})
}

func TestNoEcho(t *testing.T) {
	w := chatting(t)
	ann := w.connect(&wirev1.Hello{ClientId: "ann"})
	bob := w.connect(&wirev1.Hello{ClientId: "bob"})
	for _, c := range []*client{ann, bob} {
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", NoEcho: true})
		c.expect("Subscribed 1 head=0")
	}
	ann.says("room/1", "a")
	bob.expect("room/1/1 subs=[1]")
	ann.expect()
	bob.says("room/1", "b")
	ann.expect("Progress room/1 1..1 FILTERED", "room/1/2 subs=[1]")
	bob.expect()

	// what is read from the log, and over another connection of the client
	late := w.connect(&wirev1.Hello{ClientId: "ann"})
	late.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", NoEcho: true, Start: wirev1.Start_START_EARLIEST})
	late.expect("Subscribed 1 head=2", "Progress room/1 1..1 FILTERED", "room/1/2 subs=[1]")
	all := w.connect(&wirev1.Hello{ClientId: "ann"})
	all.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Start: wirev1.Start_START_EARLIEST})
	all.expect("Subscribed 1 head=2", "room/1/1 subs=[1]", "room/1/2 subs=[1]")
}

// What no log has is left out, too; by its name, and by wildcards.
func TestNoEchoOfWhatNoLogHas(t *testing.T) {
	for _, filter := range []string{"room/1", "room/+"} {
		w := newWorld(t, Limits{})
		c := w.connect(&wirev1.Hello{ClientId: "ann"})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: filter, NoEcho: true})
		c.expect("Subscribed 1 head=0")
		for _, who := range []string{"ann", "bob", ""} {
			msgs := upstreamtest.Run("room/1", 0, 0, who)
			if who != "" {
				msgs[0].Origin = identity.Origin("", who)
			}
			w.mesh.Live(msgs...)
		}
		c.expect("room/1=bob subs=[1]", "room/1= subs=[1]")
	}
}

// A session passes over its client's own messages: they are neither owed nor waited for.
func TestNoEchoOfASession(t *testing.T) {
	w := chatting(t)
	hello := &wirev1.Hello{Version: 1, ClientId: "ann", Session: "s", HeartbeatMs: 600_000}
	c := w.connect(hello)
	sub := &wirev1.Subscribe{Id: 1, Filter: "room/1", Start: wirev1.Start_START_SESSION, Ack: true, NoEcho: true}
	c.subscribe(sub)
	c.expect("Subscribed 1 head=0")
	c.says("room/1", "mine")
	w.mesh.Send("room/1", "other")
	c.says("room/1", "mine")
	c.expect("Progress room/1 1..1 FILTERED", "room/1/2 subs=[1]")
	c.ack("room/1", 2, false)
	w.h.Gone(c.slot)
	w.settle()
	c = w.dial()
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, hello)
	c.expect("Welcome resumed")
	c.subscribe(sub)
	c.expect("Subscribed 1 head=3")
	w.mesh.Send("room/1", "another")
	c.expect("room/1/4 subs=[1]")
}
