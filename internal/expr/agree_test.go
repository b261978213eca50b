package expr

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// grammar draws expressions of a type, of what compile knows and a little more.
type grammar struct{ t *rapid.T }

func (g grammar) pick(of ...string) string { return rapid.SampledFrom(of).Draw(g.t, "pick") }

func (g grammar) key() string { return g.pick("a", "b", "absent") }

func (g grammar) number(depth int) string {
	if depth == 0 {
		return g.pick("1.5", "0.0", "-2.0", "1e308", "age", "features."+g.key(), "profile."+g.key(), `features["a"]`)
	}
	switch rapid.IntRange(0, 6).Draw(g.t, "number") {
	case 0:
		return "double(" + g.int(depth-1) + ")"
	case 1:
		return "(-" + g.number(depth-1) + ")"
	case 2:
		return "(" + g.bool(depth-1) + " ? " + g.number(depth-1) + " : " + g.number(depth-1) + ")"
	case 3:
		return "(" + g.json(depth-1) + g.pick(" + ", " - ", " * ", " / ") + g.number(depth-1) + ")"
	case 4:
		return "features[" + g.text(depth-1) + "]"
	}
	return "(" + g.number(depth-1) + g.pick(" + ", " - ", " * ", " / ") + g.number(depth-1) + ")"
}

func (g grammar) int(depth int) string {
	if depth == 0 {
		return g.pick("0", "1", "-3", "9223372036854775807", "(-9223372036854775807 - 1)", "4611686018427387904", "priority", "size(topic)", "size(features)", "size(headers)")
	}
	if rapid.IntRange(0, 3).Draw(g.t, "int") == 0 {
		return "(" + g.bool(depth-1) + " ? " + g.int(depth-1) + " : " + g.int(depth-1) + ")"
	}
	return "(" + g.int(depth-1) + g.pick(" + ", " - ", " * ", " / ", " % ") + g.int(depth-1) + ")"
}

func (g grammar) text(depth int) string {
	if depth == 0 {
		return g.pick(`""`, `"a"`, `"é/x"`, "topic", "id", "from", "headers."+g.key(), `headers["b"]`)
	}
	return "(" + g.bool(depth-1) + " ? " + g.text(depth-1) + " : " + g.text(depth-1) + ")"
}

func (g grammar) json(depth int) string {
	if depth > 0 && rapid.IntRange(0, 3).Draw(g.t, "json") == 0 {
		return "(" + g.bool(depth-1) + " ? " + g.json(0) + " : " + g.pick(g.number(0), g.text(0), g.bool(0), g.json(0)) + ")"
	}
	return "payload" + g.pick("", ".n", ".s", ".t", ".f", ".o", ".o.n", ".o.absent", ".l", ".l[0]", ".l[7]", ".z", ".absent", `["n"]`, ".n.x", ".l.x")
}

func (g grammar) any(depth int) string {
	switch rapid.IntRange(0, 4).Draw(g.t, "any") {
	case 0:
		return g.number(depth)
	case 1:
		return g.int(depth)
	case 2:
		return g.text(depth)
	case 3:
		return g.bool(depth)
	}
	return "null"
}

func (g grammar) bool(depth int) string {
	if depth == 0 {
		return g.pick("true", "false", "has(features."+g.key()+")", "has(headers."+g.key()+")", "has(payload.o.n)", "has(payload.absent)", "has(payload.absent.x)",
			"has(payload.l.x)", `("a" in features)`, `("b" in headers)`)
	}
	d := depth - 1
	compare := g.pick(" < ", " <= ", " > ", " >= ")
	same := g.pick(" == ", " != ")
	switch rapid.IntRange(0, 12).Draw(g.t, "bool") {
	case 0:
		return "!" + g.bool(d)
	case 1:
		return "(" + g.number(d) + compare + g.int(d) + ")"
	case 2:
		return "(" + g.number(d) + compare + g.number(d) + ")"
	case 3:
		return "(" + g.json(d) + compare + g.number(d) + ")"
	case 4:
		return "(" + g.int(d) + compare + g.json(d) + ")"
	case 5:
		return "(" + g.text(d) + compare + g.json(d) + ")"
	case 6:
		return "(" + g.json(d) + same + g.any(d) + ")"
	case 7:
		return "(" + g.any(d) + same + g.json(d) + ")"
	case 8:
		return "(" + g.text(d) + same + g.text(d) + " || " + g.number(d) + same + g.number(d) + ")"
	case 9:
		return g.text(d) + g.pick(".startsWith(", ".endsWith(", ".contains(") + g.json(d) + ")"
	case 10:
		return "(" + g.json(d) + ` in ["x", "", "é"] && ` + g.int(d) + " in [0, 1, 4])"
	case 11:
		return g.text(d) + `.matches("^(a|é)*")`
	}
	return "(" + g.bool(d) + g.pick(" && ", " || ") + g.pick(g.bool(d), g.json(d)) + ")"
}

func drawInput(t *rapid.T) *Input {
	number := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, 1, -1, math.NaN(), math.Inf(1), 1 << 62, 1 << 63}))
	pairs := func() Table[float64] {
		if rapid.Bool().Draw(t, "map") {
			return Table[float64]{Map: map[string]float64{"a": number.Draw(t, "a"), "b": number.Draw(t, "b")}}
		}
		return Table[float64]{Pairs: []Pair[float64]{{"a", number.Draw(t, "a")}}}
	}
	text := rapid.SampledFrom([]string{"", "a", "é", "x/y", strings.Repeat("ab", 50)})
	in := &Input{
		Features: pairs(), Profile: pairs(), Headers: Table[string]{Map: map[string]string{"a": text.Draw(t, "header"), "é": "1"}},
		Priority: rapid.OneOf(rapid.Int64(), rapid.Int64Range(-1, 9)).Draw(t, "priority"), Topic: text.Draw(t, "topic"), ID: text.Draw(t, "id"), From: text.Draw(t, "from"),
		Age: number.Draw(t, "age"),
	}
	in.SetPayload([]byte(rapid.SampledFrom([]string{
		``, `7`, `[1]`, `{}`, `{"n":1,"s":"x","t":true,"f":false,"o":{"n":1.5e3},"l":["é",2],"z":null}`, `{"n":-0.0,"s":"","o":[],"l":[0],"n":9223372036854775808}`,
	}).Draw(t, "payload")))
	return in
}

func TestCompiledAndInterpretedAgree(t *testing.T) {
	compiled := 0
	rapid.Check(t, func(rt *rapid.T) {
		kind := rapid.SampledFrom([]Kind{Filter, Score}).Draw(rt, "kind")
		g := grammar{rt}
		text := g.bool(3)
		if kind == Score {
			text = g.number(3)
		}
		p, err := Compile(text, kind, Limits{Nodes: 100_000, Cost: 1 << 40})
		if err != nil && !strings.Contains(err.Error(), "does not take") && !strings.Contains(err.Error(), "expected type") {
			// a conditional with one side of the payload has the other's type
			rt.Fatalf("%s: %v", text, err)
		}
		if err != nil || !p.Compiled() {
			return
		}
		compiled++
		q := interpreted(t, p)
		for range 3 {
			in := drawInput(rt)
			a, errA := p.Eval(t.Context(), in)
			b, errB := q.Eval(t.Context(), in)
			a.Cost, b.Cost = 0, 0
			if errA != nil || errB != nil || a != b {
				rt.Fatalf("%s over %s: compiled %s %v, interpreted %s %v", text, describe(in), show(kind, a), errA, show(kind, b), errB)
			}
		}
	})
	if compiled == 0 {
		t.Fatal("no expression was compiled")
	}
}

func describe(in *Input) string {
	return fmt.Sprintf("features %v profile %v headers %v priority %d topic %.9q id %.9q from %.9q age %v payload %s", in.Features, in.Profile, in.Headers, in.Priority, in.Topic, in.ID, in.From,
		in.Age, in.payload)
}
