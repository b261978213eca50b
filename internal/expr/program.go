package expr

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// Compile checks an expression and makes a program of it. Its error is one line that says where
// what is wrong; trying again can't help. It takes milliseconds for long texts.
func Compile(text string, kind Kind, limits Limits) (*Program, error) {
	p, checked, err := check(text, kind, limits.filled())
	if err != nil {
		return nil, err
	}
	rep := checked.NativeRep()
	if p.compiled, p.base = compile(rep, kind); p.compiled != nil {
		p.estimate = max(p.base, p.estimate)
		return p, nil
	}
	if p.program, err = plan(checked, p.limits, p.loops); err != nil {
		return nil, fmt.Errorf("not a valid expression: %w", oneLine(err))
	}
	return p, nil
}

// check does what both ways of running have in common.
func check(text string, kind Kind, limits Limits) (*Program, *cel.Ast, error) {
	if text == "" {
		return nil, nil, errors.New("the expression is empty")
	}
	if len(text) > MaxText {
		return nil, nil, fmt.Errorf("the expression has %d bytes, at most %d", len(text), MaxText)
	}
	env, err := environment(limits.Nodes)
	if err != nil {
		return nil, nil, err
	}
	checked, issues := env.Compile(text)
	if all := issues.Errors(); len(all) > 0 {
		return nil, nil, explain(all[0])
	}
	if err := checkType(checked.OutputType(), kind); err != nil {
		return nil, nil, err
	}
	rep := checked.NativeRep()
	nodes, loops, profile, err := walk(rep)
	if err != nil {
		return nil, nil, err
	}
	if nodes > limits.Nodes {
		return nil, nil, fmt.Errorf("the expression has %d parts, at most %d", nodes, limits.Nodes)
	}
	estimate, err := env.EstimateCost(checked, sizes{})
	if err != nil {
		return nil, nil, fmt.Errorf("the expression's cost can't be estimated: %w", oneLine(err))
	}
	if estimate.Max > limits.Cost {
		return nil, nil, fmt.Errorf("the expression may cost %d, at most %d", estimate.Max, limits.Cost)
	}
	return &Program{text: text, kind: kind, limits: limits, estimate: estimate.Max, loops: loops, profile: profile, idents: identsOf(rep)}, checked, nil
}

func checkType(t *cel.Type, kind Kind) error {
	switch t.Kind() {
	case types.DynKind:
		return nil
	case types.BoolKind:
		if kind == Filter {
			return nil
		}
	case types.IntKind, types.DoubleKind:
		if kind == Score {
			return nil
		}
	}
	if kind == Filter {
		return fmt.Errorf("a filter must be a bool, this expression is %s", t)
	}
	return fmt.Errorf("a score must be an int or a double, this expression is %s", t)
}

// walk counts the nodes of a checked tree, finds loops and the name profile, and refuses what only
// a whole look can: patterns that are computed or large, and whole maps compared, of which it would
// depend on the map's side whether they are the same.
func walk(tree *ast.AST) (nodes int, loops, profile bool, err error) {
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		nodes++
		switch e.Kind() {
		case ast.ComprehensionKind:
			loops = true
		case ast.IdentKind:
			profile = profile || e.AsIdent() == "profile"
		case ast.CallKind:
			if err == nil {
				err = checkCall(tree, e)
			}
		}
	}))
	return nodes, loops, profile, err
}

// identsOf are the names in a tree.
func identsOf(tree *ast.AST) []string {
	var all []string
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.IdentKind {
			all = append(all, e.AsIdent())
		}
	}))
	slices.Sort(all)
	return slices.Compact(all)
}

func checkCall(tree *ast.AST, e ast.Expr) error {
	call := e.AsCall()
	switch call.FunctionName() {
	case overloads.Matches:
		args := arguments(call)
		if len(args) != 2 {
			return nil
		}
		pattern, ok := constant(args[1]).(types.String)
		if !ok {
			return at(tree, args[1], "the pattern of matches must be a constant")
		}
		if len(pattern) > MaxPatternText {
			return at(tree, args[1], fmt.Sprintf("the pattern has %d bytes, at most %d", len(pattern), MaxPatternText))
		}
		size, err := types.RegexProgramSize(string(pattern))
		if err != nil {
			return at(tree, args[1], oneLine(err).Error())
		}
		if size > MaxPattern {
			return at(tree, args[1], fmt.Sprintf("the pattern has %d instructions, at most %d", size, MaxPattern))
		}
	case operators.Equals, operators.NotEquals:
		for _, a := range call.Args() {
			if tree.GetType(a.ID()).Kind() == types.MapKind {
				return at(tree, e, "whole maps can't be compared")
			}
		}
	}
	return nil
}

// arguments of a call, its target first.
func arguments(call ast.CallExpr) []ast.Expr {
	if call.IsMemberFunction() {
		return append([]ast.Expr{call.Target()}, call.Args()...)
	}
	return call.Args()
}

// constant is the value of a literal, nil for anything else.
func constant(e ast.Expr) ref.Val {
	if e.Kind() != ast.LiteralKind {
		return nil
	}
	return e.AsLiteral()
}

func plan(checked *cel.Ast, limits Limits, loops bool) (cel.Program, error) {
	env, err := environment(limits.Nodes)
	if err != nil {
		return nil, err
	}
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize), cel.CostLimit(limits.Cost), cel.CostTracking(traversed{}), cel.OptimizeRegex(patterns()...)}
	if loops {
		options = append(options, cel.InterruptCheckFrequency(64))
	}
	return env.Program(checked, options...)
}

func (p *Program) run(ctx context.Context, in *Input) (ref.Val, *cel.EvalDetails, error) {
	if p.loops && ctx.Done() != nil {
		return p.program.ContextEval(ctx, &in.names)
	}
	return p.program.Eval(&in.names)
}
