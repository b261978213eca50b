package expr

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// code is a compiled part of an expression: a function by its type. A function that has no value
// sets Input.bad and returns anything; nothing has an effect besides, so what uses it may go on.
type code struct {
	number func(*Input) float64
	int    func(*Input) int64
	bool   func(*Input) bool
	text   func(*Input) string
	json   func(*Input) value

	fixed bool    // number is always value
	value float64 // where fixed
	null  bool    // the literal null, without a function
}

// compiler compiles a checked tree, or finds a part that it doesn't know.
type compiler struct {
	tree  *ast.AST
	parts uint64
}

// compile gives a program as one function and its cost without that of texts; nil where cel-go has
// to interpret it.
func compile(tree *ast.AST, kind Kind) (func(*Input) (float64, bool), uint64) {
	c := &compiler{tree: tree}
	whole, ok := c.expr(tree.Expr())
	if !ok {
		return nil, 0
	}
	if kind == Filter {
		if truth, ok := whole.asBool(); ok {
			return func(in *Input) (float64, bool) { return 0, truth(in) }, c.parts
		}
		return nil, 0
	}
	if number, ok := whole.asNumber(); ok {
		return func(in *Input) (float64, bool) { return number(in), false }, c.parts
	}
	return nil, 0
}

func (c *compiler) expr(e ast.Expr) (code, bool) {
	c.parts++
	switch e.Kind() {
	case ast.LiteralKind:
		return literal(e)
	case ast.IdentKind:
		return variable(e.AsIdent())
	case ast.SelectKind:
		s := e.AsSelect()
		return c.entry(s.Operand(), textOf(s.FieldName()), s.IsTestOnly())
	case ast.CallKind:
		return c.call(e.AsCall())
	}
	return code{}, false
}

func literal(e ast.Expr) (code, bool) {
	switch v := e.AsLiteral().(type) {
	case types.Double:
		return numberOf(float64(v)), true
	case types.Int:
		n := int64(v)
		return code{int: func(*Input) int64 { return n }}, true
	case types.Bool:
		b := bool(v)
		return code{bool: func(*Input) bool { return b }}, true
	case types.String:
		return textOf(string(v)), true
	case types.Null:
		return code{null: true}, true
	}
	return code{}, false
}

func numberOf(v float64) code {
	return code{number: func(*Input) float64 { return v }, fixed: true, value: v}
}

func textOf(s string) code { return code{text: func(*Input) string { return s }} }

func variable(name string) (code, bool) {
	switch name {
	case "age":
		return code{number: func(in *Input) float64 { return in.Age }}, true
	case "priority":
		return code{int: func(in *Input) int64 { return in.Priority }}, true
	case "topic":
		return code{text: func(in *Input) string { return in.Topic }}, true
	case "id":
		return code{text: func(in *Input) string { return in.ID }}, true
	case "from":
		return code{text: func(in *Input) string { return in.From }}, true
	case "payload":
		return code{json: (*Input).root}, true
	}
	return code{}, false
}

// table says which of an Input's maps e names.
func table(e ast.Expr) (numbers func(*Input) *Table[float64], texts func(*Input) *Table[string]) {
	if e.Kind() != ast.IdentKind {
		return nil, nil
	}
	switch e.AsIdent() {
	case "features":
		return func(in *Input) *Table[float64] { return &in.Features }, nil
	case "profile":
		return func(in *Input) *Table[float64] { return &in.Profile }, nil
	case "headers":
		return nil, func(in *Input) *Table[string] { return &in.Headers }
	}
	return nil, nil
}

func (c *compiler) call(call ast.CallExpr) (code, bool) {
	name, args := call.FunctionName(), arguments(call)
	switch name {
	case operators.Index:
		key, ok := c.expr(args[1])
		if !ok {
			return code{}, false
		}
		return c.entry(args[0], key, false)
	case operators.In:
		return c.in(args[0], args[1])
	case "size":
		return c.size(args[0])
	case "matches":
		return c.matches(args)
	}
	parts := make([]code, len(args))
	for i, a := range args {
		var ok bool
		if parts[i], ok = c.expr(a); !ok {
			return code{}, false
		}
	}
	switch len(parts) {
	case 1:
		return unary(name, parts[0])
	case 2:
		return binary(name, parts[0], parts[1])
	case 3:
		if name == operators.Conditional {
			return conditional(parts[0], parts[1], parts[2])
		}
	}
	return code{}, false
}

func unary(name string, a code) (code, bool) {
	switch name {
	case operators.LogicalNot:
		if b, ok := a.asBool(); ok {
			return code{bool: func(in *Input) bool { return !b(in) }}, true
		}
	case operators.Negate:
		return negate(a)
	case "double":
		if f, i := a.number, a.int; f != nil {
			return a, true
		} else if i != nil {
			return code{number: func(in *Input) float64 { return float64(i(in)) }}, true
		}
	}
	return code{}, false
}

func binary(name string, a, b code) (code, bool) {
	switch name {
	case operators.LogicalAnd, operators.LogicalOr:
		x, okX := a.asBool()
		y, okY := b.asBool()
		if !okX || !okY {
			return code{}, false
		}
		return code{bool: shortCircuit(x, y, name == operators.LogicalOr)}, true
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo:
		return arithmetic(name, a, b)
	case operators.Equals:
		return equal(a, b)
	case operators.NotEquals:
		same, ok := equal(a, b)
		if !ok {
			return code{}, false
		}
		return code{bool: func(in *Input) bool { return !same.bool(in) }}, true
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return order(name, a, b)
	case "startsWith", "endsWith", "contains":
		return search(name, a, b)
	}
	return code{}, false
}

// shortCircuit is x || y where by is true and x && y where it is false. One side that equals by is
// enough, whatever the other is.
func shortCircuit(x, y func(*Input) bool, by bool) func(*Input) bool {
	return func(in *Input) bool {
		before := in.bad
		in.bad = false
		if x(in) == by && !in.bad {
			in.bad = before
			return by
		}
		bad := in.bad
		in.bad = false
		if y(in) == by && !in.bad {
			in.bad = before
			return by
		}
		in.bad = in.bad || bad || before
		return !by
	}
}

func conditional(test, yes, no code) (code, bool) {
	b, ok := test.asBool()
	if !ok {
		return code{}, false
	}
	switch {
	case yes.number != nil && no.number != nil:
		return code{number: either(b, yes.number, no.number)}, true
	case yes.int != nil && no.int != nil:
		return code{int: either(b, yes.int, no.int)}, true
	case yes.bool != nil && no.bool != nil:
		return code{bool: either(b, yes.bool, no.bool)}, true
	case yes.text != nil && no.text != nil:
		return code{text: either(b, yes.text, no.text)}, true
	case yes.json != nil || no.json != nil:
		x, okX := yes.asJSON()
		y, okY := no.asJSON()
		return code{json: either(b, x, y)}, okX && okY
	}
	return code{}, false
}

func either[T any](test func(*Input) bool, yes, no func(*Input) T) func(*Input) T {
	return func(in *Input) T {
		if test(in) {
			return yes(in)
		}
		return no(in)
	}
}
