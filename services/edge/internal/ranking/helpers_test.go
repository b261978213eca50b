package ranking

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/computeclient"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// startAlone a ranker that the test stops itself.
func startAlone(t testing.TB, c Compute, l *loops) (*Ranker, *loops) {
	t.Helper()
	r := New(Config{Post: l.post, Compute: c, Workers: 1, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	if err := r.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	return r, l
}

// clientOfNobody has no nodes.
func clientOfNobody(t testing.TB) *computeclient.Client {
	t.Helper()
	c := computeclient.New(computeclient.Config{})
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// failures that were counted.
func failures(r *Ranker) string {
	var out []string
	for n := range int32(len(wirev1.Code_name)) {
		name := code.Name(wirev1.Code(n))
		if v := testutil.ToFloat64(r.stats.fails.WithLabelValues(name)); v > 0 {
			out = append(out, fmt.Sprint(name, " ", v))
		}
	}
	return strings.Join(out, ", ")
}
