package filters

import (
	"context"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// inputs are used again: what they hold of a payload's JSON is large.
var inputs = sync.Pool{New: func() any { return new(expr.Input) }}

// Judged reports whether every message was judged by all programs that are in use for its topic.
func (r *Registry) Judged(messages []*exchange.Message) bool {
	for _, m := range messages {
		if s := r.of(m.Topic); s != nil && !m.Verdicts.Load().Covers(s.ids) {
			return false
		}
	}
	return true
}

// Judge has messages judged that are not yet.
func (r *Registry) Judge(messages []*exchange.Message) {
	var in *expr.Input
	for _, m := range messages {
		s := r.of(m.Topic)
		if s == nil || m.Verdicts.Load().Covers(s.ids) {
			continue
		}
		if in == nil {
			in = inputs.Get().(*expr.Input)
		}
		fill(in, m)
		m.Verdicts.Store(r.verdicts(s, in))
	}
	if in != nil {
		clearInput(in)
		inputs.Put(in)
	}
}

func (r *Registry) verdicts(s *set, in *expr.Input) *exchange.Verdicts {
	v := &exchange.Verdicts{Programs: s.ids, Passes: make([]uint64, (len(s.ids)+63)/64)}
	left := overrun * r.cfg.Budget
	var undefined, failed uint64
	for i, p := range s.programs {
		if left <= 0 {
			failed += uint64(len(s.programs) - i)
			break
		}
		result, err := p.Eval(context.Background(), in)
		left -= perProgram + max(p.Time(result.Cost), time.Nanosecond)
		switch {
		case err != nil:
			failed++
		case result.Undefined:
			undefined++
		case result.Bool:
			v.Passes[i/64] |= 1 << (i % 64)
		}
	}
	r.stats.Evaluations.Add(uint64(len(s.programs)))
	r.stats.Undefined.Add(undefined)
	r.stats.Failed.Add(failed)
	return v
}
