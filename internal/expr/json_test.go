package expr

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// decoded is a document as encoding/json has it.
func decoded(d *document, at uint32) any {
	n := &d.nodes[at]
	switch n.kind {
	case nodeFalse, nodeTrue:
		return n.kind == nodeTrue
	case nodeNumber:
		return d.number(n)
	case nodeText, nodeEscapedText:
		return d.string(n)
	case nodeArray:
		list := []any{}
		for i := at + 1; i < n.next; i = d.nodes[i].next {
			list = append(list, decoded(d, i))
		}
		return list
	case nodeObject:
		members := map[string]any{}
		for i := at + 1; i < n.next; i = d.nodes[i+1].next {
			name := d.string(&d.nodes[i])
			members[name] = decoded(d, i+1)
			if !d.named(&d.nodes[i], name) || d.named(&d.nodes[i], name+"x") {
				panic(fmt.Sprintf("%q is not found by its name", name))
			}
		}
		return members
	}
	return nil
}

// infinite turns numbers, which encoding/json refuses where they are too large, into doubles.
func infinite(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, _ := strconv.ParseFloat(string(v), 64)
		return f
	case []any:
		for i := range v {
			v[i] = infinite(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = infinite(v[k])
		}
	}
	return v
}

func checkDocument(t *testing.T, payload []byte) {
	t.Helper()
	var d document
	d.parse(payload)
	if len(d.nodes) == 0 {
		return
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	var want any
	if err := decoder.Decode(&want); err != nil || !json.Valid(payload) {
		t.Fatalf("%q was parsed: %v", payload, err)
	}
	if got, want := decoded(&d, 0), infinite(want); !reflect.DeepEqual(got, want) {
		t.Fatalf("%q is %v, not %v", payload, got, want)
	}
}

var texts8259 = []string{
	`1`, `-0`, `0.5e-3`, `1e400`, `-1E+2`, `123456789012345678`, `""`, `"\ud83d\ude00\ud83d x\u00E9\\\/\b\f\n\r\t\""`, `[]`, `{}`, ` [ 1 , [ ] , { "a" : [ null , true , false ] } ] `,
	`{"a":1,"a":2}`, `{"\u0061b":{"c":"d"}}`, `"\ud800\u0041"`, `"é 世界"`,
}

var texts8259Not = []string{
	``, ` `, `01`, `1.`, `.5`, `+1`, `-`, `1e`, `0x1`, `"`, `"a`, `"\x"`, `"\u12g4"`, `"` + "\n" + `"`, `[`, `[1`, `[1,`, `[1,]`, `[,]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{1:1}`,
	`]`, `[}`, `{]`, `1 1`, `tru`, `nulll`, `[1 2]`, `{"a" 1}`, `{"a":1 "b":2}`, "\xff", `"` + "\xff" + `"`, "\ufeff1", `NaN`, `{"a":1]`, `[1}`,
}

func TestJSONAsEncodingJSONReadsIt(t *testing.T) {
	for _, s := range texts8259 {
		var d document
		if d.parse([]byte(s)); len(d.nodes) == 0 {
			t.Errorf("%s was refused", s)
		}
		checkDocument(t, []byte(s))
	}
	for _, s := range texts8259Not {
		var d document
		if d.parse([]byte(s)); len(d.nodes) != 0 {
			t.Errorf("%s was parsed", s)
		}
	}
}

func TestNestedToTheLimit(t *testing.T) {
	for depth, want := range map[int]bool{MaxDepth: true, MaxDepth + 1: false} {
		for _, s := range []string{strings.Repeat("[", depth) + strings.Repeat("]", depth), strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)} {
			var d document
			if d.parse([]byte(s)); len(d.nodes) > 0 != want {
				t.Errorf("depth %d: parsed %t", depth, !want)
			}
			_ = d.value()
		}
	}
	for values, want := range map[int]bool{MaxValues: true, MaxValues + 1: false} {
		var d document
		if d.parse([]byte("[" + strings.Repeat("1,", values-2) + "1]")); len(d.nodes) > 0 != want {
			t.Errorf("%d values: parsed %t", values, !want)
		}
	}
}

// TestHugePayloadsAreCheapToRefuse: milliseconds, where a reader that recurses or looks back takes
// minutes or the whole stack.
func TestHugePayloadsAreCheapToRefuse(t *testing.T) {
	for name, payload := range map[string][]byte{
		"50 MB of [": bytes.Repeat([]byte("["), 50<<20), "1 MiB of [": bytes.Repeat([]byte("["), MaxPayload), `1 MiB of {"":`: bytes.Repeat([]byte(`{"":`), MaxPayload/4),
		"1 MiB of [1,": bytes.Repeat([]byte("[1,"), MaxPayload/3), "1 MiB of 1,": append([]byte("["), bytes.Repeat([]byte("1,"), MaxPayload/2-1)...),
	} {
		best := time.Duration(math.MaxInt64)
		for range 5 {
			in := &Input{}
			began := time.Now()
			in.SetPayload(payload)
			if len(in.document().nodes) != 0 {
				t.Fatal(name, "was parsed")
			}
			best = min(best, time.Since(began))
		}
		if best > time.Second {
			t.Errorf("%s: %v", name, best)
		}
	}
}

func FuzzPayload(f *testing.F) {
	for _, s := range append(texts8259, texts8259Not...) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) { checkDocument(t, payload) })
}
