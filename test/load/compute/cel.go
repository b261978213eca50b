package compute

import (
	"context"
	"fmt"
	"math"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// celProgram is an expression as cel-go itself runs it, over plain Go maps.
type celProgram struct {
	program cel.Program
	vars    []map[string]any
}

// celGo compiles with types declared and optimisations on: what a program that used cel-go directly
// would do.
func celGo(text string, all []*pushmeshv1.Candidate, now time.Time) (_ *celProgram, err error) {
	defer try.Catch(&err)
	env := try.Get(cel.NewEnv(
		cel.Variable("features", cel.MapType(cel.StringType, cel.DoubleType)),
		cel.Variable("profile", cel.MapType(cel.StringType, cel.DoubleType)),
		cel.Variable("age", cel.DoubleType),
	))
	checked, issues := env.Compile(text)
	try.Do(issues.Err())
	p := &celProgram{}
	p.program = try.Get(env.Program(checked, cel.EvalOptions(cel.OptOptimize)))
	who := profile(7)
	for _, c := range all {
		p.vars = append(p.vars, map[string]any{"features": c.GetFeatures(), "profile": who, "age": now.Sub(c.GetPublishedAt().AsTime()).Seconds()})
	}
	return p, nil
}

func (p *celProgram) score(i int) (_ float64, err error) {
	defer try.Catch(&err)
	v, _ := try.Get2(p.program.Eval(p.vars[i]))
	d, ok := v.(types.Double)
	if !ok {
		return 0, fmt.Errorf("cel-go gave %v", v)
	}
	return float64(d), nil
}

func (p *celProgram) evaluate() error {
	for i := range p.vars {
		if _, err := p.score(i); err != nil {
			return err
		}
	}
	return nil
}

// sameScores reports whether both ways give the same: otherwise there is nothing to compare.
func sameScores(ctx context.Context, p *expr.Program, ins []expr.Input, c *celProgram) (err error) {
	defer try.Catch(&err)
	for i := range ins {
		r := try.Get(p.Eval(ctx, &ins[i]))
		other := try.Get(c.score(i))
		if math.Abs(other-r.Number) > 1e-12*math.Abs(other) {
			return fmt.Errorf("candidate %d: %v, and with cel-go %v", i, r.Number, other)
		}
	}
	return nil
}
