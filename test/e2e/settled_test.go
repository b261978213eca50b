package e2e

import (
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// Whoever is answered that a namespace is durable may publish and subscribe at once, at any router
// and any edge: nothing is taken by the policy of before, which would answer OK to a message that
// is stored nowhere.
func TestAChangedNamespaceAppliesEverywhereOncePutIsAnswered(t *testing.T) {
	m := harness.Start(t, harness.Options{Edges: 2, Routers: 2})
	routers := m.Routers(t)
	var clients []*wireclient.Client
	for _, addr := range m.EdgeAddrs {
		c, _ := wireclient.Connect(t, addr, &wirev1.Hello{HeartbeatMs: 600_000})
		clients = append(clients, c)
	}
	for i := range uint32(30) {
		prefix := fmt.Sprintf("fresh%d", i)
		putEverywhere(t, routers[i%2], prefix, &pushmeshv1.Policy{Durable: true})
		for edge, c := range clients {
			if s := c.Subscribe(&wirev1.Subscribe{Id: i + 1, Filter: prefix + "/1", Start: wirev1.Start_START_EARLIEST}); s.GetEpoch() == 0 {
				t.Fatalf("edge %d treats %s/1 as ephemeral", edge, prefix)
			}
		}
		resp, err := pushmeshv1.NewPublishServiceClient(routers[(i+1)%2]).Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: prefix + "/1", Payload: []byte("x")})
		if err != nil || resp.GetSeq() == 0 {
			t.Fatalf("%s/1 is answered %v, %v: it is stored nowhere", prefix, resp, err)
		}
		for _, c := range clients {
			if m := c.Message(); m.GetTopic() != prefix+"/1" || m.GetSeq() != resp.GetSeq() {
				t.Fatalf("%s/1 came as %v, published as %v", prefix, m, resp)
			}
		}
	}
}
