package score

import (
	"context"
	"math"

	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// program is an expression and the steps that it takes.
type program struct {
	*expr.Program
	steps int
}

func compileProgram(what, text string, kind expr.Kind, parts Parts) (program, error) {
	compile := func(text string, kind expr.Kind) (*expr.Program, error) {
		return expr.Compile(text, kind, expr.Limits{})
	}
	if parts.Expressions != nil {
		compile = parts.Expressions.Compile
	}
	p, err := compile(text, kind)
	if err != nil {
		return program{}, invalid("%s: %v", what, err)
	}
	return program{p, steps(p.EstimatedTime())}, nil
}

// eval evaluates over one candidate. Nothing interrupts it: what it may cost is bounded.
func (p *program) eval(what string, candidate int, in *expr.Input) (expr.Result, error) {
	r, err := p.Eval(context.Background(), in)
	if err != nil {
		return r, invalid("candidate %d: %s: %v", candidate, what, err)
	}
	return r, nil
}

// filter says which candidates stay.
type filter struct{ program }

func compileFilter(text string, parts Parts) (*filter, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	p, err := compileProgram("filter", text, expr.Filter, parts)
	if err != nil {
		return nil, err
	}
	return &filter{p}, nil
}

func (f *filter) passes(candidate int, in *expr.Input) (bool, error) {
	r, err := f.eval("filter", candidate, in)
	return r.Bool, err
}

// expression is ExpressionScorer. Where the data give no value, the score is 0.
type expression struct{ program }

func compileExpression(s *pushmeshv1.ExpressionScorer, parts Parts) (*expression, error) {
	p, err := compileProgram("expression", s.GetExpression(), expr.Score, parts)
	return &expression{p}, err
}

func (e *expression) cost() (once, each int) {
	if e.OfProfile() {
		return 0, e.steps
	}
	return e.steps, 0
}

// explainCost is none: an expression's value has no parts.
func (e *expression) explainCost() int { return 0 }

func (e *expression) begin(j *Job) (scorer, error) { return &evaluation{expression: e, job: j}, nil }

// evaluation is an expression at work on a job.
type evaluation struct {
	*expression
	job    *Job
	places []uint32
	shared [chunk]float64 // where the profile does not matter
}

func (e *evaluation) block(places []uint32) error {
	e.places = places
	if e.OfProfile() {
		return nil
	}
	return e.evaluate(nil, nil, e.shared[:len(places)])
}

func (e *evaluation) score(profile int, wanted []bool, out []float64) error {
	if !e.OfProfile() {
		copy(out, e.shared[:])
		return nil
	}
	return e.evaluate(e.job.one[profile].Features, wanted, out)
}

// evaluate the block's candidates; wanted nil: all.
func (e *evaluation) evaluate(profile map[string]float64, wanted []bool, out []float64) error {
	for i, place := range e.places {
		if wanted != nil && !wanted[i] {
			continue
		}
		in := &e.job.block.inputs[i]
		in.Profile.Map = profile
		r, err := e.eval("expression", int(place), in)
		if err != nil && !e.job.lenient {
			return err
		}
		if out[i] = r.Number; err != nil {
			out[i] = math.NaN()
		}
	}
	return nil
}

func (e *evaluation) explain(int, int) []*Contribution { return nil }
