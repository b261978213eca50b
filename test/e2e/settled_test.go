package e2e

import (
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// Whoever is answered that a namespace is durable may publish and subscribe at once, at any router and any edge: nothing is taken by the policy of before, which
// would answer OK to a message that is stored nowhere.
func TestAChangedNamespaceAppliesEverywhereOncePutIsAnswered(t *testing.T) {
	m := harness.Start(t, harness.Options{Edges: 2, Routers: 2})
	routers := m.Routers(t)
	var clients []*wireclient.Client
	for _, addr := range m.EdgeAddrs {
		c, _ := wireclient.Connect(t, addr, &wirev1.Hello{HeartbeatMs: 600_000})
		clients = append(clients, c)
	}
	unstored, unseen := 0, 0
	const rounds = 30
	for i := range uint32(rounds) {
		prefix := fmt.Sprintf("fresh%d", i)
		put, err := pushmeshv1.NewNamespaceServiceClient(routers[i%2]).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
			Namespace: &pushmeshv1.Namespace{Prefix: prefix, Policy: &pushmeshv1.Policy{Durable: true}},
		})
		if err != nil || len(put.GetLagging()) > 0 {
			t.Fatalf("put: lagging: %v, %v", put.GetLagging(), err)
		}
		for _, c := range clients {
			if s := c.Subscribe(&wirev1.Subscribe{Id: i + 1, Filter: prefix + "/1", Start: wirev1.Start_START_EARLIEST}); s.GetEpoch() == 0 {
				unseen++
			}
		}
		resp, err := pushmeshv1.NewPublishServiceClient(routers[(i+1)%2]).Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: prefix + "/1", Payload: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		if resp.GetSeq() == 0 {
			unstored++
		}
	}
	if unstored+unseen > 0 {
		t.Errorf("of %d changes: %d messages were answered OK and stored nowhere, and %d subscriptions treated the topic as ephemeral", rounds, unstored, unseen)
	}
}
