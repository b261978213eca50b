package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	identities "github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/identity/token/tokentest"
	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// grpcurl is the path of the tool, which is built where nobody says where it is.
func grpcurl(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("PUSHMESH_TEST_GRPCURL"); path != "" {
		return path
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join("..", "..", "scripts", "tool"), "grpcurl").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// A client that is not ours calls a router without credentials, with wrong and with right ones.
func TestWithGRPCurl(t *testing.T) {
	t.Parallel()
	tool := grpcurl(t)
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	trust, backends := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "backends.yaml")
	cert, key, err := ca.Write(dir, "router", "127.0.0.1")
	const deploys = "backends:\n- name: deploys\n  roles: [operator]\n  tokens: [{issuer: test, sub: ci}]\n"
	if err = errors.Join(err, os.WriteFile(trust, ca.PEM(), 0o600), os.WriteFile(backends, []byte(deploys), 0o600)); err != nil {
		t.Fatal(err)
	}
	create := func(name, role string, expires time.Time) (text, id string) {
		t.Helper()
		k, text, err := identities.Create(backends, name, []string{role}, time.Now(), expires)
		if err != nil {
			t.Fatal(err)
		}
		return text, k.ID
	}
	publisher, _ := create("orders", "publisher:orders/#", time.Time{})
	admin, _ := create("admin", "operator", time.Time{})
	over := time.Now().Add(time.Second)
	late, _ := create("late", "operator", over)
	gone, id := create("gone", "operator", time.Time{})
	if err := identities.Revoke(backends, id); err != nil {
		t.Fatal(err)
	}
	is := tokentest.New(t)
	m := procmesh.Start(t, procmesh.Options{RouterArgs: []string{
		"--backends", backends, "--issuers", is.File(t), "--outbound-allow", "127.0.0.1", "--tls-cert", cert, "--tls-key", key, "--tls-required",
	}})
	<-time.After(time.Until(over))
	const publish, put = "pushmesh.v1.PublishService/Publish", "pushmesh.v1.NamespaceService/Put"
	const orders, others, namespace = `{"topic": "orders/1", "payload": "aGVsbG8="}`, `{"topic": "others/1"}`, `{"namespace": {"prefix": "orders", "policy": {"durable": true}}}`
	secret := func(text string) string {
		return text[:len(text)-4] + strings.Map(func(r rune) rune { return r ^ 1 }, text[len(text)-4:])
	}
	for _, c := range []struct {
		what, bearer, call, body string
		args                     []string
		says                     []string
	}{
		{"a server's name that is another", admin, put, namespace, []string{"-cacert", trust, "-servername", "other.example"}, []string{"certificate", "other.example"}},
		{"no TLS", admin, put, namespace, []string{"-plaintext", "-connect-timeout", "2"}, []string{"Failed to dial"}},
		{"another authority", admin, put, namespace, []string{}, []string{"unknown authority"}},
		{"reflection", "", "list", "", nil, []string{"pushmesh.v1.PublishService", "pushmesh.v1.AccessService"}},
		{"health", "", "grpc.health.v1.Health/Check", "", nil, []string{"SERVING"}},
		{"nothing", "", publish, orders, nil, []string{"Unauthenticated", "this router asks who calls"}},
		{"no key", "something", publish, orders, nil, []string{"Unauthenticated"}},
		{"another secret", secret(publisher), publish, orders, nil, []string{"Unauthenticated"}},
		{"a key that was revoked", gone, put, namespace, nil, []string{"Unauthenticated"}},
		{"a key whose time is over", late, put, namespace, nil, []string{"Unauthenticated", "TOKEN_EXPIRED"}},
		{"a token of somebody", is.Token("ann", nil), put, namespace, nil, []string{"Unauthenticated"}},
		{"a role that is another", publisher, put, namespace, nil, []string{"PermissionDenied", "publisher:orders/#"}},
		{"an operator", admin, put, namespace, nil, []string{`"prefix": "orders"`}},
		{"a token of a backend", is.Token("ci", nil), put, namespace, nil, []string{`"prefix": "orders"`}},
		{"another topic", publisher, publish, others, nil, []string{"PermissionDenied", "others/1"}},
		{"its own topic", publisher, publish, orders, nil, []string{`"seq": "1"`}},
	} {
		args := append([]string{"-max-time", "60"}, c.args...)
		if c.args == nil {
			args = append(args, "-cacert", trust)
		}
		if c.bearer != "" {
			args = append(args, "-H", "authorization: Bearer "+c.bearer)
		}
		if c.body != "" {
			args = append(args, "-d", c.body)
		}
		out, _ := exec.CommandContext(t.Context(), tool, append(args, m.RouterAddrs[0], c.call)...).CombinedOutput()
		for _, want := range c.says {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: no %q in %s", c.what, want, out)
			}
		}
		if c.bearer != "" && strings.Contains(string(out), c.bearer[len(c.bearer)-4:]) {
			t.Errorf("%s: it is shown: %s", c.what, out)
		}
	}
}
