package chaos

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// A store is killed with SIGKILL again and again while values are published and deleted: what each
// topic keeps in the end is what was answered last, and no more.
func TestAKilledStoreKeepsLastMessages(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]procmesh.Options{"sqlite": {}, "postgres": {Stores: 2, DB: pgtest.URL(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := procmesh.Start(t, o)
			m.Namespace(t, "state", &pushmeshv1.Policy{Durable: true, Keep: pushmeshv1.Keep_KEEP_LAST})
			conn, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			const writers, each, kills = 8, 200, 4
			var mu sync.Mutex
			want := map[string]string{}
			progress := make(chan struct{}, writers*each)
			var all sync.WaitGroup
			for w := range writers {
				all.Go(func() {
					random := rand.New(rand.NewPCG(uint64(w), 77))
					for i := range each {
						topic, value := fmt.Sprintf("state/%d/%d", w, random.IntN(5)), ""
						if random.IntN(4) > 0 {
							value = fmt.Sprint("value ", i)
						}
						keep(t, pushmeshv1.NewPublishServiceClient(conn), topic, value, fmt.Sprintf("%d-%d", w, i))
						mu.Lock()
						if delete(want, topic); value != "" {
							want[topic] = value
						}
						mu.Unlock()
						progress <- struct{}{}
					}
				})
			}
			for k := range kills {
				for range writers * each / (kills + 1) {
					<-progress
				}
				victim := m.Stores[k%len(m.Stores)]
				victim.Kill()
				if err := victim.Start(); err != nil {
					t.Error(err)
				}
			}
			all.Wait()
			m.WaitReady(t)
			c, _ := wireclient.Connect(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: "wall"})
			c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "state/#"})
			keep(t, pushmeshv1.NewPublishServiceClient(conn), "state/end", "end", "end")
			got := map[string]string{}
			for len(got) < len(want)+1 { // with the end
				v := c.Message()
				if got[v.GetTopic()] != "" {
					t.Fatalf("%s/%d came, too", v.GetTopic(), v.GetSeq())
				}
				got[v.GetTopic()] = string(v.GetPayload())
			}
			for topic, value := range want {
				if got[topic] != value {
					t.Errorf("%s keeps %q, want %q", topic, got[topic], value)
				}
			}
			list, err := pushmeshv1.NewKeptServiceClient(conn).List(t.Context(), &pushmeshv1.KeptServiceListRequest{Limit: 1000})
			if err != nil || len(list.GetKept()) != len(want)+1 {
				t.Errorf("%d topics keep a message, want %d, %v", len(list.GetKept()), len(want)+1, err)
			}
		})
	}
}

// keep publishes until it is answered that it was.
func keep(t *testing.T, api pushmeshv1.PublishServiceClient, topic, value, key string) {
	t.Helper()
	procmesh.Await(t, topic+" is published", func() bool {
		_, err := api.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: topic, Payload: []byte(value), DedupeKey: key})
		return err == nil
	})
}
