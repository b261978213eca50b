package chaos

import (
	"slices"
	"strconv"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/backend"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// The edge behind a backend's stream with move is frozen, or stops as planned: the stream goes on
// at the other edge, and the backend gets every message in order.
func TestABackendsEdgeFreezesOrStops(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"freezes": syscall.SIGSTOP, "stops": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it takes a while until nobody waits for a frozen edge any more
			movesOn(t, signal)
		})
	}
}

func movesOn(t *testing.T, signal syscall.Signal) {
	const (
		topic = "chaos/backend"
		n     = 100
		half  = n / 2
	)
	m := begin(t, procmesh.Options{Edges: 2})
	conn, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s, welcome := backend.Open(t, conn, &wirev1.Hello{ClientId: "worker", Session: "main", ReceiveWindow: 32}, true)
	if sub, no := s.Subscribe(&wirev1.Subscribe{Id: 1, Filter: topic, Ack: true, Start: wirev1.Start_START_SESSION}); sub == nil {
		t.Fatalf("refused: %v", no)
	}
	producer, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: m.RouterAddrs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Close(producer) })
	publish := func(from, to int) {
		t.Helper()
		for i := from; i <= to; i++ {
			if _, err := producer.Publish(t.Context(), pushmesh.Message{Topic: topic, Payload: []byte(strconv.Itoa(i))}); err != nil {
				t.Fatalf("publish: %v", err)
			}
		}
	}
	at, high := welcome.GetEdge(), uint64(0)
	// until reads up to a seq and, where the stream has to move, until it has.
	until := func(seq uint64, left string) {
		t.Helper()
		for high < seq || at == left {
			e := s.Must()
			switch msg := e.GetMessage(); {
			case e.GetWelcome() != nil:
				if at = e.GetWelcome().GetEdge(); !e.GetWelcome().GetResumed() {
					t.Errorf("welcome: %v", e.GetWelcome())
				}
			case msg == nil:
			case msg.GetSeq() > high+1 || string(msg.GetPayload()) != strconv.FormatUint(msg.GetSeq(), 10):
				t.Fatalf("%d %q after %d", msg.GetSeq(), msg.GetPayload(), high)
			default:
				high = max(high, msg.GetSeq())
				s.Ack(msg)
			}
		}
	}
	publish(1, half)
	until(half, "")
	victim := at
	m.Edges[slices.IndexFunc(m.Edges, func(p *procmesh.Process) bool { return p.Name == victim })].Signal(signal)
	publish(half+1, n)
	until(n, victim)
	if err := s.HalfClose(); err != nil {
		t.Errorf("half-closed: %v", err)
	}
}
