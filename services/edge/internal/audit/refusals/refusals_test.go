package refusals

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/decisions"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// pipe is a log that is read once it is opened.
type pipe struct {
	open chan struct{}
	mu   sync.Mutex
	text strings.Builder
}

func (p *pipe) Write(b []byte) (int, error) {
	<-p.open
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func forbidden(text string) *code.Error { return code.New(wirev1.Code_CODE_FORBIDDEN, text) }

// A flood of refusals, and a log that nobody reads, cost a loop no wait: some are logged in the
// end, the rest is counted.
func TestAFloodOfRefusalsHoldsUpNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, registry := &pipe{open: make(chan struct{})}, prometheus.NewRegistry()
		log := New(decisions.New("pushmesh_edge_decisions_suppressed_total", 1, slog.New(slog.NewTextHandler(out, nil)), registry))
		if err := log.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		why, n, began := forbidden("no filter contains it (rule default-deny)"), 0, time.Now()
		for range 4 { // loops
			s := log.Sampler()
			for i := range 10_000 {
				if s.Wants(why) {
					// a second in all
					s.Put(uint64(i)*100, &Refusal{Who: "ann", Conn: 7, What: "request", Why: why})
					n++
				}
			}
		}
		if n != 40_000 || time.Since(began) != 0 {
			t.Errorf("%d are chosen of all, in %v", n, time.Since(began))
		}
		close(out.open)
		synctest.Wait()
		lines := strings.Count(out.text.String(), "msg=decision who=ann from=\"connection 7\" what=request outcome=FORBIDDEN rule=default-deny")
		counted := testutil.ToFloat64(suppressed(t, registry))
		if lines == 0 || lines > decisions.Most || float64(lines)+counted != 40_000 {
			t.Errorf("%d lines, %v are counted", lines, counted)
		}
		if err := log.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// suppressed is the counter, as the registry has it.
func suppressed(t *testing.T, r *prometheus.Registry) prometheus.Collector {
	t.Helper()
	all, err := r.Gather()
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "x", Help: "x"})
	c.Add(all[0].GetMetric()[0].GetCounter().GetValue())
	return c
}

// What is refused for other reasons, or where nothing is to be logged, is not handed over.
func TestWhatIsHandedOver(t *testing.T) {
	log := New(decisions.New("pushmesh_edge_decisions_suppressed_total", 1, slog.New(slog.DiscardHandler), nil))
	s := log.Sampler()
	for c, want := range map[wirev1.Code]bool{wirev1.Code_CODE_FORBIDDEN: true, wirev1.Code_CODE_UNAUTHENTICATED: true, wirev1.Code_CODE_OVERLOADED: false, wirev1.Code_CODE_BAD_TOPIC: false} {
		if s.Wants(code.New(c, "")) != want {
			t.Errorf("%v: not %v", c, want)
		}
	}
	none := New(decisions.New("pushmesh_edge_decisions_suppressed_total", 0, nil, nil))
	if none.Sampler().Wants(forbidden("")) || none.Start(t.Context()) != nil || none.Stop(t.Context()) != nil {
		t.Error("none are to be logged")
	}
	s.Put(0, &Refusal{Why: forbidden(strings.Repeat("x", 1<<20))})
	if d := <-log.queue; len(d.Refusal.Error()) > 2*maxMessage {
		t.Errorf("%d bytes are copied", len(d.Refusal.Error()))
	}
}
