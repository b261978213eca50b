// Package expr compiles and evaluates CEL expressions over messages and candidates: filters, which
// are true for what stays, and scores, which are numbers. It is pure, and bounded in every way: an
// expression has limits on its text, its tree and its estimated cost, an evaluation on its cost.
//
// Names that an expression may use:
//
//	features, profile  map(string, double); an entry that is absent is 0, has(features.x) tells
//	headers            map(string, string); an entry that is absent is "", has(headers.x) tells
//	priority           int
//	topic, id, from    string; from is the user who published
//	age                double, seconds
//	now                timestamp
//	payload            the parsed JSON of a message, of which all numbers are double; null where it is not JSON or beyond MaxPayload, MaxValues or MaxDepth
//
// Numbers of different types can be compared, features.x > 1, and otherwise are written as what
// they are: features.x * 2.0. Macros are has, all, exists, exists_one, map and filter, nested twice
// at most. The pattern of matches is a constant, and it looks at texts of up to MaxMatched bytes.
// Time zones by name are not to be had.
//
// Where the data give no value (a member of payload that is absent, or of another type; an int
// divided by 0; a score that is not a number) the result is Undefined: false for a filter and 0 for
// a score. As everywhere in CEL, && and || have a value whenever one side settles it:
// has(payload.x) && payload.x > 3.
//
// What can be compiled to functions over typed values is (compile.go), and runs without allocating;
// the rest is interpreted by cel-go. Both give the same results.
package expr

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"
)

// Kind is what an expression is for.
type Kind uint8

// Kinds. A filter is a bool, a score an int or a double; either may be dyn (of payload), and is
// Undefined where the value is of another type then.
const (
	Filter Kind = iota
	Score
)

// Bounds that no Limits move.
const (
	MaxText        = 4 << 10 // bytes of an expression
	MaxPattern     = 128     // instructions of a compiled regular expression
	MaxPatternText = 256     // bytes of one: what it compiles to can be a thousand times as long
	MaxMatched     = 4 << 10 // bytes of a text that matches looks at
	maxNested      = 2       // comprehensions in each other
	maxDepth       = 48      // of the tree
)

// Limits of an expression; 0 is the default.
type Limits struct {
	// Nodes of the tree, macros expanded: 1,000.
	Nodes int
	// Cost is the most that an evaluation may take, and that it may be estimated to: 20,000.
	// Roughly, a unit is one step, or ten bytes of a text.
	Cost uint64
}

func (l Limits) filled() Limits {
	if l.Nodes == 0 {
		l.Nodes = 1000
	}
	if l.Cost == 0 {
		l.Cost = 20_000
	}
	return l
}

// Errors of Eval. Neither is about the data of one message: an expression that meets the first will
// meet it again.
var (
	ErrCost        = errors.New("the evaluation exceeds its cost limit")
	ErrInterrupted = errors.New("the evaluation was interrupted")
)

// Result of an evaluation.
type Result struct {
	Bool   bool
	Number float64 // never NaN
	Cost   uint64
	// Undefined: the data gave no value, and Bool and Number are false and 0.
	Undefined bool
}

// Program is a compiled expression. It is immutable: any number of goroutines may evaluate it, each
// with an Input of its own.
type Program struct {
	text     string
	kind     Kind
	limits   Limits
	estimate uint64
	loops    bool
	profile  bool
	idents   []string    // sorted, each once
	program  cel.Program // nil where compiled is set
	compiled func(*Input) (float64, bool)
	base     uint64 // cost of compiled but for its texts
}

// OfProfile reports whether the expression names profile, so that its value may depend on it.
func (p *Program) OfProfile() bool { return p.profile }

// EstimatedCost is the most that an evaluation costs with maps, lists and texts of usual sizes.
func (p *Program) EstimatedCost() uint64 { return p.estimate }

// Measured by BenchmarkUnit on a core of an AMD EPYC of 2022 at 2.6 GHz: what a unit of cost takes,
// and what an evaluation takes besides.
const (
	compiledUnit    = 8 * time.Nanosecond
	interpretedUnit = 120 * time.Nanosecond
	interpretedCall = 300 * time.Nanosecond
)

// EstimatedTime is what EstimatedCost takes, without the parsing of a payload (2 to 4 ns a byte).
func (p *Program) EstimatedTime() time.Duration { return p.Time(p.estimate) }

// Time is about what an evaluation of a cost takes.
func (p *Program) Time(cost uint64) time.Duration {
	if p.compiled != nil {
		return time.Duration(cost) * compiledUnit
	}
	return interpretedCall + time.Duration(cost)*interpretedUnit
}

// Uses reports whether a name of an Input is in the expression, if only as the variable of a macro.
func (p *Program) Uses(name string) bool { return slices.Contains(p.idents, name) }

// Compiled reports whether the program runs without the interpreter, and so without allocating.
func (p *Program) Compiled() bool { return p.compiled != nil }

// Eval evaluates p. ctx is looked at by comprehensions alone: nothing else takes long. The error is
// ErrCost or ErrInterrupted.
func (p *Program) Eval(ctx context.Context, in *Input) (Result, error) {
	in.begin(p.limits.Cost)
	if p.compiled == nil {
		return p.interpret(ctx, in)
	}
	number, truth := p.compiled(in)
	r := Result{Cost: p.base + in.cost}
	if r.Cost > p.limits.Cost {
		return r, ErrCost
	}
	return r.with(number, truth, !in.bad), nil
}

func (r Result) with(number float64, truth, defined bool) Result {
	if !defined || math.IsNaN(number) {
		r.Undefined = true
		return r
	}
	r.Number, r.Bool = number, truth
	return r
}

func (p *Program) interpret(ctx context.Context, in *Input) (Result, error) {
	value, details, err := p.run(ctx, in)
	var r Result
	if cost := details.ActualCost(); cost != nil {
		r.Cost = *cost
	}
	r.Cost += in.cost
	var stopped interpreter.EvalCancelledError
	switch {
	case errors.As(err, &stopped) && stopped.Cause == interpreter.CostLimitExceeded, r.Cost > p.limits.Cost:
		return r, ErrCost
	case errors.As(err, &stopped), errors.Is(err, interpreter.InterruptError{}):
		return r, ErrInterrupted
	case err != nil:
		r.Undefined = true
		return r, nil
	}
	switch v := value.(type) {
	case types.Bool:
		return r.with(0, bool(v), p.kind == Filter), nil
	case types.Int:
		return r.with(float64(v), false, p.kind == Score), nil
	case types.Double:
		return r.with(float64(v), false, p.kind == Score), nil
	}
	r.Undefined = true
	return r, nil
}
