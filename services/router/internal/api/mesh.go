package api

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/computeclient"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/nodes"
)

// Nodes lists the nodes that are heard (nodes.Registry).
type Nodes interface {
	List() []*pushmeshv1.Node
}

// Mesh is pushmesh.v1.MeshService.
type Mesh struct {
	pushmeshv1.UnimplementedMeshServiceServer
	self    func() *pushmeshv1.Node
	belongs func() (meshid.Mesh, bool)
	nodes   Nodes
	compute *computeclient.Client
	homes   Homes
	via     Requester
	stores  Accepter
}

// NewMesh makes the service; self describes this router, belongs names its mesh once that is known.
func NewMesh(self func() *pushmeshv1.Node, belongs func() (meshid.Mesh, bool), heard Nodes, compute *computeclient.Client, homes Homes, via Requester, stores Accepter) *Mesh {
	return &Mesh{self: self, belongs: belongs, nodes: heard, compute: compute, homes: homes, via: via, stores: stores}
}

// Nodes implements MeshService. It needs no NATS to name this router and its compute nodes.
func (m *Mesh) Nodes(ctx context.Context, _ *pushmeshv1.MeshServiceNodesRequest) (*pushmeshv1.MeshServiceNodesResponse, error) {
	all := m.describe(ctx)
	self := m.self()
	self.Clock = uint64(time.Now().UnixMicro())
	self.HeardAt = self.Clock
	all = append(all, self)
	for _, n := range m.nodes.List() {
		if n.GetTier() != self.GetTier() || n.GetId() != self.GetId() {
			all = append(all, proto.CloneOf(n))
		}
	}
	nodes.Sort(all)
	mesh, _ := m.belongs()
	return &pushmeshv1.MeshServiceNodesResponse{Nodes: all, RouterId: self.GetId(), Clock: self.GetClock(), MeshName: mesh.Name, MeshId: mesh.ID}, nil
}

// describe asks every compute node who it is, all at once. One that does not answer is listed with
// the reason.
func (m *Mesh) describe(ctx context.Context) []*pushmeshv1.Node {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	all := make([]*pushmeshv1.Node, len(m.compute.Conns()))
	var wg sync.WaitGroup
	for i, conn := range m.compute.Conns() {
		wg.Go(func() {
			asked := time.Now()
			d, err := meshv1.NewComputeServiceClient(conn).Describe(ctx, &meshv1.DescribeRequest{})
			all[i] = compute(conn.Target(), d, err, asked.Add(time.Since(asked)/2))
		})
	}
	wg.Wait()
	return all
}

func compute(addr string, d *meshv1.DescribeResponse, err error, at time.Time) *pushmeshv1.Node {
	n := &pushmeshv1.Node{Tier: pushmeshv1.Tier_TIER_COMPUTE, GrpcAddress: addr}
	if err != nil {
		n.Ready, n.Problem = pushmeshv1.Ready_READY_NO, err.Error()
		return n
	}
	n.Ready = pushmeshv1.Ready_READY_NO
	if d.GetReady() {
		n.Ready = pushmeshv1.Ready_READY_YES
	}
	n.Id, n.Incarnation, n.Version, n.HttpAddress = d.GetId(), d.GetIncarnation(), d.GetProgram(), d.GetHttpAddress()
	n.Clock, n.HeardAt = d.GetClock(), uint64(at.UnixMicro())
	return n
}
