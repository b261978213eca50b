package operate

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

func edge(id string, connections uint32) *pushmeshv1.Node {
	return &pushmeshv1.Node{Tier: pushmeshv1.Tier_TIER_EDGE, Id: id, Connections: connections, Ready: pushmeshv1.Ready_READY_YES}
}

func TestSurplus(t *testing.T) {
	t.Parallel()
	draining, unready, silent := edge("draining", 90_000), edge("unready", 90_000), edge("silent", 90_000)
	draining.Draining, unready.Ready, silent.Problem = true, pushmeshv1.Ready_READY_NO, "silent"
	for name, c := range map[string]struct {
		nodes []*pushmeshv1.Node
		above float64
		want  []giver
	}{
		"no edge":             {nil, 0.2, nil},
		"one edge":            {[]*pushmeshv1.Node{edge("a", 500)}, 0.2, nil},
		"nobody is connected": {[]*pushmeshv1.Node{edge("a", 0), edge("b", 0)}, 0.2, nil},
		"a new edge": {
			[]*pushmeshv1.Node{edge("a", 15_000), edge("b", 15_000), edge("new", 0)},
			0.2,
			[]giver{{"a", 1.0 / 3}, {"b", 1.0 / 3}},
		},
		"within the share":       {[]*pushmeshv1.Node{edge("a", 1200), edge("b", 800)}, 0.2, nil},
		"just above the share":   {[]*pushmeshv1.Node{edge("a", 1201), edge("b", 799)}, 0.2, []giver{{"a", 201.0 / 1201}}},
		"those that stop":        {[]*pushmeshv1.Node{edge("a", 100), edge("b", 100), draining, unready, silent}, 0.2, nil},
		"nobody but those to go": {[]*pushmeshv1.Node{draining, unready, silent}, 0.2, nil},
		"other tiers": {
			[]*pushmeshv1.Node{edge("a", 100), {Tier: pushmeshv1.Tier_TIER_ROUTER, Id: "r"}, {Tier: pushmeshv1.Tier_TIER_STORE, Id: "s"}},
			0.2, nil,
		},
	} {
		got := surplus(c.nodes, c.above)
		same := len(got) == len(c.want)
		for i := 0; same && i < len(got); i++ {
			same = got[i].edge == c.want[i].edge && math.Abs(got[i].share-c.want[i].share) < 1e-9
		}
		if !same {
			t.Errorf("%s: %v give, want %v", name, got, c.want)
		}
	}
}

// A mesh that writes down what it is asked.
type askedMesh struct {
	pushmeshv1.UnimplementedMeshServiceServer
	nodes []*pushmeshv1.Node
	asked []*pushmeshv1.RebalanceRequest
}

func (m *askedMesh) Nodes(context.Context, *pushmeshv1.MeshServiceNodesRequest) (*pushmeshv1.MeshServiceNodesResponse, error) {
	return &pushmeshv1.MeshServiceNodesResponse{Nodes: m.nodes}, nil
}

func (m *askedMesh) Rebalance(_ context.Context, r *pushmeshv1.RebalanceRequest) (*pushmeshv1.RebalanceResponse, error) {
	m.asked = append(m.asked, r)
	return &pushmeshv1.RebalanceResponse{Connections: 7}, nil
}

func TestRebalanceEven(t *testing.T) {
	t.Parallel()
	mesh := &askedMesh{nodes: []*pushmeshv1.Node{edge("a", 30), edge("b", 10), edge("c", 20)}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pushmeshv1.RegisterMeshServiceServer(server, mesh)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	}()
	var out bytes.Buffer
	command := Rebalance{Even: true, Above: 0.2, Within: time.Minute, RouterFlag: cmdline.RouterFlag{Router: []string{l.Addr().String()}}}
	if err := command.Run(t.Context(), cmdline.IO{Out: &out}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "a: 7 connections are sent to other edges\n"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if len(mesh.asked) != 1 || mesh.asked[0].GetEdge() != "a" || math.Abs(mesh.asked[0].GetShare()-1.0/3) > 1e-9 || mesh.asked[0].GetWithin().AsDuration() != time.Minute {
		t.Errorf("asked for %v", mesh.asked)
	}
	mesh.nodes, mesh.asked = mesh.nodes[2:], nil
	out.Reset()
	if err := command.Run(t.Context(), cmdline.IO{Out: &out}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "no edge has 20 % more connections than the average\n"; got != want || len(mesh.asked) != 0 {
		t.Errorf("it says %q, want %q; asked for %v", got, want, mesh.asked)
	}
}
