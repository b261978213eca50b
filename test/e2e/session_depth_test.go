package e2e

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Whoever asks a router about a session sees what waits for it at its edge, and how far it is
// behind in each topic; and that both are over once it has caught up.
func TestTheDepthOfASlowSessionIsTold(t *testing.T) {
	t.Parallel()
	// more than the kernel takes for a client that reads nothing
	const n, size = 200, 64 << 10
	// nothing is sent twice here
	s := newSessions(t, &pushmeshv1.Policy{AckTimeout: durationpb.New(time.Hour)})
	c, _ := s.attach(1, "slow", 60)
	sub := resume("jobs/slow")
	sub.ReceiveWindow = 2 * n
	epoch := c.Subscribe(sub).GetEpoch()
	s.is("slow", func(got *pushmeshv1.Session) bool {
		return got.GetEdge() == "edge-2" && got.GetQueuedMessages() == 0 && got.GetQueuedBytes() == 0
	})
	producer, payload := pushmeshv1.NewPublishServiceClient(s.Router(t)), bytes.Repeat([]byte("x"), size)
	for i := range n {
		if _, err := producer.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "jobs/slow", Payload: payload, DedupeKey: fmt.Sprint("slow-", i)}); err != nil {
			t.Fatal(err)
		}
	}
	lag := func(got *pushmeshv1.Session) (head, lag uint64) {
		if len(got.GetCursors()) != 1 {
			return 0, 0
		}
		return got.GetCursors()[0].GetHead(), got.GetCursors()[0].GetLag()
	}
	s.is("slow", func(got *pushmeshv1.Session) bool {
		head, behind := lag(got)
		return head == n && behind == n && got.GetQueuedMessages() > 0 && got.GetQueuedBytes() > 0
	})
	for seq := uint64(1); seq <= n; seq++ {
		take(t, c, seq)
	}
	ack(c, &wirev1.Ack_Entry{Topic: "jobs/slow", Seq: n, Through: true, Epoch: epoch})
	s.is("slow", func(got *pushmeshv1.Session) bool {
		head, behind := lag(got)
		return head == n && behind == 0 && got.GetQueuedMessages() == 0 && got.GetQueuedBytes() == 0
	})
}
