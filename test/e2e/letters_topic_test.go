package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/backend"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// history is every message of a topic.
func history(t *testing.T, m *harness.Mesh, topic string) (all []*pushmeshv1.StoredMessage) {
	t.Helper()
	api := pushmeshv1.NewHistoryServiceClient(m.Router(t))
	procmesh.Await(t, "the log can be read", func() bool {
		var err error
		if all, err = readAll(t.Context(), api, topic); err != nil && code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Fatal(err)
		}
		return err == nil
	})
	return all
}

func readAll(ctx context.Context, api pushmeshv1.HistoryServiceClient, topic string) (all []*pushmeshv1.StoredMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, wireclient.Patience)
	defer cancel()
	stream, err := api.Read(ctx, &pushmeshv1.ReadRequest{Topic: topic})
	for err == nil {
		var r *pushmeshv1.ReadResponse
		r, err = stream.Recv()
		all = append(all, r.GetMessages()...)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

// What a session gives up comes once to who subscribes to the dead-letter topic, with its story in
// headers, and is in that topic's history; a restart of the store doubles nothing.
func TestDeadLettersAreCopiedToTheirTopic(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{})
	conn := m.Router(t)
	if _, err := pushmeshv1.NewNamespaceServiceClient(conn).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{
		Prefix: "jobs", Policy: &pushmeshv1.Policy{Durable: true, AckTimeout: durationpb.New(20 * time.Millisecond), MaxRedeliveries: new(uint32(1)), MaxAttempts: 2},
	}}); err != nil {
		t.Fatal(err)
	}
	everything, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	everything.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "#"})
	dead, _ := backend.Open(t, conn, &wirev1.Hello{}, false)
	dead.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "$dead/#"})
	worker, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{ClientId: "worker", Session: "s"})
	worker.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "jobs/#", Ack: true, Start: wirev1.Start_START_SESSION})

	var published []*pushmeshv1.PublishResponse
	giveUp := func(payload string) { // nothing is ACKed
		t.Helper()
		p := m.Publish(t, "jobs/x", payload)
		published = append(published, p)
		msg := dead.Message()
		n := uint64(len(published))
		if msg.GetTopic() != "$dead/jobs" || msg.GetSeq() != n || string(msg.GetPayload()) != payload || len(msg.GetId()) != 16 || msg.GetPublishedAt() == 0 {
			t.Errorf("copy %d: %v", n, msg)
		}
		for name, want := range map[string]string{
			"dead-letter-reason": "ATTEMPTS_EXHAUSTED", "dead-letter-attempts": "2", "dead-letter-topic": "jobs/x", "dead-letter-session": "s",
			"dead-letter-seq": fmt.Sprint(p.GetSeq()), "dead-letter-epoch": fmt.Sprint(p.GetEpoch()), "dead-letter-message-id": fmt.Sprintf("%x", p.GetMessageId()),
		} {
			if got := msg.GetHeaders()[name]; got != want {
				t.Errorf("copy %d: %s is %q, want %q", n, name, got, want)
			}
		}
		if got := everything.Message(); got.GetTopic() != "jobs/x" || got.GetSeq() != n {
			t.Errorf("who subscribes to # got %v", got)
		}
	}
	giveUp("1")
	giveUp("2")
	m.RestartStore(t)
	giveUp("3") // letters are copied in their order: the first two again would have come before
	giveUp("4")

	api := pushmeshv1.NewDeadLetterServiceClient(conn)
	all, copies := awaitLetters(t, api, "jobs/#", 4), history(t, m, "$dead/jobs")
	if len(copies) != 4 {
		t.Fatalf("%d messages in the topic's history", len(copies))
	}
	for i, l := range all {
		if got := copies[i].GetHeaders()["dead-letter-id"]; got != fmt.Sprint(l.GetId()) {
			t.Errorf("copy %d is of letter %s, want %d", i+1, got, l.GetId())
		}
	}
	if r, err := api.Discard(t.Context(), &pushmeshv1.DeadLetterServiceDiscardRequest{Filter: "#"}); err != nil || r.GetDiscarded() != 4 {
		t.Errorf("a copied letter is a letter still: %v, %v", r, err)
	}
}
