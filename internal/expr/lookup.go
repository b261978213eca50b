package expr

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
)

// value is one of the payload's.
type value struct {
	kind   nodeKind // nodeText for any text
	at     uint32   // of arrays and objects: the node
	number float64
	text   string
}

func (in *Input) root() value {
	d := in.document()
	if len(d.nodes) == 0 {
		return value{}
	}
	return d.load(0)
}

func (d *document) load(at uint32) value {
	n := &d.nodes[at]
	switch n.kind {
	case nodeNumber:
		return value{kind: nodeNumber, number: d.number(n)}
	case nodeText, nodeEscapedText:
		return value{kind: nodeText, text: d.string(n)}
	}
	return value{kind: n.kind, at: at}
}

// charge counts steps, and reports whether the limit is exceeded: nothing more needs to be looked
// up then.
func (in *Input) charge(steps uint32) bool {
	in.cost += uint64(steps) / 8
	in.bad = in.bad || in.cost > in.limit
	return in.cost > in.limit
}

func (a code) isNumber() bool { return a.number != nil || a.int != nil }

// asNumber takes an int or what is of the payload as a double too.
func (a code) asNumber() (func(*Input) float64, bool) {
	switch {
	case a.number != nil:
		return a.number, true
	case a.int != nil:
		i := a.int
		return func(in *Input) float64 { return float64(i(in)) }, true
	case a.json != nil:
		v := a.json
		return func(in *Input) float64 {
			j := v(in)
			in.bad = in.bad || j.kind != nodeNumber
			return j.number
		}, true
	}
	return nil, false
}

func (a code) asBool() (func(*Input) bool, bool) {
	if v := a.json; v != nil {
		return func(in *Input) bool {
			j := v(in)
			in.bad = in.bad || j.kind != nodeTrue && j.kind != nodeFalse
			return j.kind == nodeTrue
		}, true
	}
	return a.bool, a.bool != nil
}

func (a code) asText() (func(*Input) string, bool) {
	if v := a.json; v != nil {
		return func(in *Input) string {
			j := v(in)
			in.bad = in.bad || j.kind != nodeText
			return j.text
		}, true
	}
	return a.text, a.text != nil
}

// asJSON takes what JSON has too as if it were of the payload; an int it has not.
func (a code) asJSON() (func(*Input) value, bool) {
	switch {
	case a.number != nil:
		return func(in *Input) value { return value{kind: nodeNumber, number: a.number(in)} }, true
	case a.text != nil:
		return func(in *Input) value { return value{kind: nodeText, text: a.text(in)} }, true
	case a.bool != nil:
		return func(in *Input) value {
			if a.bool(in) {
				return value{kind: nodeTrue}
			}
			return value{kind: nodeFalse}
		}, true
	}
	return a.json, a.json != nil
}

// entry is operand.key or operand[key], or has(operand.key).
func (c *compiler) entry(operand ast.Expr, key code, test bool) (code, bool) {
	numbers, texts := table(operand)
	switch {
	case key.text != nil && numbers != nil:
		c.parts++
		return tableEntry(numbers, key.text, test, func(f func(*Input) float64) code { return code{number: f} }), true
	case key.text != nil && texts != nil:
		c.parts++
		return tableEntry(texts, key.text, test, func(f func(*Input) string) code { return code{text: f} }), true
	}
	of, ok := c.expr(operand)
	if !ok || of.json == nil {
		return code{}, false
	}
	switch {
	case key.text != nil && test:
		return code{bool: func(in *Input) bool { return in.hasMember(of.json(in), key.text(in)) }}, true
	case key.text != nil:
		return code{json: func(in *Input) value { return in.member(of.json(in), key.text(in)) }}, true
	case key.int != nil:
		return code{json: func(in *Input) value { return in.element(of.json(in), key.int(in)) }}, true
	}
	return code{}, false
}

func tableEntry[V float64 | string](of func(*Input) *Table[V], key func(*Input) string, test bool, wrap func(func(*Input) V) code) code {
	if test {
		return code{bool: func(in *Input) bool { _, ok := of(in).Get(key(in)); return ok }}
	}
	return wrap(func(in *Input) V { v, _ := of(in).Get(key(in)); return v })
}

func (in *Input) member(of value, name string) value {
	if of.kind == nodeObject && !in.charge(0) {
		at, steps, found := in.json.member(of.at, name)
		in.charge(steps)
		if found {
			return in.json.load(at)
		}
	}
	in.bad = true
	return value{}
}

func (in *Input) hasMember(of value, name string) bool {
	if of.kind == nodeArray { // has() of an array is an error
		in.bad = true
	}
	if of.kind != nodeObject || in.charge(0) {
		return false
	}
	_, steps, found := in.json.member(of.at, name)
	in.charge(steps)
	return found
}

func (in *Input) element(of value, place int64) value {
	if of.kind == nodeArray && !in.charge(0) {
		at, steps, found := in.json.element(of.at, place)
		in.charge(steps)
		if found {
			return in.json.load(at)
		}
	}
	in.bad = true
	return value{}
}

// in is key in map, or value in a list of constants.
func (c *compiler) in(element, container ast.Expr) (code, bool) {
	e, ok := c.expr(element)
	if !ok {
		return code{}, false
	}
	numbers, texts := table(container)
	switch {
	case e.text != nil && numbers != nil:
		return tableEntry(numbers, e.text, true, nil), true
	case e.text != nil && texts != nil:
		return tableEntry(texts, e.text, true, nil), true
	case container.Kind() != ast.ListKind:
		return code{}, false
	}
	list := container.AsList()
	if list.Size() == 0 || len(list.OptionalIndices()) > 0 {
		return code{}, false
	}
	switch constant(list.Elements()[0]).(type) {
	case types.String:
		return c.inTexts(e, list.Elements())
	case types.Int:
		return c.inInts(e, list.Elements())
	}
	return code{}, false
}

func (c *compiler) inTexts(e code, list []ast.Expr) (code, bool) {
	all, ok := constants[types.String](list)
	c.parts += uint64(len(list)) / 8
	switch {
	case ok && e.text != nil:
		return code{bool: func(in *Input) bool { return all[types.String(e.text(in))] }}, true
	case ok && e.json != nil:
		return code{bool: func(in *Input) bool { v := e.json(in); return v.kind == nodeText && all[types.String(v.text)] }}, true
	}
	return code{}, false
}

func (c *compiler) inInts(e code, list []ast.Expr) (code, bool) {
	all, ok := constants[types.Int](list)
	c.parts += uint64(len(list)) / 8
	if !ok || e.int == nil {
		return code{}, false
	}
	return code{bool: func(in *Input) bool { return all[types.Int(e.int(in))] }}, true
}

// constants of one type as a set.
func constants[T comparable](list []ast.Expr) (map[T]bool, bool) {
	all := map[T]bool{}
	for _, e := range list {
		v, ok := any(constant(e)).(T)
		if !ok {
			return nil, false
		}
		all[v] = true
	}
	return all, true
}
