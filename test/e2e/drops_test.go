package e2e

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
)

// Whatever a subscription of any kind lets go, because its handler is slow, is counted with its
// code, and stays counted once the subscription is left.
func TestDropsAreCountedWithTheirCode(t *testing.T) {
	const pending, sent = 8, 100
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(srv.Shutdown)
	if !srv.ReadyForConnections(time.Minute) {
		t.Fatal("nats-server is not ready")
	}
	b := bus.New(bus.Config{URL: srv.ClientURL(), Name: "test", Mesh: meshidtest.Identity(), Log: slog.New(slog.DiscardHandler)})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop(t.Context()) })
	reg := prometheus.NewRegistry()
	b.Register(reg)
	gaps := make(chan struct{}, 100)
	b.OnGap(func() { gaps <- struct{}{} })

	release := make(chan struct{})
	slow := func([]byte) { <-release }
	answers := func(data []byte, _ func([]byte) error) { slow(data) }
	leaveSub, err1 := b.Subscribe("plain", pending, answers)
	leaveServe, err2 := b.Serve("served", "group", pending, answers)
	leaveShare, err3 := b.Share("shared", "group", pending, slow)
	inbox, err4 := b.Listen(pending, "one", "two")
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	all := []string{"plain", "served", "shared", "one", "two"}
	for _, subject := range all {
		for range sent {
			if err := b.Publish(subject, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	flushing, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.Flush(flushing); err != nil { // all have come by then
		t.Fatal(err)
	}
	// Each handler has one message at hand or none, and up to pending wait; the two of the inbox
	// share its room.
	least, most := 4*sent-3*(pending+1)+sent-pending, 5*sent-4*pending
	dropped := func(want func(n int) bool) int {
		t.Helper()
		n := 0
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-tick.C {
			if n = counted(t, reg, "pushmesh_nats_dropped_total", "OVERLOADED"); want(n) {
				return n
			}
		}
		t.Fatalf("%d dropped of %d, want %d to %d", n, len(all)*sent, least, most)
		return n
	}
	n := dropped(func(n int) bool { return n >= least })
	if n > most {
		t.Errorf("%d dropped, more than %d", n, most)
	}
	<-gaps
	if counted(t, reg, "pushmesh_nats_gaps_total", "OVERLOADED") < 1 || counted(t, reg, "pushmesh_nats_gaps_total", "UNAVAILABLE") != 0 {
		t.Error("gaps are not counted with their code")
	}
	leaveSub()
	leaveServe()
	inbox.Leave()
	close(release)
	if err := leaveShare(t.Context()); err != nil {
		t.Error(err)
	}
	if got := counted(t, reg, "pushmesh_nats_dropped_total", "OVERLOADED"); got != n {
		t.Errorf("%d dropped once they are left, %d before", got, n)
	}
}

// counted is what was counted of a metric with a code.
func counted(t *testing.T, reg *prometheus.Registry, name, code string) int {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetName() == "code" && m.GetLabel()[0].GetValue() == code {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	t.Fatalf("no %s of %s", name, code)
	return 0
}
