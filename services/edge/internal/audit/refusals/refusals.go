// Package refusals has a share of what event loops refuse for who somebody is logged: loops hand it
// over, and a goroutine of its own makes lines of it.
package refusals

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/decisions"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// maxMessage is the most bytes of a refusal's text that are copied.
const maxMessage = 1 << 10

// room is for those that wait to be logged.
const room = 2 * decisions.Most

// Log takes refusals from all loops. It is a lifecycle.Part with a goroutine.
type Log struct {
	log   *decisions.Log
	queue chan decisions.Decision
	group *lifecycle.Group
}

// New makes the Log; nil where nothing is to be logged.
func New(log *decisions.Log) *Log {
	if log == nil {
		return nil
	}
	return &Log{log: log, queue: make(chan decisions.Decision, room)}
}

// Start begins to log.
func (l *Log) Start(context.Context) error {
	if l != nil {
		l.group = lifecycle.NewGroup(context.Background())
		l.group.Go("decisions", l.run)
	}
	return nil
}

// Stop ends the goroutine; what waits is not logged.
func (l *Log) Stop(ctx context.Context) error {
	if l == nil || l.group == nil {
		return nil
	}
	return l.group.Stop(ctx)
}

func (l *Log) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-l.queue:
			if now := time.Now(); l.log.Room(now) {
				d.Rule = decisions.RuleOf(d.Refusal)
				l.log.Write(now, &d)
			}
		}
	}
}

// Sampler is a loop's. nil takes nothing.
type Sampler struct {
	log    *Log
	second uint64 // that is counted, Unix time
	n      int    // of refusals in it that were handed over
}

// Sampler makes one for a loop.
func (l *Log) Sampler() *Sampler {
	if l == nil {
		return nil
	}
	return &Sampler{log: l}
}

// Wants reports whether a refusal is to be handed over: by its code, and by chance.
func (s *Sampler) Wants(why *code.Error) bool {
	return s != nil && (why.Code == wirev1.Code_CODE_FORBIDDEN || why.Code == wirev1.Code_CODE_UNAUTHENTICATED) && s.log.log.Chosen()
}

// Refusal is something that was refused. Put copies its texts.
type Refusal struct {
	Who  string
	Conn uint64 // the connection's id
	What string // a constant
	Why  *code.Error
}

// Put hands one over that Wants has chosen, at a time in microseconds. It never blocks: more than a
// second's lines, and what finds no room, are counted. However many are refused, few are made.
func (s *Sampler) Put(at uint64, r *Refusal) {
	if second := at / 1e6; second != s.second {
		s.second, s.n = second, 0
	}
	if s.n++; s.n > decisions.Most {
		s.log.log.Suppress()
		return
	}
	text := strings.Clone(r.Why.Message[:min(len(r.Why.Message), maxMessage)])
	select {
	case s.log.queue <- decisions.Decision{
		Who: strings.Clone(r.Who), From: "connection " + strconv.FormatUint(r.Conn, 10), What: r.What, Refusal: code.New(r.Why.Code, text),
	}:
	default:
		s.log.log.Suppress()
	}
}
