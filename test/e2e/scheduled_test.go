package e2e

import (
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

// A scheduled message comes at its time, at once and to whoever subscribes then; one that was cancelled does not come.
func TestScheduledMessagesComeAtTheirTime(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	api := pushmeshv1.NewPublishServiceClient(m.Router(t))
	schedule := func(payload string, at time.Time) []byte {
		t.Helper()
		r, err := api.Publish(t.Context(), &pushmeshv1.PublishRequest{
			Topic: "room/later", Payload: []byte(payload), DeliverAt: timestamppb.New(at), Ttl: durationpb.New(time.Minute),
		})
		if err != nil || !r.GetScheduled() || r.GetSeq() != 0 {
			t.Fatalf("schedule: %v, %v", r, err)
		}
		return r.GetMessageId()
	}
	c, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/later"})
	due := time.Now().Add(3 * time.Second)
	first := schedule("first", due)
	cancelled := schedule("cancelled", due)
	schedule("far", time.Now().Add(365*24*time.Hour))
	cancel := func(id []byte) wirev1.Code {
		_, err := api.CancelScheduled(t.Context(), &pushmeshv1.CancelScheduledRequest{MessageId: id})
		return code.Of(err)
	}
	for range 2 {
		if c := cancel(cancelled); c != wirev1.Code_CODE_OK {
			t.Errorf("cancel: %v", c)
		}
	}
	if c := cancel(make([]byte, 16)); c != wirev1.Code_CODE_NOT_FOUND {
		t.Errorf("cancel of an unknown message: %v", c)
	}
	msg := c.Message()
	if late := time.Since(due); string(msg.GetPayload()) != "first" || msg.GetSeq() != 1 || late < 0 || late > time.Minute {
		t.Errorf("%s after its time: %v", late, msg)
	} else {
		t.Logf("delivered %s after its time", late)
	}
	if c := cancel(first); c != wirev1.Code_CODE_CONFLICT {
		t.Errorf("cancel of what was delivered: %v", c)
	}
	r, err := api.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "room/later", Payload: []byte("past"), DeliverAt: timestamppb.New(time.Now().Add(-time.Hour))})
	if err != nil || r.GetScheduled() || r.GetSeq() != 2 {
		t.Errorf("deliver_at in the past: %v, %v", r, err)
	}
	if msg := c.Message(); string(msg.GetPayload()) != "past" {
		t.Errorf("got %v", msg)
	}
}
