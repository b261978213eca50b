package edge

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// asEdge in the environment has the tests' program be an edge, as cmd/edge is.
const asEdge = "PUSHMESH_TEST_AS_EDGE"

func TestMain(m *testing.M) {
	if os.Getenv(asEdge) == "" {
		os.Exit(m.Run())
	}
	var s Settings
	err := settings.Parse(&s, "edge", "An edge for tests.", os.Args[1:], os.Stdout)
	if err == nil {
		var e *Edge
		if e, err = New(context.Background(), s); err == nil {
			err = lifecycle.Run(context.Background(), e, s.Grace, nil)
		}
	}
	os.Exit(settings.ExitCode(err))
}

// process is an edge of its own.
type process struct {
	t          *testing.T
	cmd        *exec.Cmd
	addr, http string
	client     http.Client // keeps its one connection
}

// process starts an edge, with its log going to out; it is killed with the test, unless stop was
// called.
func (w *world) process(out io.Writer, flags ...string) *process {
	w.t.Helper()
	p := &process{t: w.t, addr: freeAddr(w.t), http: freeAddr(w.t)}
	p.cmd = exec.Command(os.Args[0], append([]string{
		"--open", "--plain-tiers", "--id", "e1", "--listen", p.addr, "--http", p.http, "--nats", w.nats.URL(), "--stores", w.store.Addr(), "--loops", "2", "--shed-lag", "0",
	}, flags...)...)
	p.cmd.Stderr, p.cmd.Env = out, append(os.Environ(), asEdge+"=1")
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	edgetest.WaitFor(w.t, "the edge's store and routers", func() error {
		body, err := p.get("/readyz?verbose")
		if err == nil && (strings.Contains(body, "missing") || strings.Contains(body, "degraded")) {
			err = errors.New(body)
		}
		return err
	})
	return p
}

func (p *process) get(path string) (string, error) {
	resp, err := p.client.Get("http://" + p.http + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// metric is the value of one without labels; 0: there is none.
func (p *process) metric(name string) float64 {
	p.t.Helper()
	body, err := p.get("/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(body)
	if found == nil {
		return 0
	}
	v, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// stop is a planned one.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			p.t.Fatalf("the edge ended with %v", err)
		}
	case <-time.After(edgetest.Patience):
		p.t.Fatal("the edge does not stop")
	}
}

// record is a log that is kept.
type record struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.Write(b)
}

func (r *record) count(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.all.String(), text)
}
