package expr

import (
	"regexp"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// environments by their bound on nodes: making one takes a millisecond.
var environments sync.Map // of int to *cel.Env

func environment(nodes int) (*cel.Env, error) {
	if e, ok := environments.Load(nodes); ok {
		return e.(*cel.Env), nil
	}
	made, err := cel.NewCustomEnv(
		cel.StdLib(cel.StdLibSubset(env.NewLibrarySubset().AddExcludedFunctions(zoned()...))),
		cel.ParserExpressionSizeLimit(MaxText),
		cel.ParserRecursionLimit(maxDepth),
		cel.ParserErrorRecoveryLimit(1),
		cel.ExpressionNestingDepthLimit(maxDepth),
		cel.ExpressionNodeLimit(nodes),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.ASTValidators(cel.ValidateComprehensionNestingLimit(maxNested), cel.ValidateTimestampLiterals(), cel.ValidateDurationLiterals()),
		cel.Variable("features", cel.MapType(cel.StringType, cel.DoubleType)),
		cel.Variable("profile", cel.MapType(cel.StringType, cel.DoubleType)),
		cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("priority", cel.IntType),
		cel.Variable("topic", cel.StringType),
		cel.Variable("id", cel.StringType),
		cel.Variable("from", cel.StringType),
		cel.Variable("age", cel.DoubleType),
		cel.Variable("now", cel.TimestampType),
		cel.Variable("payload", cel.DynType),
	)
	if err != nil {
		return nil, err
	}
	e, _ := environments.LoadOrStore(nodes, made)
	return e.(*cel.Env), nil
}

// zoned are the functions with time zones by name, which would be read from disk in every
// evaluation.
func zoned() []*env.Function {
	var all []*env.Function
	for name, overload := range map[string]string{
		overloads.TimeGetFullYear:     overloads.TimestampToYearWithTz,
		overloads.TimeGetMonth:        overloads.TimestampToMonthWithTz,
		overloads.TimeGetDayOfYear:    overloads.TimestampToDayOfYearWithTz,
		overloads.TimeGetDayOfMonth:   overloads.TimestampToDayOfMonthZeroBasedWithTz,
		overloads.TimeGetDate:         overloads.TimestampToDayOfMonthOneBasedWithTz,
		overloads.TimeGetDayOfWeek:    overloads.TimestampToDayOfWeekWithTz,
		overloads.TimeGetHours:        overloads.TimestampToHoursWithTz,
		overloads.TimeGetMinutes:      overloads.TimestampToMinutesWithTz,
		overloads.TimeGetSeconds:      overloads.TimestampToSecondsWithTz,
		overloads.TimeGetMilliseconds: overloads.TimestampToMillisecondsWithTz,
	} {
		all = append(all, env.NewFunction(name, env.NewMemberOverload(overload, nil, nil, nil)))
	}
	return all
}

// patterns has constant regular expressions compiled once, and bounds what they look at: the cost
// of a call is charged only after it.
func patterns() []*interpreter.RegexOptimization {
	var all []*interpreter.RegexOptimization
	for _, overload := range []string{overloads.Matches, overloads.MatchesString} {
		all = append(all, &interpreter.RegexOptimization{Function: overloads.Matches, OverloadID: overload, RegexIndex: 1, Factory: boundedPattern})
	}
	return all
}

func boundedPattern(call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableCall, error) {
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(values ...ref.Val) ref.Val {
		text, ok := values[0].(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(values[0])
		}
		if len(text) > MaxMatched {
			return types.NewErr("matches is called on a text of %d bytes, at most %d are allowed", len(text), MaxMatched)
		}
		return types.Bool(compiled.MatchString(string(text)))
	}), nil
}

// sizes are what maps, lists and texts usually have at most, for the estimate; what they really
// have counts when it is evaluated.
type sizes struct{}

func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

func (sizes) EstimateSize(node cost.AstNode) *cost.SizeEstimate {
	path := node.Path()
	if len(path) == 0 {
		return nil
	}
	switch node.Type().Kind() {
	case types.StringKind:
		return &cost.SizeEstimate{Max: 256}
	case types.MapKind:
		elem, key := cost.SizeEstimate{Max: 256}, cost.SizeEstimate{Max: 64}
		return &cost.SizeEstimate{Max: 32, Key: &key, Elem: &elem}
	case types.DynKind:
		return &cost.SizeEstimate{Max: 32}
	}
	return nil
}
