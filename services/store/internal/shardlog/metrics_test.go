package shardlog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

type nowhere struct{}

func (nowhere) Results([]*meshv1.AppendResult) {}

// depth is what the store says about messages that wait.
func depth(t *testing.T, r *prometheus.Registry) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "pushmesh_store_queue_messages" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("the gauge is missing")
	return 0
}

// well is a database with which nothing is wrong.
type well struct{ backend.Backend }

func (well) Away() error { return nil }

// The gauge follows the queue down as well: an idle store has nothing waiting.
func TestQueueDepthIsWhatWaits(t *testing.T) {
	r := prometheus.NewRegistry()
	l := newLane("0", Config{Backend: well{}, Metrics: NewMetrics(r)}, &pace{})
	l.state, l.away = owning(), nil
	entries := make([]*entry, maxBatch+3)
	for i := range entries {
		entries[i] = entryOf(itemOf(fmt.Sprintf("room/%d", i), 0, 0, ""))
		entries[i].sink = nowhere{}
		l.wanted[entries[i].shard] = true
	}
	l.submit(entries)
	if got := depth(t, r); got != float64(len(entries)) {
		t.Errorf("queued: %v, want %d", got, len(entries))
	}
	if got := len(l.take()); got != maxBatch || depth(t, r) != 3 {
		t.Errorf("%d taken, %v wait; want %d and 3", got, depth(t, r), maxBatch)
	}
	l.take()
	if got := depth(t, r); got != 0 {
		t.Errorf("all taken: %v wait", got)
	}
	l.submit(entries[:2])
	l.now = time.Now
	l.setAway(errors.New("cut"))
	if got := depth(t, r); got != 0 {
		t.Errorf("all refused: %v wait", got)
	}
}
