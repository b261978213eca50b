package chaos

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/backend"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// The edge behind two backends is killed while they consume: the stream with move goes on at the
// other edge by itself, the SDK opens another stream and resumes by positions. Neither misses a
// message, nor gets one before another that was published earlier.
func TestABackendsEdgeIsKilled(t *testing.T) {
	t.Parallel()
	const (
		topic = "chaos/backend"
		n     = 300
		kill  = 100 // while this one is being handled
	)
	m := begin(t, procmesh.Options{Edges: 2})
	conn, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })

	hello := &wirev1.Hello{ClientId: "worker", Session: "main", ReceiveWindow: 32}
	s, welcome := backend.Open(t, conn, hello, true)
	sdk := newReader(t, m.RouterAddrs, topic)
	for deadline := time.Now().Add(backend.Patience); welcome.GetEdge() != sdk.at; s, welcome = backend.Open(t, conn, hello, true) {
		if s.Close(); time.Now().After(deadline) {
			t.Fatal("no stream is at the edge of the other one")
		}
	}
	subscribe := &wirev1.Subscribe{Id: 1, Filter: topic, Ack: true, Start: wirev1.Start_START_SESSION}
	if sub, no := s.Subscribe(subscribe); sub == nil {
		t.Fatalf("refused: %v", no)
	}
	at, victim := welcome.GetEdge(), ""

	producer, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: m.RouterAddrs})
	if err != nil {
		t.Fatal(err)
	}
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for i := range n {
			if _, err := producer.Publish(t.Context(), pushmesh.Message{Topic: topic, Payload: []byte(strconv.Itoa(i + 1))}); err != nil {
				t.Errorf("publish: %v", err)
				return
			}
		}
	})
	// A machine that stands still moves streams too, before and after: where it is in the end
	// counts, not how often it moved.
	moves := 0
	for high := uint64(0); high < n; {
		e := s.Must()
		switch msg := e.GetMessage(); {
		case e.GetWelcome() != nil:
			moves++
			if at = e.GetWelcome().GetEdge(); !e.GetWelcome().GetResumed() {
				t.Errorf("welcome: %v", e.GetWelcome())
			}
		case e.GetSubscribed() != nil && (!e.GetSubscribed().GetRecovered() || e.GetSubscribed().GetMissed() > 0):
			t.Errorf("subscribed: %v", e.GetSubscribed())
		case msg == nil:
		case msg.GetSeq() > high+1 || string(msg.GetPayload()) != strconv.FormatUint(msg.GetSeq(), 10):
			t.Fatalf("%d %q after %d", msg.GetSeq(), msg.GetPayload(), high)
		default:
			high = max(high, msg.GetSeq())
			if msg.GetSeq() == kill && victim == "" {
				victim = at
				m.Edges[slices.IndexFunc(m.Edges, func(p *procmesh.Process) bool { return p.Name == victim })].Kill()
			}
			s.Ack(msg)
		}
	}
	if at == victim {
		t.Errorf("the stream got everything from %s, which is dead", victim)
	}
	t.Logf("%d moves", moves)
	publishing.Wait()
	if err := closing.Close(producer); err != nil {
		t.Error(err)
	}
	select {
	case <-sdk.done:
	case <-time.After(backend.Patience):
		t.Fatal("the SDK's subscriber did not get everything")
	}
	if sdk.bad != "" {
		t.Error(sdk.bad)
	}
	if err := s.HalfClose(); err != nil {
		t.Errorf("half-closed: %v", err)
	}
}

// reader is a subscriber of the SDK's through routers, until it has 300 messages.
type reader struct {
	at   string // edge of its first connection
	done chan struct{}
	bad  string
}

func newReader(t *testing.T, routers []string, topic string) *reader {
	t.Helper()
	r := &reader{done: make(chan struct{})}
	first := make(chan string, 1)
	s, err := pushmesh.NewBackend(pushmesh.SubscriberConfig{
		Addrs: routers, MaxBackoff: time.Second,
		OnConnect: func(c pushmesh.Connection) {
			select {
			case first <- c.Edge:
			default:
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Close(s) })
	high := 0
	handle := func(_ context.Context, d *pushmesh.Delivery) error {
		if high++; string(d.Payload) != strconv.Itoa(high) && r.bad == "" {
			r.bad = "the SDK's subscriber got " + string(d.Payload) + " for " + strconv.Itoa(high)
		}
		if high == 300 {
			close(r.done)
		}
		return nil
	}
	if _, err := s.Subscribe(t.Context(), topic, handle, pushmesh.WithAck()); err != nil {
		t.Fatal(err)
	}
	r.at = <-first
	return r
}
