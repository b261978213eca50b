package dialfault

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// call is the message of the status of a call to addr.
func call(t *testing.T, addr string, with credentials.TransportCredentials) string {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(with))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	return status.Convert(err).Message()
}

// What gRPC says of its connections, with the version of it that is used here, is said plainly.
func TestExplain(t *testing.T) {
	hangsUp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hangsUp.Close() }()
	go func() {
		for {
			c, err := hangsUp.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4<<10))
			_ = c.Close()
		}
	}()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	at := web.Listener.Addr().String()
	for _, c := range []struct {
		addr  string
		with  credentials.TransportCredentials
		want  string
		wrong bool
	}{
		{"127.0.0.1:1", insecure.NewCredentials(), "no connection: dial tcp 127.0.0.1:1: connect: connection refused", false},
		{"nowhere.invalid:7401", insecure.NewCredentials(), "no connection: the host nowhere.invalid is not known", false},
		{hangsUp.Addr().String(), insecure.NewCredentials(), hangsUp.Addr().String() + " accepts connections but does not speak gRPC: is it a router's port (7401)?", true},
		{at, insecure.NewCredentials(), at + " accepts connections but does not speak gRPC: is it a router's port (7401)?", true},
		{at, credentials.NewTLS(nil), "no connection to " + at + ": the TLS handshake failed: tls: first record does not look like a TLS handshake: does this port take TLS (a router with --tls-cert does)?", false},
		{hangsUp.Addr().String(), credentials.NewTLS(nil), "no connection to " + hangsUp.Addr().String() + ": the TLS handshake failed: EOF: does this port take TLS (a router with --tls-cert does)?", false},
	} {
		said := call(t, c.addr, c.with)
		if got, wrong := Explain(c.addr, said); got != c.want || wrong != c.wrong {
			t.Errorf("%s: gRPC says %q, and it is %q (another port: %t); want %q", c.addr, said, got, wrong, c.want)
		}
	}
	if got, wrong := Explain("a:1", "no store is there"); got != "no store is there" || wrong {
		t.Errorf("%q, %t", got, wrong)
	}
}
