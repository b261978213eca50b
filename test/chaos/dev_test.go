package chaos

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// received is what a session's handler saw, across all its connections.
type received struct {
	mu     sync.Mutex
	topics map[string][]int // numbers of messages in order, each once
	count  int
	gaps   []pushmesh.Gap
}

// take notes a message; one that comes again because its ACK was lost counts once.
func (r *received) take(topic string, body []byte) error {
	n, err := strconv.Atoi(string(body))
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.topics[topic], n) {
		r.topics[topic] = append(r.topics[topic], n)
		r.count++
	}
	return nil
}

func (r *received) total() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// `pushmesh dev` is killed with a thousand messages of a session waiting, and again while it
// delivers them and new ones. Whatever was published OK arrives, in order, and nobody is told of a
// gap: what the namespace is like is known before anything is served.
func TestAKilledDevKeepsWhatWaitsForASession(t *testing.T) {
	t.Parallel()
	const topics, waiting, live = 4, 1000, 200
	m := procmesh.StartDev(t)
	conn, err := grpc.NewClient(m.Router, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := pushmeshv1.NewNamespaceServiceClient(conn).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
		Namespace: &pushmeshv1.Namespace{Prefix: "orders", Policy: &pushmeshv1.Policy{Durable: true}},
	}); err != nil {
		t.Fatal(err)
	}
	got := &received{topics: map[string][]int{}}
	subscribe := func() *pushmesh.Subscriber {
		s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{m.Edge}, ClientID: "worker", Session: "work", MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond, OnGap: func(g pushmesh.Gap) {
			got.mu.Lock()
			defer got.mu.Unlock()
			got.gaps = append(got.gaps, g)
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Subscribe(t.Context(), "orders/+", func(_ context.Context, d *pushmesh.Delivery) error {
			return got.take(d.Topic, d.Payload)
		}, pushmesh.FromSession(), pushmesh.WithAck()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if err := closing.Close(subscribe()); err != nil {
		t.Fatal(err)
	}

	producer, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: []string{m.Router}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closing.Close(producer) }()
	publish := func(from, to int) {
		for n := from; n < to; n++ {
			if err := producer.PublishAsync(t.Context(), pushmesh.Message{Topic: fmt.Sprint("orders/", n%topics), Payload: []byte(strconv.Itoa(n))},
				func(r pushmesh.Result, err error) {
					if err != nil || r.Seq == 0 {
						t.Errorf("message %d: %+v, %v", n, r, err)
					}
				}); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish(0, waiting)
	if err := producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := func() {
		m.Kill()
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
	}
	again()
	publish(waiting, waiting+live) // while it starts
	s := subscribe()
	defer func() { _ = closing.Close(s) }()
	procmesh.Await(t, "some have arrived", func() bool { return got.total() >= waiting/10 })
	again()
	if err := producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	procmesh.Await(t, "all have arrived", func() bool { return got.total() == waiting+live })
	got.mu.Lock()
	defer got.mu.Unlock()
	for topic, numbers := range got.topics {
		if !slices.IsSorted(numbers) {
			t.Errorf("%s arrived in the order %v", topic, numbers)
		}
	}
	if len(got.gaps) > 0 {
		t.Errorf("gaps: %+v", got.gaps)
	}
}
