package e2e

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// A scheduled message comes at its time, at once and to whoever subscribes then; one that was
// cancelled does not come.
func TestScheduledMessagesComeAtTheirTime(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	inTime(t, 3*time.Second, func(due time.Time) bool { return scheduledComesAtItsTime(t, m, due) })
}

// inTime has something done before a message falls due. False: it was not, and is tried again with
// more time.
func inTime(t *testing.T, lead time.Duration, do func(due time.Time) bool) {
	t.Helper()
	for range 4 {
		if do(time.Now().Add(lead)) {
			return
		}
		lead *= 3
	}
	t.Errorf("the machine is so busy that %s are too short", lead/3)
}

func scheduledComesAtItsTime(t *testing.T, m *harness.Mesh, due time.Time) bool {
	t.Helper()
	topic := fmt.Sprintf("room/later-%d", due.UnixNano())
	api := pushmeshv1.NewPublishServiceClient(m.Router(t))
	schedule := func(payload string, at time.Time) []byte {
		t.Helper()
		r, err := api.Publish(t.Context(), &pushmeshv1.PublishRequest{
			Topic: topic, Payload: []byte(payload), DeliverAt: timestamppb.New(at), Ttl: durationpb.New(10 * time.Minute),
		})
		if err != nil || (!r.GetScheduled() || r.GetSeq() != 0) && time.Now().Before(due) {
			t.Fatalf("schedule: %v, %v", r, err)
		}
		return r.GetMessageId()
	}
	c, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: topic})
	first := schedule("first", due)
	cancelled := schedule("cancelled", due)
	schedule("far", time.Now().Add(365*24*time.Hour))
	cancel := func(id []byte) wirev1.Code {
		_, err := api.CancelScheduled(t.Context(), &pushmeshv1.CancelScheduledRequest{MessageId: id})
		return code.Of(err)
	}
	codes := []wirev1.Code{cancel(cancelled), cancel(cancelled)}
	if !time.Now().Before(due) {
		return false
	}
	if codes[0] != wirev1.Code_CODE_OK || codes[1] != wirev1.Code_CODE_OK {
		t.Errorf("cancel: %v", codes)
	}
	if c := cancel(make([]byte, 16)); c != wirev1.Code_CODE_NOT_FOUND {
		t.Errorf("cancel of an unknown message: %v", c)
	}
	msg := c.Message()
	if late := time.Since(due); string(msg.GetPayload()) != "first" || msg.GetSeq() != 1 || late < 0 {
		t.Errorf("%s after its time: %v", late, msg)
	} else {
		t.Logf("delivered %s after its time", late)
	}
	if c := cancel(first); c != wirev1.Code_CODE_CONFLICT {
		t.Errorf("cancel of what was delivered: %v", c)
	}
	r, err := api.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: topic, Payload: []byte("past"), DeliverAt: timestamppb.New(time.Now().Add(-time.Hour))})
	if err != nil || r.GetScheduled() || r.GetSeq() != 2 {
		t.Errorf("deliver_at in the past: %v, %v", r, err)
	}
	if msg := c.Message(); string(msg.GetPayload()) != "past" {
		t.Errorf("got %v", msg)
	}
	return true
}
