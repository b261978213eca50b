package doctor

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// patience is for what must come; impatience for what a test keeps from coming.
const (
	patience   = time.Minute
	impatience = 20 * time.Millisecond
)

func (m *fakeMesh) examine(arrive time.Duration) *Report {
	return Examine(m.t.Context(), Config{Routers: m.routers[:1], Skew: time.Hour, Probe: true, Patience: patience, Arrive: arrive})
}

func TestExamine(t *testing.T) {
	m := startFake(t)
	r := m.examine(patience)
	for _, f := range r.Findings {
		if f.Level == Fail {
			t.Errorf("%+v", f)
		}
	}
	expect(t, r, OK, "mesh", "2 edges, 2 routers, 1 store,")
	expect(t, r, OK, "reach", "edge e1", "handshake")
	expect(t, r, OK, "reach", "store s1", "gRPC")
	expect(t, r, OK, "postgres", "database home")
	if !r.Sound {
		t.Error("it is not sound")
	}
}

func TestNobodyThere(t *testing.T) {
	r := Examine(t.Context(), Config{Routers: []string{"127.0.0.1:1"}, Skew: time.Second})
	expect(t, r, Fail, "mesh", "127.0.0.1:1", "--router")
	if r.Sound || len(r.Findings) != 1 {
		t.Errorf("%+v", r)
	}
}

// The second of two routers answers for the mesh: the first is missed all the same. What is given
// under another name is no other router.
func TestARouterThatWasNamedIsMissed(t *testing.T) {
	m := startFake(t)
	_, port, _ := net.SplitHostPort(m.routers[0])
	r := Examine(t.Context(), Config{Routers: []string{"127.0.0.1:1", m.routers[1], "localhost:" + port}, Skew: time.Hour, Patience: patience})
	expect(t, r, Fail, "reach", "router 127.0.0.1:1", "connection refused", "--router names it", "nothing listens")
	if bad := slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.Level == OK }); len(bad) != 1 {
		t.Errorf("%+v", bad)
	}
}

// An edge without a store refuses durable topics: ephemeral messages are probed all the same.
func TestAnEdgeThatRefusesDurableTopics(t *testing.T) {
	m := startFake(t)
	m.edges[0].refuses = "room/"
	m.edges[1].refuses = "room/"
	r := m.examine(patience)
	expect(t, r, Fail, "probe", "edge e1", "a subscription to a durable topic is not taken: UNAVAILABLE: no store", "database")
	expect(t, r, OK, "probe", "router r1", "a durable message: answered", "no edge listens")
	expect(t, r, OK, "probe", "router r1", "an ephemeral message: answered", "at the last of 2 edges")
}

func TestRoutersThatKnowDifferentNodes(t *testing.T) {
	m := startFake(t)
	m.hides["r2"] = "e2"
	expect(t, m.examine(patience), Fail, "mesh", "router r2", "does not know [edge e2]", "NATS is split")
}

// Where edges want a token, that of the examination is shown to each, and whoever has none is told.
func TestEdgesThatWantAToken(t *testing.T) {
	m := startFake(t)
	m.edges[0].wants, m.edges[1].wants = "t", "t"
	expect(t, m.examine(patience), Fail, "reach", "edge e1", "UNAUTHENTICATED: not that token", "--token-file")
	token := func(context.Context) (string, error) { return "t", nil }
	r := Examine(t.Context(), Config{Routers: m.routers[:1], Token: token, Skew: time.Hour, Probe: true, Patience: patience, Arrive: patience})
	expect(t, r, OK, "reach", "edge e1", "handshake")
	expect(t, r, OK, "probe", "router r1", "a durable message: answered", "at the last of 2 edges")
	if !r.Sound {
		t.Errorf("%+v", r.Findings)
	}
}

func TestAnEdgeThatIsFull(t *testing.T) {
	m := startFake(t)
	m.edges[1].full = true
	r := m.examine(patience)
	expect(t, r, Fail, "reach", "edge e2", "TOO_MANY_CONNECTIONS", m.edges[1].addr)
	expect(t, r, OK, "probe", "router r1", "1 edge ") // the others are probed all the same
}

// One message is lost between one pair of nodes: the pair is named, others are not.
func TestAMessageThatDoesNotCome(t *testing.T) {
	m := startFake(t)
	m.loses = func(router, edge string) bool { return router == "r2" && edge == "e1" }
	r := m.examine(impatience)
	expect(t, r, Fail, "probe", "router r2", "a durable message did not come", "to edge e1", "NATS")
	expect(t, r, Fail, "probe", "router r2", "an ephemeral message did not come", "to edge e1")
}

func TestAMessageThatIsRefused(t *testing.T) {
	m := startFake(t)
	m.refuse = status.Error(codes.Unavailable, "no store")
	r := m.examine(patience)
	expect(t, r, Fail, "probe", "router r1", "a durable message is not taken", "no store", "database")
	expect(t, r, Fail, "probe", "router r2", "an ephemeral message is not taken")
}

func TestAMessageThatIsSlow(t *testing.T) {
	r := &Report{}
	p := &prober{}
	p.say(r, "router r1", "durable", time.Millisecond, 2*time.Second, 3)
	p.say(r, "router r1", "durable", time.Millisecond, 20*time.Millisecond, 3)
	expect(t, r, Warn, "probe", "after 2s", "commit_seconds")
	expect(t, r, OK, "probe", "20ms")
}

func TestAHandshakeThatHangs(t *testing.T) {
	m := startFake(t)
	m.edges[0].mute = true
	for within := 100 * time.Millisecond; ; within *= 2 { // the others must answer within it
		r := Examine(t.Context(), Config{Routers: m.routers, Skew: time.Hour, Patience: within})
		if len(r.Findings) > 1 || within > patience {
			expect(t, r, Fail, "reach", "edge e1", "no answer in time")
			return
		}
	}
}
