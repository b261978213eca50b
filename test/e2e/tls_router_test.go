package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/harness"
)

// A backend with a certificate publishes and consumes through a router while that gets another
// certificate: its connections go on, and nothing is lost, doubled or out of order. Its consumers
// go through an edge, to which the router comes without TLS.
func TestABackendWithTLS(t *testing.T) {
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key, err := ca.Write(dir, "router", "127.0.0.1")
	trust := filepath.Join(dir, "ca.pem")
	if err := errors.Join(err, os.WriteFile(trust, ca.PEM(), 0o600)); err != nil {
		t.Fatal(err)
	}
	m := harness.Start(t, harness.Options{Change: func(s *inprocess.Settings) {
		r := &s.Routers[0]
		r.TLSCerts, r.TLSKeys, r.TLSClientCA, r.TLSReload = []string{cert}, []string{key}, trust, 20*time.Millisecond
	}})
	putNamespace(t, m, "jobs", &pushmeshv1.Policy{Durable: true, AckTimeout: durationpb.New(patient)})
	backend := func(name string) []grpc.DialOption {
		pair, err := ca.Certificate(name)
		if err != nil {
			t.Fatal(err)
		}
		return []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair}}))}
	}
	got := make(chan *pushmesh.Delivery, 100)
	sub, err := pushmesh.NewBackend(pushmesh.SubscriberConfig{Addrs: m.RouterAddrs, OnDisconnect: func(err error) {
		if err != nil {
			t.Error(err)
		}
	}}, backend("consumer")...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closing.Close(sub) }()
	if _, err := sub.Subscribe(t.Context(), "jobs/a", func(_ context.Context, d *pushmesh.Delivery) error {
		got <- d
		return nil
	}, pushmesh.WithAck()); err != nil {
		t.Fatal(err)
	}
	producer, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: m.RouterAddrs, DialOptions: backend("producer")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closing.Close(producer) }()
	served := func() (serial string) {
		conn, err := tls.Dial("tcp", m.RouterAddrs[0], &tls.Config{RootCAs: ca.Pool(), NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := served()
	for i := range 20 {
		if i == 10 {
			if _, _, err := ca.Write(dir, "router", "127.0.0.1"); err != nil {
				t.Fatal(err)
			}
			for began := time.Now(); served() == first; {
				if time.Since(began) > patient {
					t.Fatal("the new certificate is not served")
				}
			}
		}
		if _, err := producer.Publish(t.Context(), pushmesh.Message{Topic: "jobs/a", Payload: []byte(strconv.Itoa(i))}); err != nil {
			t.Fatal(err)
		}
		if d := <-got; string(d.Payload) != strconv.Itoa(i) {
			t.Fatalf("message %d: %q", i, d.Payload)
		}
	}
}
