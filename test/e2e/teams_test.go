package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// unsubscribed is what a client is told of a subscription that ended, after messages.
func unsubscribed(t *testing.T, c *wireclient.Client) *wirev1.Unsubscribed {
	t.Helper()
	for {
		ft, body, err := c.Next(wireclient.Patience)
		if err != nil {
			t.Fatal(err)
		}
		m, err := wireclient.Frame(ft, body)
		if err != nil {
			t.Fatal(err)
		}
		if end, is := m.(*wirev1.Unsubscribed); is {
			return end
		}
	}
}

// subscribes tries until the edge grants it: it may know of a change a moment later.
func subscribes(t *testing.T, c *wireclient.Client, id uint32, filter string) {
	t.Helper()
	for deadline := time.Now().Add(wireclient.Patience); ; id++ {
		c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: id, Filter: filter})
		ft, body, err := c.Next(wireclient.Patience)
		if err != nil {
			t.Fatal(err)
		}
		if ft == wirev1.FrameType_FRAME_TYPE_SUBSCRIBED {
			return
		}
		m, err := wireclient.Frame(ft, body)
		if no, is := m.(*wirev1.Error); err != nil || !is || no.GetCode() != wirev1.Code_CODE_FORBIDDEN || time.Now().After(deadline) {
			t.Fatalf("subscribe to %s: %v, %v", filter, m, err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// teams of a mesh.
func teams(t *testing.T, m *harness.Mesh) pushmeshv1.MembershipServiceClient {
	return pushmeshv1.NewMembershipServiceClient(m.Router(t))
}

func changeMembers(t *testing.T, api pushmeshv1.MembershipServiceClient, team string, add bool, users ...string) {
	t.Helper()
	_, _, err := again(func() (any, error) {
		if add {
			return api.Add(t.Context(), &pushmeshv1.MembershipServiceAddRequest{Team: team, Users: users})
		}
		return api.Remove(t.Context(), &pushmeshv1.MembershipServiceRemoveRequest{Team: team, Users: users})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A user whose token grants nothing subscribes once it is in a team, on whichever edge, and gets
// what comes; taken out of it, it loses that within a second everywhere, and is told which team
// that was. The others of the team, and what is the user's own, stay. The best of some rounds
// counts.
func TestATeamGrantsAndTakesBackWithinASecond(t *testing.T) {
	t.Parallel()
	m, is := guarded(t, harness.Options{Edges: 2})
	api := teams(t, m)
	if _, _, err := again(func() (*pushmeshv1.PutTeamResponse, error) {
		return api.PutTeam(t.Context(), &pushmeshv1.PutTeamRequest{Team: &pushmeshv1.Team{Name: "chat", Subscribe: []string{"room/#"}, Publish: []string{"room/1"}}})
	}); err != nil {
		t.Fatal(err)
	}
	enter := func(edge int, user string) *wireclient.Client {
		t.Helper()
		c, code := comeInAt(t, m.EdgeAddrs[edge], &wirev1.Hello{Token: is.Token(user, nil), HeartbeatMs: 600_000})
		if code != wirev1.Code_CODE_OK {
			t.Fatal(code)
		}
		return c
	}
	changeMembers(t, api, "chat", true, "bob")
	bob := enter(0, "bob")
	subscribes(t, bob, 1, "room/1")
	best := time.Hour
	for round := 0; best > time.Second; round++ {
		if round == 10 {
			t.Fatalf("at best after %v", best)
		}
		user := fmt.Sprint("ann-", round)
		var all []*wireclient.Client
		for i := range 10 {
			c := enter(i%2, user)
			c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 900, Filter: "room/1"})
			if no := c.Error(); no.GetCode() != wirev1.Code_CODE_FORBIDDEN {
				t.Fatalf("before: %v", no)
			}
			c.Subscribe(&wirev1.Subscribe{Id: 901, Filter: "user/" + user})
			all = append(all, c)
		}
		changeMembers(t, api, "chat", true, user)
		for _, c := range all {
			subscribes(t, c, 1, "room/1")
		}
		m.Publish(t, "room/1", "hello")
		for _, c := range all {
			if got := c.Message(); string(got.GetPayload()) != "hello" {
				t.Fatalf("got %v", got)
			}
		}
		if got := bob.Message(); string(got.GetPayload()) != "hello" {
			t.Fatalf("bob got %v", got)
		}
		began := time.Now()
		changeMembers(t, api, "chat", false, user)
		for _, c := range all {
			if end := unsubscribed(t, c); end.GetCode() != wirev1.Code_CODE_FORBIDDEN || !strings.Contains(end.GetReason(), "team:chat") {
				t.Fatalf("told %v", end)
			}
		}
		best = min(best, time.Since(began))
		m.Publish(t, "room/1", "for bob")
		m.Publish(t, "user/"+user, "own")
		for _, c := range all {
			if got := c.Message(); string(got.GetPayload()) != "own" {
				t.Fatalf("after it left: %v", got)
			}
			c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 902, Filter: "room/1"})
			if no := c.Error(); no.GetCode() != wirev1.Code_CODE_FORBIDDEN {
				t.Fatalf("after it left: %v", no)
			}
			c.Close()
		}
		if got := bob.Message(); string(got.GetPayload()) != "for bob" {
			t.Fatalf("bob got %v", got)
		}
	}
	t.Logf("after %v", best)

	// What a team grants no more ends, and so does what one grants that is deleted.
	subscribes(t, bob, 1000, "room/2")
	if _, err := api.PutTeam(t.Context(), &pushmeshv1.PutTeamRequest{Team: &pushmeshv1.Team{Name: "chat", Subscribe: []string{"room/1"}}}); err != nil {
		t.Fatal(err)
	}
	if end := unsubscribed(t, bob); end.GetCode() != wirev1.Code_CODE_FORBIDDEN {
		t.Errorf("a filter less: %v", end)
	}
	if _, err := api.DeleteTeam(t.Context(), &pushmeshv1.DeleteTeamRequest{Name: "chat"}); err != nil {
		t.Fatal(err)
	}
	if end := unsubscribed(t, bob); end.GetCode() != wirev1.Code_CODE_FORBIDDEN {
		t.Errorf("the team is deleted: %v", end)
	}
}

// A change is found where the word of it is lost: by stores' beats, and without NATS by asking.
func TestATeamWhoseWordIsLost(t *testing.T) {
	t.Parallel()
	m, is := guarded(t, harness.Options{Proxy: true, Edges: 2})
	api := teams(t, m)
	if _, _, err := again(func() (*pushmeshv1.PutTeamResponse, error) {
		return api.PutTeam(t.Context(), &pushmeshv1.PutTeamRequest{Team: &pushmeshv1.Team{Name: "chat", Subscribe: []string{"room/#"}}})
	}); err != nil {
		t.Fatal(err)
	}
	for what, lose := range map[string]func(){
		"the notices": func() {
			m.Proxy.Lose(func(subject string, _ []byte) bool { return strings.HasSuffix(subject, bus.TeamsChanged) })
		},
		"all of NATS": func() { m.Proxy.SetDown(true) },
	} {
		user := strings.ReplaceAll(what, " ", "-")
		changeMembers(t, api, "chat", true, user)
		var all []*wireclient.Client
		for i := range 4 {
			c, code := comeInAt(t, m.EdgeAddrs[i%2], &wirev1.Hello{Token: is.Token(user, nil), HeartbeatMs: 600_000})
			if code != wirev1.Code_CODE_OK {
				t.Fatal(code)
			}
			subscribes(t, c, 1, "room/1")
			all = append(all, c)
		}
		lose()
		began := time.Now()
		changeMembers(t, api, "chat", false, user)
		for _, c := range all {
			if end := unsubscribed(t, c); end.GetCode() != wirev1.Code_CODE_FORBIDDEN {
				t.Errorf("%s are lost: told %v", what, end)
			}
		}
		t.Logf("%s are lost: after %v", what, time.Since(began))
		m.Proxy.Lose(nil)
		m.Proxy.SetDown(false)
	}
}
