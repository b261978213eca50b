package audit

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// maxDecisions are logged in a second.
const maxDecisions = 100

// Decision is whether a call was let in, and by which rule.
type Decision struct {
	Who, Address, Call, Rule string
	// Refusal is nil for a call that was let in.
	Refusal error
}

// Decisions logs a share of them, by chance, and not more than maxDecisions in a second. nil logs
// none. It is safe for concurrent use.
type Decisions struct {
	share      float64
	log        *slog.Logger
	suppressed prometheus.Counter

	mu    sync.Mutex
	began time.Time // of the second that is counted
	n     int       // of lines in it
}

// NewDecisions logs a share, above 0; of 0 it is nil.
func NewDecisions(share float64, log *slog.Logger, registry prometheus.Registerer) *Decisions {
	d := &Decisions{share: share, log: log, suppressed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "pushmesh_router_decisions_suppressed_total", Help: "Decisions about calls that --audit-decisions would have logged, beyond 100 a second.",
	})}
	if registry != nil {
		registry.MustRegister(d.suppressed)
	}
	if share <= 0 {
		return nil
	}
	return d
}

// Sampled reports whether the next decision is to be logged.
func (d *Decisions) Sampled(now time.Time) bool {
	if d == nil || rand.Float64() >= d.share {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.began) >= time.Second {
		d.began, d.n = now, 0
	}
	if d.n++; d.n > maxDecisions {
		d.suppressed.Inc()
		return false
	}
	return true
}

// Log logs a decision that was sampled, whatever the log's level is.
func (d *Decisions) Log(now time.Time, one *Decision) {
	line := slog.NewRecord(now, slog.LevelInfo, "decision", 0)
	outcome, message := code.Name(wirev1.Code_CODE_OK), ""
	if why := code.From(one.Refusal); why != nil {
		outcome, message = code.Name(why.Code), Cut(why.Message, maxMessage)
	}
	line.AddAttrs(slog.String("who", Cut(one.Who, maxName)), slog.String("address", one.Address), slog.String("call", strings.TrimPrefix(one.Call, api)),
		slog.String("outcome", outcome), slog.String("rule", Cut(one.Rule, maxName)))
	if message != "" {
		line.AddAttrs(slog.String("message", message))
	}
	_ = d.log.Handler().Handle(context.Background(), line)
}

// RuleOf is the id of the rule that a refusal names; "": it names none.
func RuleOf(err error) string {
	why := code.From(err)
	if why == nil {
		return ""
	}
	_, rest, found := strings.Cut(why.Message, "(rule ")
	rule, _, closed := strings.Cut(rest, ")")
	if !found || !closed {
		return ""
	}
	return rule
}
