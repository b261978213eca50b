package lifecycle

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asked is a Part that notes what it was asked for.
type asked chan string

func (a asked) Start(context.Context) error { a <- "start"; return nil }
func (a asked) Stop(context.Context) error  { a <- "stop"; return nil }

// systemd hears that the process serves, then that it still runs, and at last that it stops, before
// that takes its time.
func TestSystemdHearsHowAProcessIs(t *testing.T) {
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	t.Setenv("NOTIFY_SOCKET", socket.LocalAddr().String())
	t.Setenv("WATCHDOG_USEC", "30000")
	heard := func() string {
		t.Helper()
		b := make([]byte, 256)
		if err := socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := socket.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	ctx, cancel := context.WithCancel(t.Context())
	part, ended, hung := make(asked, 2), make(chan error, 1), make(chan bool, 1)
	go func() { ended <- Run(ctx, part, time.Minute, func() { hung <- true }) }()
	for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		if got := heard(); got != want {
			t.Errorf("systemd hears %q, not %q", got, want)
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil { // nothing ends
		t.Fatal(err)
	}
	if got := heard(); got != "WATCHDOG=1" {
		t.Errorf("after SIGHUP systemd hears %q", got)
	}
	select {
	case <-hung:
	case <-time.After(time.Minute):
		t.Error("SIGHUP has called nothing")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	said := heard()
	for said == "WATCHDOG=1" { // which was under way
		said = heard()
	}
	if said != "STOPPING=1" {
		t.Errorf("systemd hears %q at the end", said)
	}
	if said = heard(); !strings.HasPrefix(said, "WATCHDOG_USEC=6003") {
		t.Errorf("the watchdog waits %q for the stop", said)
	}
}
