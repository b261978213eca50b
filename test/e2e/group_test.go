package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// Members on two edges share a durable topic: each message goes to one of them, whole and with
// subs.
func TestAGroupSharesATopic(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2})
	putNamespace(t, m, "jobs", &pushmeshv1.Policy{Durable: true, AckTimeout: durationpb.New(patient)})
	const tries = 5
	for try := range tries {
		if groupShares(t, m, fmt.Sprintf("jobs/shared-%d", try)) {
			return
		}
	}
	t.Errorf("in none of %d groups did everyone get a share", tries)
}

// groupShares is false where the members did not get all at the first attempt, as it is when the
// machine stands still for so long that another edge dispatches.
func groupShares(t *testing.T, m *harness.Mesh, topic string) bool {
	t.Helper()
	var members []*wireclient.Client
	for i := range 4 {
		c, welcome := wireclient.Connect(t, m.EdgeAddrs[i%2], &wirev1.Hello{})
		if !slices.Contains(welcome.GetFeatures(), "group") {
			t.Fatalf("features %v", welcome.GetFeatures())
		}
		c.Subscribe(&wirev1.Subscribe{Id: 3, Filter: topic, Group: "workers", Ack: true, ReceiveWindow: 25})
		members = append(members, c)
	}
	const messages = 100 // as many as the windows are together: everyone has to take a share
	m.PublishBatch(t, topic, messages)
	seen := map[uint64]int{}
	for _, c := range members { // nobody ACKs: that would open a window, and make shares uneven
		for range messages / len(members) {
			msg := next(t, c)
			if msg == nil || msg.GetAttempt() > 0 {
				t.Logf("got %v of %s", msg, topic)
				return false
			}
			if len(msg.GetSubs()) != 1 || msg.GetSubs()[0] != 3 || string(msg.GetPayload()) != fmt.Sprint(msg.GetSeq()) {
				t.Fatalf("%v", msg)
			}
			seen[msg.GetSeq()]++
		}
	}
	if len(seen) != messages {
		t.Fatalf("%d of %d messages came", len(seen), messages)
	}
	return true
}

// next message; nil: none came for long.
func next(t *testing.T, c *wireclient.Client) *wirev1.Message {
	t.Helper()
	const long = 45 * time.Second // over before only where none comes
	for {
		ft, body, err := c.Next(long)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if ft != wirev1.FrameType_FRAME_TYPE_MESSAGE {
			continue
		}
		var m wirev1.Message
		if err := proto.Unmarshal(body, &m); err != nil {
			t.Fatal(err)
		}
		return &m
	}
}
