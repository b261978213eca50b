package e2e

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	"github.com/pushmesh/pushmesh/internal/identity/token/tokentest"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// A client that came without a token left messages unread. Its user gets the session while the
// client is connected still, and comes with a token, at an edge that wants one: exactly the unread
// messages come, those that were ACKed do not, and what is published later does.
func TestAUserGoesOnWithTheClientsSession(t *testing.T) {
	t.Parallel()
	for what, db := range map[string]string{"sqlite": "", "postgres": pgtest.URL(t)} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			is := tokentest.New(t)
			file := is.File(t)
			m := harness.Start(t, harness.Options{Edges: 2, DB: db, Change: func(s *inprocess.Settings) {
				s.Edges[1].Open, s.Edges[1].Issuers, s.Edges[1].OutboundAllow = false, file, []string{"127.0.0.1"}
			}})
			putNamespace(t, m, "jobs", &pushmeshv1.Policy{Durable: true, AckTimeout: durationpb.New(patient)})
			api := pushmeshv1.NewSessionServiceClient(m.Router(t))
			publish := func(from, to int) {
				t.Helper()
				for i := from; i <= to; i++ {
					m.Publish(t, "jobs/1", fmt.Sprint(i))
				}
			}
			old, _ := wireclient.Connect(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: "phone", Session: "s"})
			old.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "jobs/#", Ack: true, Start: wirev1.Start_START_SESSION})
			publish(1, 6)
			for i := 1; i <= 6; i++ {
				got := old.Message()
				if string(got.GetPayload()) != fmt.Sprint(i) {
					t.Fatalf("message %d is %q", i, got.GetPayload())
				}
				if i <= 2 || i == 4 {
					ack(old, &wirev1.Ack_Entry{Topic: "jobs/1", Seq: got.GetSeq()})
				}
			}
			settled(old)
			if _, err := api.Adopt(t.Context(), &pushmeshv1.AdoptRequest{User: "client:phone", Name: "s", ToUser: "ann"}); err != nil {
				t.Fatal(err)
			}
			if no := old.Error(); no.GetCode() != wirev1.Code_CODE_SESSION_TAKEN_OVER {
				t.Errorf("the client is told %v", no)
			}
			publish(7, 8)
			ann, code := comeInAt(t, m.EdgeAddrs[1], &wirev1.Hello{ClientId: "phone", Session: "s", Token: is.Token("ann", map[string]any{"pm_sub": "jobs/#"})})
			if code != wirev1.Code_CODE_OK {
				t.Fatal(code)
			}
			ann.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "jobs/#", Ack: true, Start: wirev1.Start_START_SESSION})
			for _, want := range []string{"3", "5", "6", "7", "8"} {
				got := ann.Message()
				if string(got.GetPayload()) != want {
					t.Fatalf("came %q, want %s", got.GetPayload(), want)
				}
				ack(ann, &wirev1.Ack_Entry{Topic: "jobs/1", Seq: got.GetSeq()})
			}
			if resp, err := api.Adopt(t.Context(), &pushmeshv1.AdoptRequest{User: "client:phone", Name: "s", ToUser: "ann"}); err != nil || !resp.GetAlready() {
				t.Errorf("asked again: %v, %v", resp, err)
			}
			publish(9, 9)
			if got := ann.Message(); string(got.GetPayload()) != "9" {
				t.Errorf("came %q, want 9", got.GetPayload())
			}
		})
	}
}
