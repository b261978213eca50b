package dev

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

const patience = 30 * time.Second

// run starts a mesh that ends with the test, or when stop is called.
func run(t *testing.T, s Settings) (a Addrs, stop func()) {
	t.Helper()
	s.LogLevel = "error"
	m, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := m.Start(ctx); err != nil {
		t.Fatal(err)
	}
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := m.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return m.Addrs(), stop
}

// namespaces of a mesh, by their prefixes.
func namespaces(t *testing.T, router string) map[string]*pushmeshv1.Namespace {
	t.Helper()
	conn, err := grpc.NewClient(router, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	all, err := pushmeshv1.NewNamespaceServiceClient(conn).List(t.Context(), &pushmeshv1.NamespaceServiceListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*pushmeshv1.Namespace{}
	for _, n := range all.GetNamespaces() {
		found[n.GetPrefix()] = n
	}
	return found
}

// upgrade asks an edge for a WebSocket as a page would.
func upgrade(t *testing.T, edge, origin string) int {
	t.Helper()
	conn, err := net.Dial("tcp", edge)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: pushmesh.v1\r\nOrigin: %s\r\n\r\n", edge, origin)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// The page is served, the edge lets it in beside those it lets in anyway, and its namespaces are
// made once.
func TestPlayground(t *testing.T) {
	data := t.TempDir()
	a, stop := run(t, Settings{Data: data})
	res, err := http.Get(a.Playground)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if policy := res.Header.Get("Content-Security-Policy"); res.StatusCode != http.StatusOK || !strings.Contains(policy, "connect-src ws://"+a.Edge+";") {
		t.Errorf("%s with the policy %q", res.Status, policy)
	}
	origin := strings.TrimSuffix(a.Playground, "/")
	for from, want := range map[string]int{origin: 101, "http://" + a.Edge: 101, "http://evil.example": 403, "null": 403} {
		if got := upgrade(t, a.Edge, from); got != want {
			t.Errorf("a page of %s gets %d, want %d", from, got, want)
		}
	}
	first := namespaces(t, a.Router)
	if !first["play"].GetPolicy().GetClientPublish() || first["play/prices"].GetPolicy().GetRank() == nil {
		t.Errorf("namespaces: %v", first)
	}
	stop()

	a, _ = run(t, Settings{Data: data})
	for prefix, n := range namespaces(t, a.Router) {
		if was := first[prefix].GetVersion(); n.GetVersion() != was {
			t.Errorf("namespace %s was written again: version %d, then %d", prefix, was, n.GetVersion())
		}
	}
}

func TestNoPlayground(t *testing.T) {
	a, _ := run(t, Settings{Data: t.TempDir(), NoPlayground: true})
	if all := namespaces(t, a.Router); a.Playground != "" || all["play"] != nil {
		t.Errorf("%q, with %v", a.Playground, all)
	}
	if got := upgrade(t, a.Edge, "http://"+a.Edge); got != 101 {
		t.Errorf("a page of the same host gets %d", got)
	}
}

// Pages that are listed connect, beside the playground where there is one, and no others: not even
// those of the edge's host, unless the list says so.
func TestPagesOfOtherOrigins(t *testing.T) {
	const mine = "http://localhost:5173"
	for _, x := range []struct {
		origins      []string
		noPlayground bool
		sameHost     int
	}{
		{[]string{mine}, false, 403},
		{[]string{mine, "same-host"}, false, 101},
		{[]string{mine}, true, 403},
	} {
		a, stop := run(t, Settings{Data: t.TempDir(), WebSocketOrigins: x.origins, NoPlayground: x.noPlayground})
		origins := map[string]int{mine: 101, "http://" + a.Edge: x.sameHost, "http://localhost:5174": 403}
		if !x.noPlayground {
			origins[strings.TrimSuffix(a.Playground, "/")] = 101
		}
		for from, want := range origins {
			if got := upgrade(t, a.Edge, from); got != want {
				t.Errorf("with %q, a page of %s gets %d, want %d", x.origins, from, got, want)
			}
		}
		stop()
	}
}

// A port that is taken is named, with what to do, and nothing is left behind.
func TestThePlaygroundsPortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	m, err := New(Settings{Data: t.TempDir(), Playground: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	err = m.Start(t.Context())
	for _, want := range []string{"playground", l.Addr().String(), "--playground-listen", "--no-playground"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %s", err, want)
		}
	}
}
