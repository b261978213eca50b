package grpcserve

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/proto/dialfault"
)

// secured is a server with TLS, and how its connections began.
type secured struct {
	*Server
	ca    *testca.Authority
	began [Resumed + 1]atomic.Int64
}

func secure(t *testing.T, change func(*TLS)) *secured {
	t.Helper()
	return secureWithin(t, time.Minute, change)
}

// secureWithin is secure with so much time for a connection to begin.
func secureWithin(t *testing.T, begin time.Duration, change func(*TLS)) *secured {
	t.Helper()
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Certificate("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	s := &secured{ca: ca}
	if s.Server, err = Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	by := &TLS{Config: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, Began: func(b Beginning, _ net.Addr, _ error) { s.began[b].Add(1) }}
	if change != nil {
		change(by)
	}
	s.Serve(Config{MinPing: time.Second, Begin: begin, TLS: by, Register: func(grpc.ServiceRegistrar) {}})
	t.Cleanup(func() {
		if err := s.Stop(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return s
}

// call asks for the server's health over a connection of its own.
func (s *secured) call(t *testing.T, with credentials.TransportCredentials) error {
	t.Helper()
	conn, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(with))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	return err
}

func (s *secured) expect(t *testing.T, plain, refused, full, resumed int64) {
	t.Helper()
	for b, want := range map[Beginning]int64{Plain: plain, Refused: refused, Full: full, Resumed: resumed} {
		if got := s.began[b].Load(); got != want {
			t.Errorf("%d connections began like %d, want %d", got, b, want)
		}
	}
}

func TestOnePortServesBoth(t *testing.T) {
	t.Parallel()
	s := secure(t, nil)
	trust := &tls.Config{RootCAs: s.ca.Pool(), ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	for range 2 {
		if err := s.call(t, credentials.NewTLS(trust)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.call(t, insecure.NewCredentials()); err != nil {
		t.Fatal(err)
	}
	s.expect(t, 1, 0, 1, 1)
}

// A client without TLS, where that is required, hears so before it has sent a call.
func TestPlainIsRefusedWithASentence(t *testing.T) {
	t.Parallel()
	s := secure(t, func(by *TLS) { by.Required = true })
	err := s.call(t, insecure.NewCredentials())
	said, wrong := dialfault.Explain(s.Addr(), err.Error())
	if !strings.Contains(said, s.Addr()+" takes connections with TLS alone") || !wrong {
		t.Errorf("gRPC says %q, and it is %q (trying again can't help: %t)", err, said, wrong)
	}
	if err := s.call(t, credentials.NewTLS(&tls.Config{RootCAs: s.ca.Pool()})); err != nil {
		t.Error(err)
	}
	if s.began[Refused].Load() == 0 || s.began[Plain].Load() != 0 {
		t.Errorf("%d refused, %d not", s.began[Refused].Load(), s.began[Plain].Load())
	}

	// whoever speaks HTTP/2 otherwise may read it, whatever they have sent meanwhile
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, http2.ClientPreface+strings.Repeat("x", 32<<10)); err != nil {
		t.Fatal(err)
	}
	frame, err := http2.NewFramer(nil, conn).ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	away, ok := frame.(*http2.GoAwayFrame)
	if !ok || away.ErrCode != http2.ErrCodeInadequateSecurity || string(away.DebugData()) != tlsAlone {
		t.Errorf("got %v", frame)
	}
}

// A client whose certificate is missing or strange reads why, with either version.
func TestClientsReadWhyTheirHandshakeFailed(t *testing.T) {
	t.Parallel()
	other, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	s := secure(t, func(by *TLS) { by.Config.ClientAuth = tls.RequireAndVerifyClientCert })
	strange, err := other.Certificate("client")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, certs := range [][]tls.Certificate{nil, {strange}} {
			err := s.call(t, credentials.NewTLS(&tls.Config{RootCAs: s.ca.Pool(), MaxVersion: version, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &append(certs, tls.Certificate{})[0], nil
			}}))
			if err == nil {
				t.Errorf("version %x, %d certificates: it is served", version, len(certs))
				continue
			}
			if said, _ := dialfault.Explain(s.Addr(), err.Error()); !strings.Contains(said, "a certificate of its clients") || !strings.Contains(said, "pushmesh: --tls-cert") {
				t.Errorf("version %x, %d certificates: gRPC says %q, and it is %q", version, len(certs), err, said)
			}
		}
	}
	s.expect(t, 0, 0, 0, 0)
}

// A client that says nothing, or stops in its handshake, is let go, and holds up no stop.
func TestWhoDoesNotBeginIsLetGo(t *testing.T) {
	t.Parallel()
	s := secureWithin(t, 200*time.Millisecond, nil)
	for name, sent := range map[string]string{"nothing": "", "a byte": "\x16", "a part of a record": "\x16\x03\x01\x02\x00abc", "HTTP/2's preface alone": http2.ClientPreface} {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, sent); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, net.ErrClosed) || isTimeout(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
