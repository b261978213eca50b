package e2e

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// Who wants no echo gets what others publish, and nothing of its own: live, from the log after it
// has come back to another edge, and where no log is.
func TestNoEcho(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2, Routers: 2})
	putNamespace(t, m, "chat", &pushmeshv1.Policy{Durable: true, ClientPublish: true})
	putNamespace(t, m, "typing", &pushmeshv1.Policy{ClientPublish: true})
	ann, _ := wireclient.Connect(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: "ann"})
	bob, _ := wireclient.Connect(t, m.EdgeAddrs[1], &wirev1.Hello{ClientId: "bob"})
	for _, c := range []*wireclient.Client{ann, bob} {
		c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "chat/1", NoEcho: true})
		c.Subscribe(&wirev1.Subscribe{Id: 2, Filter: "typing/+", NoEcho: true})
	}
	says := func(c *wireclient.Client, topic, payload string) {
		t.Helper()
		c.Send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Topic: topic, Payload: []byte(payload)})
	}
	says(ann, "chat/1", "hello")
	got(t, bob, "chat/1", 1, "hello")
	says(bob, "chat/1", "hi")
	got(t, ann, "chat/1", 2, "hi")
	says(ann, "typing/1", "ann types")
	got(t, bob, "typing/1", 0, "ann types")
	says(bob, "typing/1", "bob types")
	got(t, ann, "typing/1", 0, "bob types")
	m.Publish(t, "chat/1", "from a backend")
	for _, c := range []*wireclient.Client{ann, bob} {
		got(t, c, "chat/1", 3, "from a backend")
	}

	late, _ := wireclient.Connect(t, m.EdgeAddrs[1], &wirev1.Hello{ClientId: "ann"})
	late.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "chat/1", NoEcho: true, Start: wirev1.Start_START_EARLIEST})
	got(t, late, "chat/1", 2, "hi")
	got(t, late, "chat/1", 3, "from a backend")
}
