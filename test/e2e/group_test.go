package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// Members on two edges share a durable topic: each message goes to one of them, whole and with subs.
func TestAGroupSharesATopic(t *testing.T) {
	m := harness.Start(t, harness.Options{Edges: 2})
	var members []*wireclient.Client
	for i := range 4 {
		c, welcome := wireclient.Connect(t, m.EdgeAddrs[i%2], &wirev1.Hello{})
		if !slices.Contains(welcome.GetFeatures(), "group") {
			t.Fatalf("features %v", welcome.GetFeatures())
		}
		c.Subscribe(&wirev1.Subscribe{Id: 3, Filter: "room/shared", Group: "workers", Ack: true, ReceiveWindow: 25})
		members = append(members, c)
	}
	const messages = 100 // as many as the windows are together: everyone has to take a share
	m.PublishBatch(t, "room/shared", messages)
	seen := map[uint64]int{}
	for _, c := range members { // nobody ACKs: that would open a window, and make shares uneven
		for range messages / len(members) {
			msg := c.Message()
			if len(msg.GetSubs()) != 1 || msg.GetSubs()[0] != 3 || msg.GetAttempt() != 0 || string(msg.GetPayload()) != fmt.Sprint(msg.GetSeq()) {
				t.Fatalf("%v", msg)
			}
			seen[msg.GetSeq()]++
		}
	}
	if len(seen) != messages {
		t.Fatalf("%d of %d messages came", len(seen), messages)
	}
}
