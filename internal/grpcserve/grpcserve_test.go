package grpcserve

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func serve(t *testing.T) (*Server, grpc_health_v1.HealthClient) {
	t.Helper()
	s, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.SetServing("part", false)
	s.Serve(Config{MinPing: time.Second, Register: func(grpc.ServiceRegistrar) {}})
	conn, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return s, grpc_health_v1.NewHealthClient(conn)
}

func TestHealthIsAnsweredByName(t *testing.T) {
	t.Parallel()
	s, client := serve(t)
	asked := func(name string) bool {
		resp, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING
	}
	if !asked("") || asked("part") {
		t.Errorf("the server %v, the part %v", asked(""), asked("part"))
	}
	s.SetServing("part", true)
	if !asked("part") {
		t.Error("the part does not serve")
	}
	s.Leave()
	s.SetServing("part", true)
	if asked("") || asked("part") {
		t.Error("it serves after Leave")
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCallsThatDoNotEndAreCutOff(t *testing.T) {
	t.Parallel()
	s, client := serve(t)
	watch, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(over); err == nil {
		t.Error("no error, though a call was under way")
	}
	if _, err := watch.Recv(); err == nil {
		t.Error("the call goes on")
	}
	if _, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr()); err == nil {
		t.Error("it still listens")
	}
}

func TestPatienceLeavesAThird(t *testing.T) {
	t.Parallel()
	whole, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
	defer cancel()
	part, cancel := Patience(whole)
	defer cancel()
	deadline, _ := part.Deadline()
	if left := time.Until(deadline); left > 2*time.Hour || left < time.Hour {
		t.Errorf("%v of 3 h", left)
	}
	unbounded, cancel := Patience(t.Context())
	defer cancel()
	if _, bounded := unbounded.Deadline(); bounded {
		t.Error("patience without a deadline ends")
	}
}

func TestAnAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	s, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if second, err := Listen(t.Context(), s.Addr()); err == nil || second.Addr() != "" {
		t.Errorf("%v, at %q", err, second.Addr())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
