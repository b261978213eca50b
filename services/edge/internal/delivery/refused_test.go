package delivery

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/pushmesh/pushmesh/internal/decisions"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/refusals"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/report"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
)

// lines hands on each line of a log.
type lines struct {
	mu   sync.Mutex
	each chan string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.each <- string(b)
	return len(b), nil
}

// What is refused to clients for who they are is logged with the rule: a token that is bad, and a
// filter that no grant contains.
func TestRefusalsAreLoggedWithTheirRule(t *testing.T) {
	w, d := guarded(t, principals.Config{})
	out := &lines{each: make(chan string, 16)}
	log := refusals.New(decisions.New("pushmesh_edge_decisions_suppressed_total", 1, slog.New(slog.NewTextHandler(out, nil)), nil))
	if err := log.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := log.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	w.h.rooms.report = report.New(w.h.port(), nil, log.Sampler())
	d.knows("ann", "ann", "subscribe:room/#")
	c := w.hello(&wirev1.Hello{Token: "ann", ClientId: "phone"})
	c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "secret/1"})
	if got := <-out.each; !strings.Contains(got, "who=ann ") || !strings.Contains(got, "what=request outcome=FORBIDDEN rule=default-deny") {
		t.Errorf("the log says %s", got)
	}
	w.hello(&wirev1.Hello{Token: "bad"})
	if got := <-out.each; !strings.Contains(got, "what=connection outcome=UNAUTHENTICATED") {
		t.Errorf("the log says %s", got)
	}
}
