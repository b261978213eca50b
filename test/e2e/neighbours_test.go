package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// Two whole meshes with databases of their own on one NATS, whose processes have the same ids and
// whose topics have the same names: each lists its own nodes, keeps its shards and its messages to
// itself, durable, ephemeral, for all edges at once, and of clients. It does not matter whether the
// meshes have one name.
func TestTwoWholeMeshesOnOneNATS(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, first, second string }{{"of one name", "", ""}, {"of two names", "one", "two"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			nats := harness.StartNATS(t)
			meshes := []*harness.Mesh{
				harness.Start(t, harness.Options{NATS: nats, Mesh: c.first, Edges: 3, Routers: 2}),
				harness.Start(t, harness.Options{NATS: nats, Mesh: c.second, Edges: 3, Routers: 2}),
			}
			var all [2][]*wireclient.Client
			topics := []string{"room/both", "both/live"}
			for i, m := range meshes {
				apart(t, m)
				_, err := pushmeshv1.NewNamespaceServiceClient(m.Router(t)).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{
					Prefix: "both", Policy: &pushmeshv1.Policy{ClientPublish: true},
				}})
				if err != nil {
					t.Fatal(err)
				}
				for e, addr := range m.EdgeAddrs {
					client, _ := wireclient.Connect(t, addr, &wirev1.Hello{ClientId: fmt.Sprint("c", e)})
					for s, topic := range topics {
						client.Subscribe(&wirev1.Subscribe{Id: uint32(s + 1), Filter: topic})
					}
					all[i] = append(all[i], client)
				}
			}
			const each = 20
			for i, m := range meshes {
				for n := range each {
					for _, topic := range topics {
						m.Publish(t, topic, fmt.Sprintf("%d/%d", i, n))
					}
				}
			}
			for i, clients := range all {
				for _, client := range clients {
					onlyOwn(t, client, fmt.Sprint(i, "/"), 2*each)
				}
			}
			for i, m := range meshes {
				apart(t, m)
				names := [2]string{c.first, c.second}
				if list := listed(t, m); list.GetMeshId() == "" || names[i] != "" && list.GetMeshName() != names[i] {
					t.Errorf("the router names mesh %q, id %q", list.GetMeshName(), list.GetMeshId())
				}
			}
		})
	}
}

func listed(t *testing.T, m *harness.Mesh) *pushmeshv1.MeshServiceNodesResponse {
	t.Helper()
	list, err := pushmeshv1.NewMeshServiceClient(m.Router(t)).Nodes(t.Context(), &pushmeshv1.MeshServiceNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// apart waits until a mesh lists its own nodes alone, and fails where it lists another's.
func apart(t *testing.T, m *harness.Mesh) {
	t.Helper()
	own := map[string]bool{}
	procmesh.Await(t, "every node is listed", func() bool {
		list := listed(t, m)
		clear(own)
		shards := uint32(0)
		for _, n := range list.GetNodes() {
			own[n.GetTier().String()+n.GetId()] = true
			if n.GetTier() == pushmeshv1.Tier_TIER_EDGE && !contains(m.EdgeAddrs, n.GetSubscriberAddress()) {
				t.Fatalf("another mesh's edge is listed: %v", n)
			}
			shards += n.GetShards()
		}
		return len(own) == 1+1+len(m.EdgeAddrs)+len(m.RouterAddrs) && shards == 1024
	})
}

func contains(addrs []string, addr string) bool {
	for _, a := range addrs {
		if strings.HasSuffix(addr, a[strings.LastIndexByte(a, ':'):]) {
			return true
		}
	}
	return false
}

// onlyOwn reads the mesh's own messages, n of them, and finds no other.
func onlyOwn(t *testing.T, c *wireclient.Client, prefix string, n int) {
	t.Helper()
	for range n {
		m := c.Message()
		if !strings.HasPrefix(string(m.GetPayload()), prefix) {
			t.Fatalf("a message of another mesh: %s of %s", m.GetPayload(), m.GetTopic())
		}
	}
	for {
		ft, body, err := c.Next(200 * time.Millisecond)
		if err != nil {
			return
		}
		if ft == wirev1.FrameType_FRAME_TYPE_MESSAGE {
			m, err := wireclient.Frame(ft, body)
			t.Errorf("one more message: %v, %v", m, err)
		}
	}
}
