package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// letters lists all of a filter, two a page.
func letters(t *testing.T, api pushmeshv1.DeadLetterServiceClient, filter string) (all []*pushmeshv1.DeadLetter) {
	t.Helper()
	for token := ""; ; {
		page, err := api.List(t.Context(), &pushmeshv1.DeadLetterServiceListRequest{Filter: filter, Limit: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.GetDeadLetters()...)
		if token = page.GetNextPageToken(); token == "" {
			return all
		}
	}
}

// awaitLetters polls until there are n.
func awaitLetters(t *testing.T, api pushmeshv1.DeadLetterServiceClient, filter string, n int) []*pushmeshv1.DeadLetter {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(wireclient.Patience)
	for {
		all := letters(t, api, filter)
		if len(all) == n {
			return all
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d letters of %s, want %d", len(all), filter, n)
		}
	}
}

// What a session gives up can be listed with its reason and attempts, replayed once by id and by
// filter, and discarded.
func TestDeadLettersAreListedReplayedAndDiscarded(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{})
	conn := m.Router(t)
	namespaces, api := pushmeshv1.NewNamespaceServiceClient(conn), pushmeshv1.NewDeadLetterServiceClient(conn)
	if _, err := namespaces.Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{
		Prefix: "jobs", Policy: &pushmeshv1.Policy{Durable: true, AckTimeout: durationpb.New(20 * time.Millisecond), MaxRedeliveries: new(uint32(1)), MaxAttempts: 2},
	}}); err != nil {
		t.Fatal(err)
	}
	c, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{ClientId: "worker", Session: "s"})
	c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "jobs/#", Ack: true, Start: wirev1.Start_START_SESSION})
	const messages = 5
	for i := range messages {
		m.Publish(t, fmt.Sprintf("jobs/%d", i%2), fmt.Sprint(i))
	}
	all := awaitLetters(t, api, "", messages) // nothing is ACKed
	payloads := map[string]uint64{}
	for i, l := range all {
		if l.GetReason() != wirev1.Code_CODE_ATTEMPTS_EXHAUSTED || l.GetAttempts() != 2 || l.GetSession() != "s" || l.GetAt() == 0 || len(l.GetMessageId()) != 16 ||
			i > 0 && l.GetId() <= all[i-1].GetId() {
			t.Errorf("letter %v", l)
		}
		payloads[string(l.GetPayload())] = l.GetId()
	}
	if got := letters(t, api, "jobs/1"); len(payloads) != messages || len(got) != 2 {
		t.Fatalf("payloads %v, of jobs/1 %d", payloads, len(got))
	}
	c.Close()

	// Somebody who is there for good gets what is replayed, each once.
	live, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	live.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "jobs/#"})
	one := &pushmeshv1.DeadLetterServiceReplayRequest{Ids: []uint64{payloads["0"], 1 << 40}}
	for i := range 2 { // the second time it is gone
		if r, err := api.Replay(t.Context(), one); err != nil || r.GetReplayed() != uint64(1-i) || r.GetFailed() != 0 {
			t.Errorf("replay %d: %v, %v", i, r, err)
		}
	}
	if msg := live.Message(); string(msg.GetPayload()) != "0" || msg.GetTopic() != "jobs/0" || msg.GetSeq() != 4 {
		t.Errorf("replayed: %v", msg)
	}
	var both sync.WaitGroup // at the same time, as two operators might
	for range 4 {
		both.Go(func() {
			if r, err := api.Replay(t.Context(), &pushmeshv1.DeadLetterServiceReplayRequest{Filter: "jobs/1"}); err != nil || r.GetFailed() > 0 {
				t.Errorf("replay of a filter: %v, %v", r, err)
			}
		})
	}
	both.Wait()
	heads, err := pushmeshv1.NewHistoryServiceClient(conn).Head(t.Context(), &pushmeshv1.HeadRequest{Topics: []string{"jobs/1"}})
	if err != nil || heads.GetHeads()[0].GetSeq() != 4 {
		t.Errorf("after four replays of two letters: %v, %v; want 2 and 2 messages", heads, err)
	}
	for range 2 {
		if msg := live.Message(); msg.GetTopic() != "jobs/1" || msg.GetSeq() < 3 || msg.GetSeq() > 4 {
			t.Errorf("replayed: %v", msg)
		}
	}
	if r, err := api.Discard(t.Context(), &pushmeshv1.DeadLetterServiceDiscardRequest{Ids: []uint64{payloads["2"]}}); err != nil || r.GetDiscarded() != 1 {
		t.Errorf("discard: %v, %v", r, err)
	}
	if r, err := api.Discard(t.Context(), &pushmeshv1.DeadLetterServiceDiscardRequest{Filter: "#"}); err != nil || r.GetDiscarded() != 1 {
		t.Errorf("discard of all: %v, %v", r, err)
	}
	if left := letters(t, api, "#"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for _, bad := range []*pushmeshv1.DeadLetterServiceDiscardRequest{{}, {Ids: []uint64{1}, Filter: "#"}, {Filter: "a/#/b"}} {
		if _, err := api.Discard(t.Context(), bad); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT && code.Of(err) != wirev1.Code_CODE_BAD_TOPIC {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
