package cli

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/dev"
)

// patience bounds every wait of these tests; nothing comes near it.
const patience = 2 * time.Minute

// safeBuffer is written by a command and read by a test.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// command is a command that runs.
type command struct {
	t        *testing.T
	out, err safeBuffer
	cancel   context.CancelFunc
	ended    chan struct{}
	code     int
	tries    int // how often ran ran it
}

func start(t *testing.T, in io.Reader, args ...string) *command {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &command{t: t, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		c.code = Main(ctx, args, in, &c.out, &c.err)
	}()
	t.Cleanup(func() {
		cancel()
		<-c.ended
	})
	return c
}

// wait for the end, and the exit code.
func (c *command) wait() int {
	c.t.Helper()
	select {
	case <-c.ended:
	case <-time.After(patience):
		c.t.Fatalf("does not end; out %q err %q", c.out.String(), c.err.String())
	}
	return c.code
}

// says waits until the output or what it says about itself holds text.
func (c *command) says(text string) {
	c.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(c.out.String()+c.err.String(), text) {
		select {
		case <-tick.C:
		case <-c.ended:
			if !strings.Contains(c.out.String()+c.err.String(), text) {
				c.t.Fatalf("ended without saying %q; out %q err %q", text, c.out.String(), c.err.String())
			}
		case <-deadline:
			c.t.Fatalf("does not say %q; out %q err %q", text, c.out.String(), c.err.String())
		}
	}
}

// ran runs a command to its end: again where the mesh says that trying again may help, as it does
// when the machine stood still for so long that a tier takes another one for gone.
func ran(t *testing.T, in string, args ...string) *command {
	t.Helper()
	for began, tries := time.Now(), 1; ; tries++ {
		c := start(t, strings.NewReader(in), args...)
		c.wait()
		c.tries = tries
		if c.code == 0 || !strings.Contains(c.err.String(), "(try again in ") && !strings.Contains(c.err.String(), "(trying again may help)") || time.Since(began) > patience {
			return c
		}
		t.Logf("%.100q once more: %s", args, c.err.String())
	}
}

// must run a command to its end, which is good, and returns its output.
func must(t *testing.T, in string, args ...string) string {
	t.Helper()
	c := ran(t, in, args...)
	if c.code != 0 {
		t.Fatalf("%v: exit code %d, out %q, err %q", args, c.code, c.out.String(), c.err.String())
	}
	return c.out.String()
}

// said runs a command until it succeeds and its output holds text: of a machine that stood still
// not every edge answers in time.
func said(t *testing.T, text string, args ...string) {
	t.Helper()
	for began := time.Now(); ; {
		c := ran(t, "", args...)
		if c.code == 0 && strings.Contains(c.out.String(), text) {
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("%v: exit code %d, out %q, err %q, want %q", args, c.code, c.out.String(), c.err.String(), text)
		}
	}
}

// running is a mesh in this process, and the flags that lead to it.
type running struct {
	mesh         *dev.Mesh
	addrs        dev.Addrs
	edge, router []string
	stop         func()
}

func startMesh(t *testing.T, data string) *running {
	t.Helper()
	m, err := dev.New(dev.Settings{Data: data, LogLevel: "error", NoPlayground: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := m.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	a := m.Addrs()
	return &running{m, a, []string{"--edge", a.Edge}, []string{"--router", a.Router}, stop}
}

// with is a command's arguments and the flags that lead to a mesh.
func with(flags []string, args ...string) []string { return slices.Concat(args, flags) }

// Who subscribes is counted, listed and seen to come and go.
func TestPresence(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	must(t, "", with(m.router, "namespace", "put", "crew", "--presence")...)
	sub := start(t, strings.NewReader(""), with(m.edge, "sub", "crew/1", "--client-id", "ann")...)
	said(t, "crew/1\t1\n", with(m.router, "presence", "count", "crew/1")...)
	watch := start(t, strings.NewReader(""), with(m.router, "presence", "watch", "crew/1")...)
	watch.says("=\tcrew/1\tann\t")
	said(t, `"client_id":"ann","user":"client:ann"`, with(m.router, "presence", "list", "crew/1", "--format", "json")...)
	sub.cancel()
	sub.wait()
	watch.says("-\tcrew/1\tann\t")
	watch.cancel()
	if code := watch.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, watch.err.String())
	}
}
