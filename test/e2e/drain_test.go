package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// guest is a client with a durable session that knows one edge alone; others it knows from GoAway.
type guest struct {
	sub  *pushmesh.Subscriber
	next atomic.Uint64
	bad  atomic.Uint64
	edge atomic.Pointer[string]
}

func newGuest(t *testing.T, addr, topic string, n int) *guest {
	t.Helper()
	g := &guest{}
	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{
		Addrs: []string{addr}, ClientID: fmt.Sprint("guest-", n), Session: "inbox", MaxBackoff: 200 * time.Millisecond,
		OnConnect: func(c pushmesh.Connection) { g.edge.Store(&c.Edge) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Close(sub) })
	handle := func(_ context.Context, d *pushmesh.Delivery) error {
		got := binary.BigEndian.Uint64(d.Payload)
		if next := g.next.Load() + 1; got == next {
			g.next.Store(got)
		} else if got > next {
			g.bad.Store(got)
		}
		return nil
	}
	if _, err := sub.Subscribe(t.Context(), topic, handle, pushmesh.WithAck()); err != nil {
		t.Fatal(err)
	}
	g.sub = sub
	return g
}

func (g *guest) at(edge string) bool { e := g.edge.Load(); return e != nil && *e == edge }

// publishing numbers messages of a topic from 1 until stop.
func publishing(t *testing.T, addrs []string, topic string) (stop func() (published uint64)) {
	t.Helper()
	producer, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: addrs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Close(producer) })
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan uint64, 1)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		n := uint64(0)
		defer func() { said <- n }()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if _, err := producer.Publish(context.Background(), pushmesh.Message{Topic: topic, Payload: binary.BigEndian.AppendUint64(nil, n+1)}); err != nil {
				t.Error(err)
				return
			}
			n++
		}
	}()
	return func() uint64 { cancel(); return <-said }
}

// edgesReady is how many edges have told a router that they are.
func edgesReady(ctx context.Context, router string) (n int) {
	conn, err := grpc.NewClient(router, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0
	}
	defer func() { _ = conn.Close() }()
	resp, err := pushmeshv1.NewMeshServiceClient(conn).Nodes(ctx, &pushmeshv1.MeshServiceNodesRequest{})
	for _, node := range resp.GetNodes() {
		if err == nil && node.GetTier() == pushmeshv1.Tier_TIER_EDGE && node.GetReady() == pushmeshv1.Ready_READY_YES {
			n++
		}
	}
	return n
}

// A share of an edge's clients goes to another edge, then all of those that are left, a few at a
// time; sessions miss nothing, and clients find the other edge by what GoAway names alone.
func TestRebalanceAndDrainMoveSessions(t *testing.T) {
	t.Parallel()
	const topic, guests = "room/moves", 40
	m := procmesh.Start(t, procmesh.Options{Edges: 2, EdgeArgs: []string{"--drain-pace", "40"}})
	var all []*guest
	for i := range guests {
		all = append(all, newGuest(t, m.EdgeAddrs[0], topic, i))
	}
	on := func(edge string) (n int) {
		for _, g := range all {
			if g.at(edge) {
				n++
			}
		}
		return n
	}
	stop := publishing(t, m.RouterAddrs, topic)
	reached := func(n uint64) {
		t.Helper()
		procmesh.Await(t, fmt.Sprintf("everybody has %d messages", n), func() bool {
			for _, g := range all {
				if g.next.Load() < n && g.bad.Load() == 0 {
					return false
				}
			}
			return true
		})
	}
	reached(20)
	known := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
		defer cancel()
		return edgesReady(ctx, m.RouterAddrs[0]) == 2
	}
	procmesh.Await(t, "the edges are known to be ready", known)
	var out string
	procmesh.Await(t, "the rebalance", func() bool {
		// where a digest is late, the edge is not known for a while
		ctx, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
		defer cancel()
		b, err := exec.CommandContext(ctx, m.Pushmesh, "rebalance", "edge-1", "--share", "0.5", "--within", "500ms", "--router", m.RouterAddrs[0]).CombinedOutput()
		out = string(b)
		return err == nil
	})
	var moving int
	// Each loop rounds its share.
	if _, err := fmt.Sscanf(out, "%d connections are sent to other edges\n", &moving); err != nil || moving < 10 || moving > 30 {
		t.Fatalf("it says %q", out)
	}
	procmesh.Await(t, "they move", func() bool { return on("edge-2") >= moving })
	reached(all[0].next.Load() + 50)
	if n := on("edge-2"); n != moving {
		t.Errorf("%d moved, %d were told", n, moving)
	}

	m.Edges[0].Signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
	defer cancel()
	exit, err := m.Edges[0].Wait(ctx)
	if err != nil || exit != 0 {
		t.Fatalf("exit code %d, %v\n%s", exit, err, m.Edges[0].Tail(4000))
	}
	procmesh.Await(t, "all move", func() bool { return on("edge-2") == guests })
	published := stop()
	reached(published)
	for i, g := range all {
		if g.bad.Load() != 0 || g.next.Load() != published {
			t.Errorf("guest %d: %d of %d messages, %d came too early", i, g.next.Load(), published, g.bad.Load())
		}
	}
	if log := m.Edges[0].Tail(4000); !strings.Contains(log, "edge drains") {
		t.Errorf("it says\n%s", log)
	}
}
