package edge

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/pushmesh/pushmesh/internal/ports"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
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

// A log that nobody reads stops neither the start, nor deliveries, nor the end of the process,
// however much is logged.
func TestDeliversThoughNobodyReadsItsLog(t *testing.T) {
	w := newWorld(t)
	p := w.process(fullPipe(t), "--log-level", "debug")
	c := w.clientAt(p.addr, &wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	for i := range 3 {
		w.nats.Down() // each loss and return is logged
		w.nats.Up()
		w.store.Publish("room/1", 1)
		c.messages("room/1", uint64(i+1)) // repaired from the log once NATS is back
	}
	p.stop()
}
