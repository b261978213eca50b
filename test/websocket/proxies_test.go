package websocket

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/internal/identity/hook"
	"github.com/pushmesh/pushmesh/internal/ports"
	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// Addresses that proxies connect to edges from.
const (
	proxyAddr     = "127.0.0.5" // it sends the PROXY protocol
	forwarderAddr = "127.0.0.6" // it sends X-Forwarded-For
)

// proxied is an edge behind proxies that end TLS.
type proxied struct {
	roots    *x509.CertPool
	producer *pushmesh.Producer

	mu      sync.Mutex
	clients map[string]string // the address that the edge told the hook, by token
}

// ServeHTTP is the connect hook.
func (p *proxied) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q hook.Question
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.clients[q.Token] = q.Address
	p.mu.Unlock()
	// an edge that is gone
	_, _ = fmt.Fprintf(w, `{"sub": %q, "expires_in": 3600, "pm_sub": ["websocket/#"]}`, q.Token)
}

func (p *proxied) client(token string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clients[token]
}

// run runs a proxy until the test ends.
func run(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("%s says\n%s", program, out.String())
		}
	})
}

// config writes a proxy's configuration, and gives its path.
func config(t *testing.T, folder, name string, with ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, name)
	text := strings.NewReplacer(append(with, "FOLDER", folder, "PROXY", proxyAddr, "FORWARDER", forwarderAddr)...).Replace(string(b))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := ports.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// startProxies starts a mesh, and gives the addresses of the proxies before its edge.
func startProxies(t *testing.T, timeout time.Duration) (p *proxied, addrs map[string]string) {
	t.Helper()
	p = &proxied{clients: map[string]string{}}
	backend := httptest.NewServer(p)
	t.Cleanup(backend.Close)
	m := procmesh.Start(t, procmesh.Options{EdgeArgs: []string{
		"--open=false", "--connect-hook", backend.URL, "--outbound-allow", "127.0.0.1", "--max-address-connections", "2",
		"--proxy-protocol-from", proxyAddr, "--forwarded-from", forwarderAddr,
	}})
	m.Namespace(t, "websocket", &pushmeshv1.Policy{Durable: true})
	var err error
	if p.producer, err = pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: m.RouterAddrs}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Close(p.producer) })

	folder := t.TempDir()
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "both.pem"), append(cert, key...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.roots = ca.Pool()
	addrs = map[string]string{"nginx": freeAddr(t), "haproxy": freeAddr(t), "haproxy, PROXY v2": freeAddr(t)}
	of := []string{"TIMEOUT", fmt.Sprintf("%ds", timeout/time.Second), "EDGE", m.EdgeAddrs[0]}
	run(t, "/usr/sbin/haproxy", "-db", "-f", config(t, folder, "haproxy.cfg", append(of, "LISTEN_HTTP", addrs["haproxy"], "LISTEN_TCP", addrs["haproxy, PROXY v2"])...))
	run(t, "/usr/sbin/nginx", "-p", folder, "-c", config(t, folder, "nginx.conf", append(of, "LISTEN", addrs["nginx"])...))
	for name, addr := range addrs {
		procmesh.Await(t, name+" listens", func() bool {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
	}
	return p, addrs
}

// dial connects from an address of this machine through a proxy, and says Hello.
func (p *proxied) dial(t *testing.T, proxy, from, token string, heartbeat time.Duration) (*conn, error) {
	t.Helper()
	d := tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}, Config: &tls.Config{RootCAs: p.roots, NextProtos: []string{"http/1.1"}}}
	raw, err := d.DialContext(t.Context(), "tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	// Whom the client names itself counts for nothing.
	c, err := upgrade(raw, "X-Forwarded-For: 203.0.113.9", "Sec-WebSocket-Protocol: "+native+", bearer."+token)
	if err != nil {
		return nil, err
	}
	return c, c.hello(&wirev1.Hello{ClientId: token, HeartbeatMs: uint32(heartbeat.Milliseconds())})
}

// silences: how long a proxy lets both sides be silent, and how often it must be asked in a test.
func silences(t *testing.T) (timeout, span time.Duration) {
	t.Helper()
	span, err := time.ParseDuration(cmp.Or(os.Getenv("PUSHMESH_WEBSOCKET_FOR"), "0s"))
	if err != nil {
		t.Fatal(err)
	}
	if span == 0 {
		return 4 * time.Second, 10 * time.Second
	}
	return time.Minute, span
}

// Proxies that end TLS, and close what is silent for a while, keep a client that sends nothing but
// Pongs: the edge asks. Limits and the connect hook see the client's address, and not the proxy's.
func TestProxies(t *testing.T) {
	t.Parallel()
	timeout, span := silences(t)
	p, addrs := startProxies(t, timeout)
	n := 0
	for name, addr := range addrs {
		n++
		from := fmt.Sprintf("127.0.1.%d", n)
		other := fmt.Sprintf("127.0.2.%d", n)
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			behindProxy(t, p, addr, from, other, timeout, span)
		})
	}
}

func behindProxy(t *testing.T, p *proxied, proxy, from, other string, timeout, span time.Duration) {
	kept, err := p.dial(t, proxy, from, "kept-"+from, timeout/2)
	if err != nil {
		t.Fatal(err)
	}
	silent, err := p.dial(t, proxy, from, "silent-"+from, 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.client("kept-" + from); got != from {
		t.Errorf("the hook was told %q, want %s", got, from)
	}
	if _, err := p.dial(t, proxy, from, "third-"+from, 0); err == nil {
		t.Error("a third connection of the address was let in")
	}
	if _, err := p.dial(t, proxy, other, "other-"+other, 0); err != nil {
		t.Errorf("another address was refused: %v", err)
	}

	var s seen
	if err := kept.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "websocket/" + from}); err != nil {
		t.Fatal(err)
	}
	if _, err := expect[*wirev1.Subscribed](kept, &s, "Subscribed"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, c := range []*conn{kept, silent} {
		if err := c.SetDeadline(began.Add(patience + 2*timeout + span)); err != nil {
			t.Fatal(err)
		}
	}
	// The edge asks after half of the two and a half heartbeats for which a client may be silent.
	asked := int(span / (timeout / 2 * 5 / 4))
	if err := kept.until(&s, "Pings", func() bool { return s.pings >= asked }); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*timeout {
		t.Errorf("it was silent for %v, and the proxy lets it be for %v", took, timeout)
	}
	if _, err := p.producer.Publish(t.Context(), pushmesh.Message{Topic: "websocket/" + from, Payload: []byte("here?")}); err != nil {
		t.Fatal(err)
	}
	if err := kept.until(&s, "a message", func() bool { return len(s.messages) == 1 }); err != nil {
		t.Fatal(err)
	}
	cutOff(t, silent)
}

// cutOff waits until a connection that nobody asks is closed by the proxy: no Close of the edge
// comes.
func cutOff(t *testing.T, c *conn) {
	t.Helper()
	_, _, err := c.next()
	var timeout net.Error
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a silent connection was not cut off by the proxy: %v", err)
	}
}
