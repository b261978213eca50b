package e2e

import (
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// withSession is the Hello of a client with a session.
func withSession(client, session string) *wirev1.Hello {
	return &wirev1.Hello{Version: 1, ClientId: client, Session: session}
}

// Durable sessions have quotas. Who is at one is told which, others go on, sessions that exist are
// resumed, and addresses that an edge exempts have none of their own.
func TestSessionsHaveQuotas(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2, Change: func(s *inprocess.Settings) {
		s.Stores[0].UserSessions, s.Stores[0].AddressSessions, s.Stores[0].MaxSessions = 2, 3, 4
		s.Edges[1].ExemptFrom = []string{"127.0.0.0/8"}
	}})
	api := pushmeshv1.NewSessionServiceClient(m.Router(t))
	come := func(edge int, client, session string) (resumed bool) {
		t.Helper()
		c, w := wireclient.Connect(t, m.EdgeAddrs[edge], withSession(client, session))
		if sub := c.Subscribe(resume("jobs/" + client)); sub.GetId() != 1 {
			t.Errorf("%v", sub)
		}
		return w.GetResumed()
	}
	refused := func(edge int, client, session string, want wirev1.Code, flag string) {
		t.Helper()
		c := wireclient.Dial(t, m.EdgeAddrs[edge])
		c.Send(wirev1.FrameType_FRAME_TYPE_HELLO, withSession(client, session))
		e := c.Error()
		if e.GetCode() != want || !strings.Contains(e.GetMessage(), flag) || (want == wirev1.Code_CODE_OVERLOADED) != (e.GetRetryAfterMs() > 0) {
			t.Errorf("%s/%s: %v, want %v with %s", client, session, e, want, flag)
		}
		c.Closed()
	}
	const mine = wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS
	putNamespace(t, m, "jobs", &pushmeshv1.Policy{Durable: true})
	come(0, "ann", "1")
	come(0, "ann", "2")
	refused(0, "ann", "3", mine, "--user-sessions")
	refused(1, "ann", "3", mine, "--user-sessions")
	come(0, "bob", "1")
	refused(0, "cid", "1", mine, "--address-sessions")
	come(1, "cid", "1") // from an exempt address
	refused(1, "dan", "1", wirev1.Code_CODE_OVERLOADED, "--max-sessions")
	if !come(1, "ann", "1") || !come(0, "cid", "1") {
		t.Error("a session that exists is not resumed beside full quotas")
	}
	origins := map[string]string{}
	answer, err := api.List(t.Context(), &pushmeshv1.SessionServiceListRequest{Sizes: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range answer.GetSessions() {
		origins[s.GetUser()+"/"+s.GetName()] = s.GetOrigin()
		if s.GetFilterCount() != 1 || s.GetCursorCount() > 1 || s.GetKeptBytes() == 0 || s.GetCreatedAt() == 0 {
			t.Errorf("%v", s)
		}
	}
	if len(origins) != 4 || origins["client:ann/1"] != "127.0.0.1" || origins["client:bob/1"] != "127.0.0.1" || origins["client:cid/1"] != "" {
		t.Errorf("sessions by origin: %v", origins)
	}
	// An operator makes room.
	if _, err := api.Delete(t.Context(), &pushmeshv1.SessionServiceDeleteRequest{User: "client:ann", Name: "2"}); err != nil {
		t.Fatal(err)
	}
	come(0, "dan", "1")
}
