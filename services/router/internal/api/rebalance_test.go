package api

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

type homes []interest.Home

func (h homes) Homes() []interest.Home { return h }

// edgeFake answers what is asked of one edge.
type edgeFake struct {
	id   string
	got  *meshv1.RebalanceConnections
	dead bool
}

func (e *edgeFake) Request(_ context.Context, subject string, data []byte) ([]byte, error) {
	if e.dead || subject != bus.EdgeRequest(e.id) {
		return nil, errors.New("nobody listens")
	}
	req := &meshv1.EdgeRequest{}
	if err := proto.Unmarshal(data, req); err != nil {
		return nil, err
	}
	e.got = req.GetRebalance()
	return proto.Marshal(&meshv1.EdgeReply{Leaving: 7})
}

func TestRebalanceAsksOneEdge(t *testing.T) {
	home := func(id string, draining bool) interest.Home {
		return interest.Home{Edge: interest.Edge{ID: id}, Draining: draining}
	}
	edge := &edgeFake{id: "a"}
	m := NewMesh(nil, nil, nil, nil, homes{home("a", false), home("b", false), home("c", true)}, edge, nil)
	resp, err := m.Rebalance(t.Context(), &pushmeshv1.RebalanceRequest{Edge: "a", Share: 0.2})
	if err != nil || resp.GetConnections() != 7 || edge.got.GetShare() != 0.2 || edge.got.GetWithinMs() != 30_000 {
		t.Errorf("%v, %v; the edge got %v", resp, err, edge.got)
	}
	if _, err := m.Rebalance(t.Context(), &pushmeshv1.RebalanceRequest{Edge: "a", Share: 1, Within: durationpb.New(time.Second)}); err != nil || edge.got.GetWithinMs() != 1000 {
		t.Errorf("%v; the edge got %v", err, edge.got)
	}
	dead := NewMesh(nil, nil, nil, nil, m.homes, &edgeFake{dead: true}, nil)
	alone := NewMesh(nil, nil, nil, nil, homes{home("a", false), home("c", true)}, edge, nil)
	for _, c := range []struct {
		what string
		mesh *Mesh
		req  *pushmeshv1.RebalanceRequest
		want wirev1.Code
	}{
		{"no edge", m, &pushmeshv1.RebalanceRequest{Share: 1}, wirev1.Code_CODE_INVALID_ARGUMENT},
		{"no share", m, &pushmeshv1.RebalanceRequest{Edge: "a"}, wirev1.Code_CODE_INVALID_ARGUMENT},
		{"too large a share", m, &pushmeshv1.RebalanceRequest{Edge: "a", Share: 1.1}, wirev1.Code_CODE_INVALID_ARGUMENT},
		{"no number", m, &pushmeshv1.RebalanceRequest{Edge: "a", Share: math.NaN()}, wirev1.Code_CODE_INVALID_ARGUMENT},
		{"a time that has passed", m, &pushmeshv1.RebalanceRequest{Edge: "a", Share: 1, Within: durationpb.New(-1)}, wirev1.Code_CODE_INVALID_ARGUMENT},
		{"too long a time", m, &pushmeshv1.RebalanceRequest{Edge: "a", Share: 1, Within: durationpb.New(2 * time.Hour)}, wirev1.Code_CODE_INVALID_ARGUMENT},
		{"an edge that is not there", m, &pushmeshv1.RebalanceRequest{Edge: "x", Share: 1}, wirev1.Code_CODE_NOT_FOUND},
		{"an edge that drains", m, &pushmeshv1.RebalanceRequest{Edge: "c", Share: 1}, wirev1.Code_CODE_CONFLICT},
		{"nowhere to go", alone, &pushmeshv1.RebalanceRequest{Edge: "a", Share: 1}, wirev1.Code_CODE_CONFLICT},
		{"an edge that does not answer", dead, &pushmeshv1.RebalanceRequest{Edge: "a", Share: 1}, wirev1.Code_CODE_UNAVAILABLE},
	} {
		if _, err := c.mesh.Rebalance(t.Context(), c.req); code.Of(err) != c.want {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
}
