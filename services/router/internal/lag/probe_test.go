package lag

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func started(t *testing.T, most time.Duration) *Probe {
	t.Helper()
	p := NewProbe(most, prometheus.NewRegistry())
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// until waits for what must come; only a probe that hangs keeps it for a minute.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// More goroutines than CPUs that never wait make this process late; the probe says so, and that it
// is over.
func TestAProbeSeesThatGoroutinesWait(t *testing.T) {
	p := started(t, time.Millisecond)
	stop := make(chan struct{})
	for range 4 * runtime.GOMAXPROCS(0) {
		go func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
	}
	until(t, "pressure", func() bool {
		return p.Pressure() >= 0.5
	})
	close(stop)
	// How late the machine makes an idle process is not this test's matter: a probe that is content
	// with a second is.
	calm := started(t, time.Second)
	until(t, "samples", func() bool { return calm.lag.Load() > 0 })
	if pressure := calm.Pressure(); pressure != 0 {
		t.Errorf("pressure %v", pressure)
	}
}

// Requests that wait their turn for long are lag too, while no goroutine is late.
func TestAProbeCountsWhatRequestsWaited(t *testing.T) {
	p := started(t, 2*time.Minute) // no machine is late by that
	until(t, "pressure", func() bool {
		p.Waited(2 * time.Hour)
		p.Waited(0)
		return p.Pressure() >= 0.5
	})
	until(t, "its end", func() bool {
		p.Waited(0)
		return p.Pressure() == 0
	})
}

func TestAProbeThatIsOffAdmitsAll(t *testing.T) {
	p := started(t, 0)
	until(t, "samples that are late", func() bool {
		p.Waited(time.Hour)
		return p.lag.Load() > 0 && p.Late()
	})
	if pressure := p.Pressure(); pressure != 0 {
		t.Errorf("pressure %v", pressure)
	}
}

func TestTheLagIsAMetric(t *testing.T) {
	reg := prometheus.NewRegistry()
	p := NewProbe(time.Second, reg)
	p.lag.Store(int64(1500 * time.Millisecond))
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP pushmesh_router_lag_seconds Scheduling delay of this process: a quarter of the recent samples ran at most this late.
# TYPE pushmesh_router_lag_seconds gauge
pushmesh_router_lag_seconds 1.5
`)); err != nil {
		t.Error(err)
	}
}
