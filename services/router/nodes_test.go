package router

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// skewedCompute has a clock an hour ahead.
type skewedCompute struct {
	meshv1.UnimplementedComputeServiceServer
}

func (skewedCompute) Describe(_ context.Context, _ *meshv1.DescribeRequest) (*meshv1.DescribeResponse, error) {
	return &meshv1.DescribeResponse{Id: "c1", Incarnation: 5, Program: "v1", HttpAddress: "h:7482", Ready: true, Clock: uint64(time.Now().Add(time.Hour).UnixMicro())}, nil
}

func TestNodesNamesEveryTier(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	meshv1.RegisterComputeServiceServer(server, skewedCompute{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	m := startMesh(t, func(s *Settings) {
		s.Version, s.Computes = "v7", []string{listener.Addr().String(), "127.0.0.1:1"}
	})
	startEdge(t, m.nats.ClientURL(), "a", "r1")
	api := pushmeshv1.NewMeshServiceClient(m.conn)
	eventually(t, "every node is named", func() error {
		resp, err := api.Nodes(t.Context(), &pushmeshv1.MeshServiceNodesRequest{})
		if err != nil {
			return err
		}
		var got []string
		for _, n := range resp.GetNodes() {
			got = append(got, fmt.Sprintf("%s %q", n.GetTier(), n.GetId()))
		}
		if want := `[TIER_EDGE "a" TIER_ROUTER "r1" TIER_COMPUTE "" TIER_COMPUTE "c1"]`; fmt.Sprint(got) != want {
			return fmt.Errorf("%v, want %s", got, want)
		}
		self, gone, c := resp.GetNodes()[1], resp.GetNodes()[2], resp.GetNodes()[3]
		if resp.GetRouterId() != "r1" || self.GetGrpcAddress() != m.router.Addr() || self.GetHttpAddress() != m.router.HTTPAddr() || self.GetVersion() != "v7" ||
			self.GetReady() != pushmeshv1.Ready_READY_YES || self.GetClock() == 0 || self.GetIncarnation() == 0 {
			return fmt.Errorf("of itself it says %v", self)
		}
		if gone.GetReady() != pushmeshv1.Ready_READY_NO || !strings.Contains(gone.GetProblem(), "connection refused") || gone.GetGrpcAddress() != "127.0.0.1:1" {
			return fmt.Errorf("of one that is not there it says %v", gone)
		}
		ahead := time.Duration(c.GetClock()-c.GetHeardAt()) * time.Microsecond
		if c.GetReady() != pushmeshv1.Ready_READY_YES || c.GetHttpAddress() != "h:7482" || ahead < 59*time.Minute || ahead > 61*time.Minute {
			return errors.New("of compute it says " + c.String())
		}
		return nil
	})
}
