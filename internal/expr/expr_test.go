package expr

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func sample() *Input {
	in := &Input{
		Features: Table[float64]{Map: map[string]float64{"quality": 0.5, "fresh": 2}},
		Profile:  Table[float64]{Pairs: []Pair[float64]{{"fresh", 3}, {"sport", 0.25}}},
		Headers:  Table[string]{Map: map[string]string{"lang": "en"}},
		Priority: 4, Topic: "chat/room/7", ID: "m1", From: "ada", Age: 7200, Now: time.Unix(1_800_000_000, 0).UTC(),
	}
	in.SetPayload([]byte(`{"price": 12, "half": 0.5, "kind": "book", "ok": true, "none": null, "tags": ["a", "b"], "deep": {"er": {"n": 3}}, "qu\u006fted": "a\"b\u00e9"}`))
	return in
}

// interpreted is p without its compiled function.
func interpreted(t testing.TB, p *Program) *Program {
	t.Helper()
	q, checked, err := check(p.text, p.kind, p.limits)
	if err != nil {
		t.Fatal(err)
	}
	if q.program, err = plan(checked, q.limits, q.loops); err != nil {
		t.Fatal(err)
	}
	return q
}

const undefined = "undefined"

func show(kind Kind, r Result) string {
	switch {
	case r.Undefined:
		return undefined
	case kind == Filter:
		return fmt.Sprint(r.Bool)
	}
	return fmt.Sprint(r.Number)
}

var stories = []struct {
	text, want string
	kind       Kind
	compiled   bool
}{
	{`features.quality * 2.0 + features.fresh * profile.fresh - age / 3600.0 + (headers.lang == "en" ? 0.5 : 0.0)`, "5.5", Score, true},
	{`features.absent`, "0", Score, true},
	{`features.absent > 1`, "false", Filter, true},
	{`features.absent < 1`, "true", Filter, true},
	{`has(features.absent)`, "false", Filter, true},
	{`has(features.quality) && "sport" in profile && !("nope" in headers)`, "true", Filter, true},
	{`headers.absent == ""`, "true", Filter, true},
	{`headers["lang"] + "!" == "en!"`, "true", Filter, false},
	{`features[topic]`, "0", Score, true},
	{`priority`, "4", Score, true},
	{`priority % 3 + 1`, "2", Score, true},
	{`priority / (priority - 4)`, undefined, Score, true},
	{`9223372036854775807 + priority`, undefined, Score, true},
	{`0.0 / 0.0`, undefined, Score, true},
	{`payload.price > 10`, "true", Filter, true},
	{`payload.price > 10.5 && payload.price == 12`, "true", Filter, true},
	{`payload.price * 2.0`, "24", Score, true},
	{`payload.price`, "12", Score, true},
	{`payload.ok`, "true", Filter, true},
	{`payload.kind`, undefined, Filter, true},
	{`payload.kind`, undefined, Score, true},
	{`payload.absent > 1`, undefined, Filter, true},
	{`!(payload.absent > 1)`, undefined, Filter, true},
	{`payload.absent > 1 || priority == 4`, "true", Filter, true},
	{`priority != 4 && payload.absent > 1`, "false", Filter, true},
	{`payload.absent > 1 && priority != 4`, "false", Filter, true},
	{`has(payload.absent) ? payload.absent : 0.0`, "0", Score, true},
	{`has(payload.absent) && payload.absent > 3`, "false", Filter, true},
	{`has(payload.deep.er) && payload.deep.er.n == 3`, "true", Filter, true},
	{`has(payload.absent.er)`, undefined, Filter, true},
	{`payload.none == null && payload.price != null`, "true", Filter, true},
	{`payload.kind in ["book", "film"]`, "true", Filter, true},
	{`priority in [1, 4] && topic in ["x", "chat/room/7"]`, "true", Filter, true},
	{`payload.tags[1] == "b"`, "true", Filter, true},
	{`payload.tags[2] == "b"`, undefined, Filter, true},
	{`payload.quoted == "a\"bé"`, "true", Filter, true},
	{`payload.tags.exists(t, t == "b")`, "true", Filter, false},
	{`payload.tags.all(t, payload.tags.exists(u, u == t))`, "true", Filter, false},
	{`size(payload.tags) == 2 && size(features) == 2 && size("é") == 1`, "true", Filter, false},
	{`features.exists(k, features[k] == 2.0)`, "true", Filter, false},
	{`features.map(k, features[k])[0]`, "2", Score, false},
	{`topic.startsWith("chat/") && topic.endsWith("7") && topic.contains("room")`, "true", Filter, true},
	{`topic.matches("^chat/[a-z]+/[0-9]+$")`, "true", Filter, true},
	{`from == "ada" && id != "m2"`, "true", Filter, true},
	{`now > timestamp("2020-01-01T00:00:00Z")`, "true", Filter, false},
	{`now.getFullYear()`, "2027", Score, false},
	{`double(priority) * 0.5`, "2", Score, true},
	{`dyn(features) == dyn(headers)`, undefined, Filter, false},
}

func TestStories(t *testing.T) {
	for _, s := range stories {
		p, err := Compile(s.text, s.kind, Limits{})
		if err != nil {
			t.Errorf("%s: %v", s.text, err)
			continue
		}
		if p.Compiled() != s.compiled {
			t.Errorf("%s: compiled %t", s.text, p.Compiled())
		}
		for _, q := range []*Program{p, interpreted(t, p)} {
			r, err := q.Eval(t.Context(), sample())
			if got := show(s.kind, r); err != nil || got != s.want {
				t.Errorf("%s (compiled %t): %s %v, not %s", s.text, q.Compiled(), got, err, s.want)
			}
			if r.Cost == 0 || q.EstimatedCost() == 0 || q.EstimatedTime() == 0 {
				t.Errorf("%s (compiled %t): costs %d, estimated %d, %v", s.text, q.Compiled(), r.Cost, q.EstimatedCost(), q.EstimatedTime())
			}
		}
	}
}

func TestPayloadThatIsNoJSONIsNull(t *testing.T) {
	for _, text := range []string{`payload == null`, `!has(payload.x)`, `type(payload) == null_type`} {
		p, err := Compile(text, Filter, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for _, payload := range []string{"", "hello", "{", "\xff", "1 2"} {
			in := &Input{}
			in.SetPayload([]byte(payload))
			if r, err := p.Eval(t.Context(), in); !r.Bool || err != nil {
				t.Errorf("%s with %q: %+v %v", text, payload, r, err)
			}
		}
	}
}

func TestPayloadIsParsedOnceForAllPrograms(t *testing.T) {
	in := sample()
	for _, text := range []string{`payload.price > 10`, `payload.tags.exists(t, t == "a")`} {
		p, err := Compile(text, Filter, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := p.Eval(t.Context(), in); !r.Bool || err != nil {
			t.Fatal(r, err)
		}
	}
	nodes := &in.json.nodes[0]
	value := in.document().value()
	p, _ := Compile(`payload.tags.exists(t, t == "b")`, Filter, Limits{})
	if r, err := p.Eval(t.Context(), in); !r.Bool || err != nil || nodes != &in.json.nodes[0] || value != in.document().value() {
		t.Fatal("parsed again", r, err)
	}
	in.SetPayload([]byte(`{"tags":[]}`))
	if r, err := p.Eval(t.Context(), in); r.Bool || r.Undefined || err != nil {
		t.Fatal("the old payload was used", r, err)
	}
}

func TestErrorsAreOneLineWithThePlace(t *testing.T) {
	for text, want := range map[string]string{
		`features.x >`:                  "line 1, column 13: the expression ends too early",
		`features.x > 1.0 )`:            "line 1, column 18: ')' is not expected here",
		`true &&` + "\n" + `  nope`:     "line 2, column 3: the name 'nope' is not known",
		`topic && priority > 3`:         "line 1, column 1: expected type 'bool' but found 'string'",
		`topic > 3`:                     "line 1, column 7: '>' does not take (string, int)",
		`topic == "a`:                   "can't be read",
		`features.x * 2 > 1.0`:          "2 is an int, 2.0 a double",
		`priority`:                      "a filter must be a bool, this expression is int",
		``:                              "empty",
		`topic.matches(headers.p)`:      "line 1, column 22: the pattern of matches must be a constant",
		`topic.matches("(a{100}){10}")`: "instructions, at most 128",
		`topic.matches("` + strings.Repeat("a{1000}", 500) + `")`: "3500 bytes, at most 256",
		`topic.matches("(")`:                                              "missing closing",
		`features == profile`:                                             "whole maps can't be compared",
		`now.getHours("Europe/Rome") > 1`:                                 "'getHours' does not take timestamp.(string)",
		strings.Repeat("x", MaxText+1):                                    "4097 bytes, at most 4096",
		`[1].all(a, [2].all(b, [3].all(c, a + b + c > 0)))`:               "exceeds nesting limit",
		strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200):      "recursion",
		"[" + strings.Repeat("1,", 1500) + "1].all(x, x > 0)":             "limit",
		`payload.a.all(x, payload.b.all(y, (x+y+x+y+x+y+x+y) > 0))`:       "may cost",
		"topic == '" + strings.Repeat("a\u2028", 400) + "' ? nope : nope": "",
	} {
		_, err := Compile(text, Filter, Limits{})
		if err == nil {
			t.Errorf("%.40q: compiled", text)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > maxReason+10 {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	if _, err := Compile(`topic`, Score, Limits{}); err == nil || !strings.Contains(err.Error(), "a score must be an int or a double, this expression is string") {
		t.Error(err)
	}
}
