package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/harness"
)

// heard is what a subscription brings, in order.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) add(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, what)
}

func (h *heard) is(want []string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprint(h.all) == fmt.Sprint(want)
}

// Who is subscribed to a topic that is forgotten while it is silent gets its next message, as the
// first of a later epoch, which is told before; and hears of no message that is missing. So does
// who waited on a topic that was empty meanwhile.
func TestAForgottenTopicGoesOn(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Change: func(s *inprocess.Settings) {
		for i := range s.Stores {
			s.Stores[i].TopicTTL, s.Stores[i].ShortestTopicTTL = time.Second, time.Second
		}
	}})
	putNamespace(t, m, "soon", &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(time.Second)})
	var told heard
	s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: m.EdgeAddrs, OnGap: func(g pushmesh.Gap) {
		told.add(fmt.Sprintf("%v of %s, %d to %d, %d missed", g.Code, g.Topic, g.From, g.To, g.Missed))
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Close(s) })
	for _, name := range []string{"soon/1", "soon/empty"} {
		if _, err := s.Subscribe(t.Context(), name, func(_ context.Context, d *pushmesh.Delivery) error {
			told.add(fmt.Sprintf("%s/%d %s", d.Topic, d.Seq, d.Payload))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	m.Publish(t, "soon/1", "a")
	m.Publish(t, "soon/1", "b")
	want := []string{"soon/1/1 a", "soon/1/2 b"}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	until := func(what string, f func() bool) {
		t.Helper()
		for !f() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%s: told %q, want %q", what, told.all, want)
			}
		}
	}
	until("at first", func() bool { return told.is(want) })
	history := pushmeshv1.NewHistoryServiceClient(m.Router(t))
	head := func(name string) *pushmeshv1.TopicHead {
		t.Helper()
		answer, err := history.Head(t.Context(), &pushmeshv1.HeadRequest{Topics: []string{name}})
		if err != nil {
			return nil // for now
		}
		return answer.GetHeads()[0]
	}
	before := head("soon/1").GetEpoch()
	until("forgotten", func() bool { h := head("soon/1"); return h != nil && h.GetSeq() == 0 && h.GetEpoch() > before })
	m.Publish(t, "soon/1", "c")
	m.Publish(t, "soon/1", "d")
	want = append(want, "EPOCH_CHANGED of soon/1, 0 to 0, 0 missed", "soon/1/1 c", "soon/1/2 d")
	until("begun anew", func() bool { return told.is(want) })
	if h := head("soon/1"); h.GetSeq() != 2 || h.GetEpoch() <= before {
		t.Errorf("its head is %v", h)
	}
	m.Publish(t, "soon/empty", "e")
	want = append(want, "soon/empty/1 e")
	until("what was empty", func() bool { return told.is(want) })
}
