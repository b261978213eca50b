package edge

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/ports"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// fullPipe is a pipe that takes no byte more and that nobody reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	raw, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Write(func(fd uintptr) bool {
		for err == nil {
			_, err = syscall.Write(int(fd), make([]byte, 4096))
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, syscall.EAGAIN) {
		t.Fatal(err)
	}
	if err := syscall.SetNonblock(int(w.Fd()), false); err != nil {
		t.Fatal(err)
	}
	return w
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := ports.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// A log that nobody reads stops neither the start, nor deliveries, nor the end of the process, however much is logged.
func TestDeliversThoughNobodyReadsItsLog(t *testing.T) {
	w := newWorld(t)
	binary := filepath.Join(t.TempDir(), "edge")
	if out, err := exec.Command("go", "build", "-o", binary, "./cmd/edge").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	addr, httpAddr := freeAddr(t), freeAddr(t)
	cmd := exec.Command(binary, "--id", "e1", "--listen", addr, "--http", httpAddr, "--nats", w.nats.URL(), "--stores", w.store.Addr(),
		"--loops", "2", "--shed-lag", "0", "--log-level", "debug")
	cmd.Stderr = fullPipe(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	edgetest.WaitFor(t, "the edge's store and routers", func() error {
		resp, err := http.Get("http://" + httpAddr + "/readyz?verbose")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && strings.Count(string(body), "ok") < 6 {
			err = errors.New(string(body))
		}
		return err
	})
	c := w.clientAt(addr, &wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	for i := range 3 {
		w.nats.Down() // each loss and return is logged
		w.nats.Up()
		w.store.Publish("room/1", 1)
		c.messages("room/1", uint64(i+1)) // repaired from the log once NATS is back
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		ended = true
		if err != nil {
			t.Fatalf("the edge ended with %v", err)
		}
	case <-time.After(edgetest.Patience):
		t.Fatal("the edge does not stop")
	}
}
