package e2e

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/backend"
	"github.com/pushmesh/pushmesh/test/harness"
)

// Two backends in one group share a durable topic through routers. What one of them leaves behind
// without an ACK, the other gets, and all that comes later.
func TestBackendsShareATopic(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2, Routers: 2})
	putNamespace(t, m, "jobs", &pushmeshv1.Policy{Durable: true, AckTimeout: durationpb.New(patient)})
	const tries = 5
	for try := range tries {
		if backendsShare(t, m, fmt.Sprintf("jobs/backends-%d", try)) {
			return
		}
	}
	t.Errorf("in none of %d groups did both get their share, and the last all of the rest", tries)
}

// backendsShare is false where a message came again that nobody had left behind, as it does when
// the machine stands still for so long that another edge dispatches. That one is missing it waits
// for.
func backendsShare(t *testing.T, m *harness.Mesh, topic string) bool {
	t.Helper()
	const window = 10
	join := func(router int, client string) *backend.Stream {
		t.Helper()
		s, welcome := backend.Open(t, m.Routers(t)[router], &wirev1.Hello{ClientId: client, ReceiveWindow: window}, false)
		if sub, no := s.Subscribe(&wirev1.Subscribe{Id: 1, Filter: topic, Group: "workers", Ack: true}); sub == nil {
			t.Fatalf("%s at %s: %v", client, welcome.GetEdge(), no)
		}
		return s
	}
	leaves, stays := join(0, "leaves"), join(1, "stays")
	defer stays.Close()
	m.PublishBatch(t, topic, 2*window) // as many as the windows are together

	left := map[uint64]bool{}
	for i := range window {
		msg := leaves.Message()
		if msg.GetAttempt() > 0 {
			return false
		}
		if i%2 == 0 {
			leaves.Ack(msg)
		} else {
			left[msg.GetSeq()] = true
		}
	}
	began := time.Now()
	if err := leaves.HalfClose(); err != nil { // which has its ACKs taken
		t.Fatalf("half-closed: %v", err)
	}
	m.PublishBatch(t, topic, 2*window)

	const rest = window + window/2 + 2*window
	seen := map[uint64]bool{}
	for range rest {
		msg := stays.Message()
		seq := msg.GetSeq()
		if again := msg.GetAttempt() > 0; seen[seq] || again != left[seq] {
			t.Logf("%s: seq %d, attempt %d, seen %v, left behind %v", topic, seq, msg.GetAttempt(), seen[seq], left[seq])
			return false
		}
		seen[seq] = true
		stays.Ack(msg)
	}
	for seq := range left {
		if !seen[seq] {
			t.Errorf("%s: %d was left behind and did not come", topic, seq)
		}
	}
	t.Logf("the rest came within %v", time.Since(began).Round(time.Millisecond))
	return true
}
