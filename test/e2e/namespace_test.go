package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// A change of a namespace is acted upon within a second by every router, edge and store, with
// everybody connected: by word over NATS, by the version in the stores' beats where that word is
// lost, and by asking where there is no NATS. A machine that stands still takes longer: the best of
// some rounds counts.
func TestNamespaceChangesReachEveryTierInASecond(t *testing.T) {
	m := harness.Start(t, harness.Options{Edges: 2, Routers: 2, Stores: 2, DB: pgtest.URL(t), Proxy: true})
	w := &changes{Mesh: m, routers: m.Routers(t)}
	w.bothStoresOwn(t)
	for _, c := range []struct {
		name  string
		begin func()
		bus   bool
	}{
		{"by word", func() { m.Proxy.Lose(question) }, true},
		{"by the version in beats", func() {
			m.Proxy.Lose(func(subject string, body []byte) bool {
				return question(subject, body) || subject == bus.NamespacesChanged
			})
		}, true},
		{"without NATS", func() { m.Proxy.SetDown(true) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.begin()
			best := time.Hour
			for rounds := 0; best > time.Second; rounds++ {
				if rounds == 10 {
					t.Fatalf("at best after %v", best)
				}
				best = min(best, w.round(t, c.bus))
			}
			t.Logf("every tier acts after %v", best.Round(time.Millisecond))
		})
	}
}

// question reports whether a message is one of the router that made a change, by which processes
// learn of it too. Where these are lost, the router's answer comes late.
func question(subject string, _ []byte) bool { return strings.HasPrefix(subject, bus.NamespacesAt("")) }

// topics of a round: so many that each store owns some.
const topics = 32

// changes is a mesh whose namespaces change.
type changes struct {
	*harness.Mesh
	routers []*grpc.ClientConn
	rounds  int
	puts    sync.WaitGroup // changes under way
}

func (w *changes) bothStoresOwn(t *testing.T) {
	t.Helper()
	procmesh.Await(t, "both stores own shards", func() bool {
		nodes, err := pushmeshv1.NewMeshServiceClient(w.routers[0]).Nodes(t.Context(), &pushmeshv1.MeshServiceNodesRequest{})
		owners := 0
		for _, n := range nodes.GetNodes() {
			if n.GetTier() == pushmeshv1.Tier_TIER_STORE && n.GetShards() > 400 {
				owners++
			}
		}
		return err == nil && owners == 2
	})
}

// put changes a namespace, once the change before it was answered. It does not wait for the answer.
func (w *changes) put(t *testing.T, prefix string, p *pushmeshv1.Policy) (changed time.Time) {
	t.Helper()
	w.puts.Wait()
	began := time.Now()
	w.puts.Go(func() {
		_, _, err := again(func() (*pushmeshv1.NamespaceServicePutResponse, error) {
			return pushmeshv1.NewNamespaceServiceClient(w.routers[0]).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
				Namespace: &pushmeshv1.Namespace{Prefix: prefix, Policy: p},
			})
		})
		if err != nil {
			t.Error(err)
		}
	})
	return began
}

// round makes a namespace and changes it: what it keeps and takes, seen at stores and routers, and
// (with NATS) whether it is durable, seen at routers and edges. It returns how long the last of
// them needed for a change.
func (w *changes) round(t *testing.T, nats bool) time.Duration {
	t.Helper()
	w.rounds++
	ns := fmt.Sprintf("ns%d", w.rounds)
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("%s/%d", ns, i))
	}
	created := w.put(t, ns, &pushmeshv1.Policy{Durable: true})
	var all sync.WaitGroup
	for i := range w.routers {
		all.Go(func() { w.seen(t, created, func() bool { return w.takes(t, i, names[0], true) }) })
	}
	all.Wait()
	for i, name := range names {
		w.seen(t, created, func() bool { return w.takes(t, i%len(w.routers), name, true) })
	}
	published := time.Now()
	procmesh.Await(t, "messages are a second old", func() bool { return time.Since(published) > 1200*time.Millisecond })

	var mu sync.Mutex
	var last time.Duration
	watch := func(changed time.Time, ok func() bool) {
		all.Go(func() {
			took := w.seen(t, changed, ok)
			mu.Lock()
			defer mu.Unlock()
			last = max(last, took)
		})
	}
	changed := w.put(t, ns, &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(time.Second), MaxPayload: 10})
	for i := range w.routers {
		watch(changed, func() bool { return w.refuses(t, i, names[0]) })
	}
	watch(changed, func() bool { return w.forgotten(t, names[1:]) })
	all.Wait()
	if !nats {
		changed = w.put(t, ns, &pushmeshv1.Policy{})
	} else {
		changed = w.put(t, ns, &pushmeshv1.Policy{MaxPayload: 10})
		for i := range w.routers {
			watch(changed, func() bool { return w.takes(t, i, names[0], false) })
		}
	}
	for _, addr := range w.EdgeAddrs {
		c, _ := wireclient.Connect(t, addr, &wirev1.Hello{HeartbeatMs: 600_000})
		id := uint32(0)
		watch(changed, func() bool {
			id++
			s := c.Subscribe(&wirev1.Subscribe{Id: id, Filter: names[1]})
			c.Send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: id})
			wireclient.Expect(c, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{})
			return s.GetEpoch() == 0
		})
	}
	all.Wait()
	w.puts.Wait()
	return last
}

// seen asks until the answer shows the change, and says when that question was asked.
func (w *changes) seen(t *testing.T, changed time.Time, ok func() bool) time.Duration {
	for began := time.Now(); ; {
		asked := time.Since(changed)
		if ok() {
			return asked
		}
		if time.Since(began) > 2*time.Minute {
			t.Error("a change is not acted upon")
			return time.Hour
		}
	}
}

func (w *changes) publish(t *testing.T, router int, topic, payload string) (*pushmeshv1.PublishResponse, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return pushmeshv1.NewPublishServiceClient(w.routers[router]).Publish(ctx, &pushmeshv1.PublishRequest{Topic: topic, Payload: []byte(payload)})
}

// takes reports whether a router takes a message, and as what. One that refuses for now, as it may
// where the machine stood still, doesn't.
func (w *changes) takes(t *testing.T, router int, topic string, durable bool) bool {
	resp, err := w.publish(t, router, topic, "12345")
	if err != nil && !code.Retryable(code.Of(err)) {
		t.Errorf("publish: %v", err)
	}
	return err == nil && (resp.GetSeq() > 0) == durable
}

func (w *changes) refuses(t *testing.T, router int, topic string) bool {
	_, err := w.publish(t, router, topic, strings.Repeat("x", 11))
	return code.Of(err) == wirev1.Code_CODE_PAYLOAD_TOO_LARGE
}

// forgotten reports whether nothing of the topics is retained any more, whichever store has them.
func (w *changes) forgotten(t *testing.T, topics []string) bool {
	resp, err := pushmeshv1.NewHistoryServiceClient(w.routers[0]).Head(t.Context(), &pushmeshv1.HeadRequest{Topics: topics})
	if err != nil {
		if !code.Retryable(code.Of(err)) {
			t.Errorf("heads: %v", err)
		}
		return false
	}
	for _, h := range resp.GetHeads() {
		if h.GetOldest() <= h.GetSeq() {
			return false
		}
	}
	return true
}
