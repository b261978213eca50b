package e2e

import (
	"context"
	"encoding/binary"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

func TestMain(m *testing.M) {
	code := m.Run()
	procmesh.Cleanup()
	os.Exit(code)
}

// watcher checks one subscriber's stream: numbers 1, 2, 3, … each once.
type watcher struct {
	next atomic.Uint64
	bad  atomic.Uint64
}

func watch(t *testing.T, addrs []string, topic string) *watcher {
	t.Helper()
	w := &watcher{}
	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: addrs, MaxBackoff: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Close(sub) })
	handle := func(_ context.Context, d *pushmesh.Delivery) error {
		if got := binary.BigEndian.Uint64(d.Payload); got != w.next.Add(1) {
			w.bad.Store(got)
		}
		return nil
	}
	if _, err := sub.Subscribe(t.Context(), topic, handle, pushmesh.WithAck()); err != nil {
		t.Fatal(err)
	}
	return w
}

// A planned stop of any tier under 5,000 messages a second ends with exit code 0 in time, loses
// nothing, and an edge tells every client to go away first.
func TestPlannedStopsLoseNothing(t *testing.T) {
	t.Parallel()
	const (
		topic = "stop/1"
		rate  = 5000
	)
	m := procmesh.Start(t, procmesh.Options{Edges: 2, Routers: 2, DB: pgtest.URL(t)})
	m.Namespace(t, "stop", &pushmeshv1.Policy{Durable: true})
	var watchers []*watcher
	for i := range 4 {
		addrs := []string{m.EdgeAddrs[i%2], m.EdgeAddrs[1-i%2]}
		watchers = append(watchers, watch(t, addrs, topic))
	}
	told, _ := wireclient.Connect(t, m.EdgeAddrs[0], &wirev1.Hello{})
	told.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/quiet"})

	producer, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: m.RouterAddrs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Close(producer) })
	var published, failed atomic.Uint64
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			for range rate / 100 {
				payload := binary.BigEndian.AppendUint64(nil, published.Add(1))
				err := producer.PublishAsync(context.Background(), pushmesh.Message{Topic: topic, Payload: payload}, func(_ pushmesh.Result, err error) {
					if err != nil {
						failed.Add(1)
					}
				})
				if err != nil {
					failed.Add(1)
				}
			}
		}
	}()

	under := func(n uint64) func() bool { return func() bool { return watchers[0].next.Load() > n } }
	procmesh.Await(t, "traffic flows", under(rate/2))
	for _, p := range []*procmesh.Process{m.Edges[0], m.Routers[0], m.Stores[0]} {
		before := watchers[0].next.Load()
		p.Signal(syscall.SIGTERM)
		if p == m.Edges[0] {
			wireclient.Expect(told, wirev1.FrameType_FRAME_TYPE_GO_AWAY, &wirev1.GoAway{})
		}
		ctx, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
		exit, err := p.Wait(ctx)
		cancel()
		if err != nil || exit != 0 {
			t.Fatalf("%s: exit code %d, %v\n%s", p.Name, exit, err, p.Tail(4000))
		}
		restart(t, p)
		m.WaitReady(t)
		procmesh.Await(t, "traffic flows after "+p.Name+" came back", under(before+rate))
	}
	close(stop)
	<-ended
	ctx, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
	defer cancel()
	if err := producer.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for i, w := range watchers {
		procmesh.Await(t, "everything published is delivered", func() bool { return w.next.Load() >= published.Load() })
		if w.next.Load() != published.Load() || w.bad.Load() != 0 || failed.Load() != 0 {
			t.Errorf("subscriber %d: %d delivered of %d, a message out of order: %d, %d publishes failed", i, w.next.Load(), published.Load(), w.bad.Load(), failed.Load())
		}
	}
	t.Logf("%d messages, 3 stops", published.Load())
}
