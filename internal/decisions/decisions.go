// Package decisions logs a share of what a process decides about who may do what, with the rule.
package decisions

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

// Most decisions are logged in a second.
const Most = 100

// maxText and maxMessage are where texts are cut, in bytes.
const (
	maxText    = 300
	maxMessage = 1 << 10
)

// Decision is whether somebody may do something, and by which rule.
type Decision struct {
	Who, From, What, Rule string
	// Refusal is nil where it is allowed.
	Refusal error
}

// Log logs a share of decisions, by chance, and not more than Most in a second. nil logs none. It
// is safe for concurrent use.
type Log struct {
	share      float64
	log        *slog.Logger
	suppressed prometheus.Counter

	mu    sync.Mutex
	began time.Time // of the second that is counted
	n     int       // of lines in it
}

// New makes a Log of a share, 0 to 1; of 0 it is nil. metric is the name of the counter of those
// that were suppressed.
func New(metric string, share float64, log *slog.Logger, registry prometheus.Registerer) *Log {
	l := &Log{share: share, log: log, suppressed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: metric, Help: "Decisions that --audit-decisions would have logged, beyond 100 a second.",
	})}
	if registry != nil {
		registry.MustRegister(l.suppressed)
	}
	if share <= 0 {
		return nil
	}
	return l
}

// Chosen reports, by chance, whether the next decision is of those that are logged.
func (l *Log) Chosen() bool { return l != nil && rand.Float64() < l.share }

// Suppress counts one that was chosen, and for which there was no room.
func (l *Log) Suppress() { l.suppressed.Inc() }

// Room reports whether one more that was chosen may be logged now, and counts it.
func (l *Log) Room(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.began) >= time.Second {
		l.began, l.n = now, 0
	}
	if l.n++; l.n > Most {
		l.Suppress()
		return false
	}
	return true
}

// Write logs a decision, whatever the log's level is.
func (l *Log) Write(now time.Time, d *Decision) {
	line := slog.NewRecord(now, slog.LevelInfo, "decision", 0)
	outcome, message := code.Name(wirev1.Code_CODE_OK), ""
	if why := code.From(d.Refusal); why != nil {
		outcome, message = code.Name(why.Code), cut(why.Message, maxMessage)
	}
	line.AddAttrs(slog.String("who", cut(d.Who, maxText)), slog.String("from", cut(d.From, maxText)), slog.String("what", cut(d.What, maxText)),
		slog.String("outcome", outcome), slog.String("rule", cut(d.Rule, maxText)))
	if message != "" {
		line.AddAttrs(slog.String("message", message))
	}
	_ = l.log.Handler().Handle(context.Background(), line) // as slog itself does
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// RuleOf is the id of the rule that a refusal names; "": it names none. What was asked for may
// stand in the refusal before the rule, and look like one.
func RuleOf(err error) string {
	why := code.From(err)
	if why == nil {
		return ""
	}
	at, end := strings.LastIndex(why.Message, "(rule "), strings.LastIndexByte(why.Message, ')')
	if at < 0 || end < at {
		return ""
	}
	return why.Message[at+len("(rule ") : end]
}
